import * as z from "zod";
import { CONSUMER_KINDS } from "../dependencies/edge.ts";
import { INCOMPLETE_REASONS } from "../dependencies/incomplete.ts";
import { assetId } from "../inventory/asset.ts";
import type { RotationPolicy } from "../platform/azure/key-vault.ts";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { KEY_CONSUMER_KIND_OF, type KeyConsumerKind } from "./consumer-kinds.ts";
import type { KeyRotationPlan } from "./key-rotation.ts";
import { CONSUMER_STATES, isOver, RUN_STATUSES, type RunConsumer, type RunRecord } from "./run.ts";
import { followedCount, reasonsToKeepOldVersion, remainingConsumers } from "./transitions.ts";

// The requests and responses of rotations of keys: their schemas, and the functions that turn a record into a response.

export const KeyParams = z.object({
  asset_id: z.string().max(300).meta({ description: "Asset ID of the key: `<vault>.key.<name>`." }),
});
export const KeyRotationParams = z.object({
  run_id: z.string().meta({ description: "The runId of the rotation." }),
});

export const RotateKeyRequest = z
  .strictObject({
    dryRun: z.boolean().default(false).meta({
      description:
        "Returns 200 with the plan, without any change, also if the rotation can't start now: `needs` then lists the reasons.",
    }),
  })
  .meta({ id: "RotateKeyRequest" });

export const KeyRotationQuery = z.strictObject({
  ...pageParameters,
  status: z.enum(RUN_STATUSES).optional().meta({ description: "Only rotations with this status." }),
  assetId: z.string().max(300).optional().meta({ description: "Only rotations of this key (asset ID)." }),
});

const time = (description: string) => z.iso.datetime().nullable().meta({ description });

export const KeyConsumerView = z
  .object({
    id: z.string().meta({
      description: "Resource ID.",
      example:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-backup/providers/Microsoft.Storage/storageAccounts/stbackup",
    }),
    kind: z.enum(CONSUMER_KINDS).meta({ description: "Kind of the resource." }),
    name: z.string(),
    state: z.enum(CONSUMER_STATES).meta({
      description:
        "`followed`: uses the new version. `waiting`: follows new versions automatically and has time left. `late`: follows new versions automatically, but the documented time is over. `pinned`: its configuration names another version, so it needs `command`. `unknown`: the version in use can't be read. `unlinked`: it no longer uses the key.",
    }),
    followsNewest: z
      .boolean()
      .nullable()
      .meta({ description: "Whether the resource uses a new version automatically. Null if unknown." }),
    keyVersion: z.string().nullable().meta({
      description: "The version in use at the last check. Null if the resource does not report it.",
      example: "0d3c9f2b8a7e4c51b6f0e1d2c3b4a596",
    }),
    pickUpSeconds: z
      .int()
      .nullable()
      .meta({ description: "Documented time to use a new version, in seconds. Null if unknown.", example: 86400 }),
    dueAt: time("Time until which it should use the new version. Null in plans."),
    checkedAt: time("Time of the last check. Null in plans."),
    command: z.string().nullable().meta({
      description: "Azure CLI command that makes it use the new version. Null if none is needed or known.",
      example:
        "az storage account update --name stbackup --resource-group rg-backup --encryption-key-version 7f1e2d3c4b5a69788796a5b4c3d2e1f0",
    }),
    documentation: z.string().nullable().meta({
      description: "Page of the platform. Null if unknown.",
      example: "https://learn.microsoft.com/azure/storage/common/customer-managed-keys-overview",
    }),
    message: z.string().nullable(),
  })
  .meta({ id: "KeyConsumer" });

const STEP_STATES = ["pending", "running", "done", "failed"] as const;
export const KeyRotationStep = z
  .object({
    step: z.enum(["createVersion", "awaitConsumers"]).meta({ description: "Name of the step." }),
    state: z.enum(STEP_STATES).meta({ description: "State of the step." }),
    text: z.string().meta({
      description: "Description of the step and its result.",
      example: "1 of 2 known consumers use the new version.",
    }),
    at: time("Time of the step's end. Null before it."),
  })
  .meta({ id: "KeyRotationStep" });

export const KeyRotationView = z
  .object({
    runId: z.string().nullable().meta({ description: "ID of the rotation. Null in a plan." }),
    assetId: z.string(),
    vaultName: z.string().meta({ description: "Name of the vault.", example: "kv-platform-backup" }),
    keyName: z.string().meta({ description: "Name of the key.", example: "data-encryption" }),
    status: z.enum(["planned", ...RUN_STATUSES]).meta({
      description:
        "`planned`: a dry run. `rotating`: the new version does not exist yet. `waiting`: consumers use the old version, within the documented time. `late`: a consumer uses the old version, or is unknown, after that time. `done`: every known consumer uses the new version. `failed`: no version was added. `superseded`: a later rotation replaced a late one.",
    }),
    requestedBy: z.string().nullable().meta({ description: "Requester: a username. Null in a plan." }),
    createdAt: time("Start of the rotation. Null in a plan."),
    endedAt: z.iso.datetime().nullable(),
    nextAt: time("Time of the next attempt or check. Null in a plan, and once ended."),
    oldVersion: z.string().meta({
      description: "Version before the rotation. The service never disables it.",
      example: "0d3c9f2b8a7e4c51b6f0e1d2c3b4a596",
    }),
    newVersion: z.string().nullable().meta({
      description: "Version after the rotation. Null before it exists.",
      example: "7f1e2d3c4b5a69788796a5b4c3d2e1f0",
    }),
    createdElsewhere: z.boolean().meta({
      description:
        "True if the vault's own policy or another client added the new version, so that the service added none.",
    }),
    rotatedAt: time("Time at which the service saw the new version."),
    lateSince: time("Time of the check at which the rotation became late. Null if it is not late."),
    consumers: z.array(KeyConsumerView).meta({ description: "Resources that use the key." }),
    mayUse: z.int().min(0).nullable().meta({
      description: "Number of further resources and identities that only have access. Null after the plan.",
    }),
    incompleteReason: z.enum(INCOMPLETE_REASONS).nullable().meta({
      description: "Why further consumers may exist. Null if discovery read everything that it can read.",
    }),
    keepOldVersion: z.array(z.string()).meta({
      description:
        "Reasons why the old version must stay enabled. Even if the list is empty, backups and exports that the service does not know can need it.",
      example: ["stbackup (storageAccount) uses it."],
    }),
    needs: z.array(z.string()).meta({
      description: "In a plan: reasons why the rotation can't start now.",
      example: [],
    }),
    steps: z.array(KeyRotationStep).meta({ description: "Steps of the rotation." }),
    failure: z
      .object({ code: z.string(), message: z.string(), remedy: z.string() })
      .nullable()
      .meta({ description: "The last failure. Null without one." }),
  })
  .meta({ id: "KeyRotation" });
export const KeyRotationList = pageOf(KeyRotationView, "KeyRotationList");

type View = z.input<typeof KeyRotationView>;

/** Returns the command that makes a resource use a version. Undefined for a kind without one. */
function commandOf(consumer: RunConsumer, key: Pick<RunRecord, "vaultUri" | "vaultId" | "name">, version: string) {
  const parsed = parseResourceId(consumer.id);
  const kind = KEY_CONSUMER_KIND_OF.get(consumer.kind);
  if (parsed === undefined || kind === undefined) return undefined;
  const { resourceGroup, names } = parsed;
  const vaultUri = key.vaultUri.replace(/\/+$/, "");
  return kind.command({
    name: names.at(-1)!,
    resourceGroup,
    vaultUri,
    vaultId: key.vaultId,
    keyName: key.name,
    version,
  });
}

/** @param version - The new version, or a placeholder in a plan. */
function consumerView(
  consumer: RunConsumer,
  key: Pick<RunRecord, "vaultUri" | "vaultId" | "name">,
  version: string | undefined,
): z.input<typeof KeyConsumerView> {
  const { id, kind, name, state, followsNewest, version: keyVersion, dueAt, checkedAt, message } = consumer;
  const facts: KeyConsumerKind | undefined = KEY_CONSUMER_KIND_OF.get(kind);
  const needsCommand = state === "pinned" || state === "late";
  return {
    id,
    kind,
    name,
    state,
    followsNewest: followsNewest ?? null,
    keyVersion: keyVersion ?? null,
    pickUpSeconds: followsNewest ? (facts?.pickUpSeconds ?? null) : null,
    dueAt: dueAt ?? null,
    checkedAt: checkedAt ?? null,
    command: (needsCommand && version !== undefined && commandOf(consumer, key, version)) || null,
    documentation: facts?.documentation ?? null,
    message: message ?? null,
  };
}

export function keyRotationView(run: RunRecord): View {
  const { status, vaultName, name, newVersion, failure } = run;
  const isLate = status === "late" || status === "superseded";
  return {
    runId: run.runId,
    assetId: assetId({ vaultName, type: "key", name }),
    vaultName,
    keyName: name,
    status,
    requestedBy: run.requestedBy,
    createdAt: run.createdAt,
    endedAt: run.endedAt ?? null,
    nextAt: isOver(status) ? null : run.dueAt,
    oldVersion: run.oldVersion,
    newVersion: newVersion ?? null,
    createdElsewhere: run.createdElsewhere ?? false,
    rotatedAt: run.rotatedAt ?? null,
    lateSince: (isLate && run.lateSince) || null,
    consumers: run.consumers.map((one) => consumerView(one, run, newVersion)),
    mayUse: null,
    incompleteReason: run.incompleteReason ?? null,
    keepOldVersion: reasonsToKeepOldVersion(run),
    needs: [],
    steps: stepsOf(run),
    failure: failure ?? null,
  };
}

export function keyRotationPlanView({ key, current, consumers, obstacles, ...plan }: KeyRotationPlan): View {
  const { vaultName, name } = key;
  return {
    runId: null,
    assetId: assetId({ vaultName, type: "key", name }),
    vaultName,
    keyName: name,
    status: "planned",
    requestedBy: null,
    createdAt: null,
    endedAt: null,
    nextAt: null,
    oldVersion: current.version,
    newVersion: null,
    createdElsewhere: false,
    rotatedAt: null,
    lateSince: null,
    consumers: consumers.map((one) => consumerView(one, key, "NEW-VERSION")),
    mayUse: plan.mayUse,
    incompleteReason: plan.incompleteReason ?? null,
    keepOldVersion: reasonsToKeepOldVersion({
      consumers,
      incompleteReason: plan.incompleteReason,
      status: "rotating",
    }),
    needs: obstacles.map(({ message }) => message),
    steps: [
      { step: "createVersion", state: "pending", text: createText(name, vaultName), at: null },
      { step: "awaitConsumers", state: "pending", text: AWAIT_TEXT, at: null },
    ],
    failure: null,
  };
}

const createText = (name: string, vaultName: string): string =>
  `Add a version of ${name} in ${vaultName}. The earlier version stays enabled.`;
const AWAIT_TEXT = "Wait until every known consumer uses the new version. Consumers are never changed.";

function stepsOf(run: RunRecord): z.input<typeof KeyRotationStep>[] {
  const { status, vaultName, name, newVersion, rotatedAt, consumers, endedAt } = run;
  const isCreated = newVersion !== undefined;
  const createState = isCreated ? "done" : status === "failed" ? "failed" : "running";
  const followed = followedCount(consumers);
  const known = followed + remainingConsumers(consumers).length;
  const created = run.createdElsewhere
    ? "The vault's policy or another client had already added a version."
    : `A version of ${name} was added in ${vaultName}. The earlier version stays enabled.`;
  const seen = `${followed} of ${known} known consumers use the new version.`;
  const awaitState = !isCreated
    ? "pending"
    : status === "done"
      ? "done"
      : status === "superseded"
        ? "failed"
        : "running";
  return [
    {
      step: "createVersion",
      state: createState,
      text: isCreated ? created : createText(name, vaultName),
      at: rotatedAt ?? null,
    },
    {
      step: "awaitConsumers",
      state: awaitState,
      text: isCreated ? seen : AWAIT_TEXT,
      at: (isCreated && endedAt) || null,
    },
  ];
}

/** A duration that Key Vault accepts: a number of days, months or years. */
const duration = z
  .string()
  .regex(/^P[1-9]\d{0,4}[DMY]$/, "must be an ISO 8601 duration of days, months or years, such as P90D");

const LifetimeAction = z.strictObject({
  action: z.enum(["Rotate", "Notify"]).meta({
    description: "`Rotate`: Key Vault adds a version. `Notify`: Key Vault sends an event before the expiry.",
  }),
  timeAfterCreate: duration.optional().meta({
    description: "Time after the creation of a version, at least seven days. Only for `Rotate`.",
    example: "P1Y",
  }),
  timeBeforeExpiry: duration.optional().meta({
    description: "Time before the expiry of a version. Needs `expiresIn` for `Rotate`.",
    example: "P30D",
  }),
});

export const KeyRotationPolicyRequest = z
  .strictObject({
    expiresIn: duration.nullable().default(null).meta({
      description: "Time until a new version expires, at least 28 days. Null: new versions don't expire.",
      example: "P2Y",
    }),
    lifetimeActions: z
      .array(LifetimeAction)
      .max(2)
      .meta({ description: "At most one action of each kind. An empty list restores Key Vault's default policy." })
      .refine(
        (actions) => new Set(actions.map(({ action }) => action)).size === actions.length,
        "must have at most one action of each kind",
      )
      .refine(
        (actions) =>
          actions.every(
            ({ timeAfterCreate, timeBeforeExpiry }) =>
              (timeAfterCreate === undefined) !== (timeBeforeExpiry === undefined),
          ),
        "must have either timeAfterCreate or timeBeforeExpiry in each action",
      )
      .refine(
        (actions) =>
          actions.every(({ action, timeAfterCreate }) => action === "Rotate" || timeAfterCreate === undefined),
        "must have timeBeforeExpiry in an action of the kind Notify",
      ),
  })
  .meta({ id: "KeyRotationPolicyRequest" });

export const KeyRotationPolicyView = z
  .object({
    assetId: z.string(),
    expiresIn: z
      .string()
      .nullable()
      .meta({ description: "Time until a new version expires, as an ISO 8601 duration. Null: never.", example: "P2Y" }),
    lifetimeActions: z
      .array(
        z.object({
          action: z.enum(["Rotate", "Notify"]).meta({ description: "`Rotate` or `Notify`." }),
          timeAfterCreate: z.string().nullable().meta({
            description: "Time after the creation of a version, as an ISO 8601 duration.",
            example: "P1Y",
          }),
          timeBeforeExpiry: z.string().nullable().meta({
            description: "Time before the expiry of a version, as an ISO 8601 duration.",
            example: "P30D",
          }),
        }),
      )
      .meta({ description: "Actions of the vault with their times." }),
  })
  .meta({ id: "KeyRotationPolicy" });

export const policyOf = ({
  expiresIn,
  lifetimeActions,
}: z.output<typeof KeyRotationPolicyRequest>): RotationPolicy => ({
  ...(expiresIn !== null && { expiresIn }),
  lifetimeActions: lifetimeActions.map(({ action, timeAfterCreate, timeBeforeExpiry }) => ({
    action,
    ...(timeAfterCreate !== undefined && { timeAfterCreate }),
    ...(timeBeforeExpiry !== undefined && { timeBeforeExpiry }),
  })),
});

export const keyRotationPolicyView = ({
  assetId: id,
  policy: { expiresIn, lifetimeActions },
}: {
  assetId: string;
  policy: RotationPolicy;
}): z.input<typeof KeyRotationPolicyView> => ({
  assetId: id,
  expiresIn: expiresIn ?? null,
  lifetimeActions: lifetimeActions.map(({ action, timeAfterCreate, timeBeforeExpiry }) => ({
    action: /^rotate$/i.test(action) ? "Rotate" : "Notify",
    timeAfterCreate: timeAfterCreate ?? null,
    timeBeforeExpiry: timeBeforeExpiry ?? null,
  })),
});
