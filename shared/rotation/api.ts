import * as z from "zod";
import { pageParameters, queryInstant } from "../platform/http/paging.ts";
import { issuerOf } from "./issuers/issuers.ts";
import type { Need } from "./obstacles.ts";
import { MAX_TARGETS } from "./policy.ts";
import { placeOf } from "./publications.ts";
import {
  CONSUMER_STATES,
  isVaultSecret,
  LEFT_OUT_REASONS,
  type Publication,
  ROTATION_REASONS,
  ROTATION_STATUSES,
  type RotationConsumer,
  type RotationRecord,
  type RotationSummary,
  STEPS,
  type Step,
  type StepName,
} from "./rotation.ts";
import { resultOf } from "./step-results.ts";

// The requests and responses of rotations: their schemas, and the functions that turn a record into a response.

const guid = z.guid().transform((id) => id.toLowerCase());

/** Request options for the consumers of the rotated secret. Rotation requests for applications and for assets share them. */
export const consumersOptions = {
  includeResources: z.array(z.string().min(1).max(2048)).max(1000).optional().meta({
    description:
      "IDs of the only consumers that are refreshed. Default: all. Consumers that are left out are still checked before an old client secret is removed.",
  }),
  restartApps: z.boolean().default(true).meta({
    description:
      "Whether web and function apps are restarted, softly, once App Service has read the new value: most read their settings only when they start.",
  }),
  skipVerification: z.boolean().default(false).meta({
    description:
      "If true, consumers are refreshed without a check that they hold the new value. If a refresh fails, the rotation is still rolled back.",
  }),
};

/** Request option for keys of Azure resources. */
export const acceptUnread = z.boolean().default(false).meta({
  description:
    "Only for keys of Azure resources. Whether the key that is not in use may be regenerated although it may be in use: by a vault secret that no discovery of the last seven days could read, or by a consumer that may have an earlier version of a vault secret.",
});

/** Request options for the places (key vault secrets) that get the new value. */
export const placesOptions = {
  targets: z.array(z.string().min(1).max(300)).min(1).max(MAX_TARGETS).optional().meta({
    description:
      "Asset IDs of the only vault secrets that get the new value. Each must be a certain match of the old secret (409 otherwise). Default: the places that a user confirmed or an earlier rotation wrote. If there are none, the place that has held the value longest.",
  }),
  reason: z.enum(ROTATION_REASONS).optional().meta({
    description:
      "`compromised`: someone else may have the old secret. `targets` is then required, only those vault secrets get the new value, and copies in other places do not keep the old secret from being removed. Default: a routine rotation.",
  }),
};

export const dryRun = z.boolean().default(false).meta({
  description:
    "Returns 200 with the plan, without any change, also if the rotation can't start yet: `needs` then lists the missing information.",
});

export const RotateRequest = z
  .strictObject({
    appId: guid.meta({ description: "The application's client id." }),
    secretId: guid.meta({ description: "The keyId of the client secret to replace." }),
    expiryDays: z.int().min(1).max(730).optional().meta({
      description:
        "Days that the new secret is valid. Default: the setting `defaultValidityDays`. The tenant's policy may shorten it.",
    }),
    updateKeyVaults: z.boolean().default(true).meta({
      description:
        "Whether to write the new value to key vault secrets that store the old one; see `targets`. If false, the value is stored in the handover vault (`HANDOVER_KEY_VAULT_URL`).",
    }),
    overlapDays: z.int().min(0).max(90).default(7).meta({ description: "Days during which both secrets are valid." }),
    removeExpired: z.boolean().default(false).meta({
      description: "Whether to remove an expired client secret first if the application can't have another one.",
    }),
    ...placesOptions,
    ...consumersOptions,
    dryRun,
  })
  .meta({ id: "RotateRequest" });

export const FinishRequest = z
  .strictObject({
    force: z.boolean().default(false).meta({
      description:
        "Removes the old secret despite all reasons against it. If a rollback needs attention because consumers could not be restored (`consumerNotRestored`), leaves these consumers as they are and ends the rotation.",
    }),
  })
  .meta({ id: "FinishRequest" });

export const RotationParams = z.object({
  rotation_id: z.string().meta({ description: "The rotationId of the rotation." }),
});

const status = z
  .enum(ROTATION_STATUSES)
  .meta({ description: "Status of the rotation. docs/rotation.md describes each." });

export const RotationQuery = z.strictObject({
  ...pageParameters,
  status: status.optional(),
  appId: guid.optional().meta({ description: "Only rotations of this application (client ID)." }),
  assetId: z.string().max(300).optional().meta({
    description: "Only rotations of this vault secret (asset ID). Can't be combined with `appId`.",
  }),
  resourceId: z.string().max(2048).optional().meta({
    description: "Only rotations of keys of this Azure resource. Can't be combined with `appId` or `assetId`.",
  }),
  credentialId: z.string().max(64).optional().meta({
    description: "Only rotations of this registered database login. Can't be combined with the other subjects.",
  }),
  start_date: queryInstant("start").optional(),
  end_date: queryInstant("end").optional(),
});

const Failure = z
  .object({
    code: z.string(),
    message: z.string(),
    remedy: z.string().meta({ description: "How to fix the failure." }),
  })
  .meta({ id: "RotationFailure" });

const instant = z.iso.datetime().nullable();

/** Members of a rotation that lists also show. */
const summary = {
  rotationId: z.string().nullable().meta({ description: "Null for a plan." }),
  appId: z.string().nullable().meta({
    description: "Client ID of the application. Null if the rotation replaces no client secret.",
  }),
  appName: z.string().nullable(),
  oldKeyId: z.string().nullable().meta({
    description:
      "Key ID of the client secret, name of the resource's key, or name of the database user, that is replaced. Null for a vault secret.",
  }),
  newKeyId: z.string().nullable().meta({
    description:
      "Key ID of the new client secret, name of the resource's key that was regenerated, or name of the database user that got a new password. Null until it is created.",
  }),
  assetId: z.string().nullable().meta({
    description: "Asset ID of the rotated vault secret. Null for an application's client secret and a resource's key.",
  }),
  resourceId: z.string().nullable().meta({
    description:
      "ID of the Azure resource whose key is replaced, or of the database server whose login is replaced. Null for other rotations.",
    example:
      "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-payments/providers/Microsoft.Storage/storageAccounts/stpayments",
  }),
  keyKind: z.string().nullable().meta({
    description: "Kind of that resource, such as `storage` or `postgresqlLogin`. Null for other rotations.",
    example: "storage",
  }),
  status,
  automatic: z.boolean().meta({ description: "Whether a policy started the rotation." }),
  requestedBy: z.string(),
  createdAt: z.iso.datetime(),
  endedAt: instant,
  needsConfirmation: z
    .boolean()
    .meta({ description: "Whether the old secret stays until a user finishes the rotation." }),
  failure: Failure.nullable().meta({ description: "Why the rotation ended without success or rolls back." }),
};

export const RotationSummaryView = z.object(summary).meta({ id: "RotationSummary" });

export const RotationView = z
  .object({
    ...summary,
    expiryDays: z.int(),
    expiresAt: instant.meta({ description: "Expiry of the new secret. Null until it is created." }),
    overlapDays: z.int(),
    overlapEndsAt: instant.meta({
      description: "End of the overlap period. Null until the new value is written and verified.",
    }),
    updateKeyVaults: z.boolean(),
    reason: z
      .enum(ROTATION_REASONS)
      .nullable()
      .meta({ description: "Reason from the request. Null for a routine rotation." }),
    plan: z
      .array(
        z.object({
          step: z.enum(STEPS).meta({ description: "Name of the step." }),
          text: z.string().meta({ description: "Description of the step in one sentence." }),
        }),
      )
      .meta({ description: "Steps of the rotation, in order." }),
    steps: z.array(
      z
        .object({
          name: z.enum(STEPS),
          status: z.enum(["waiting", "running", "done", "failed", "skipped"]).meta({ description: "Progress." }),
          startedAt: instant,
          finishedAt: instant,
          attempts: z
            .int()
            .meta({ description: "Number of times the step was started, including starts that only waited." }),
          failure: Failure.nullable().meta({ description: "Last failure of the step. Null if none." }),
          result: z.string().nullable().meta({
            description: "Actions of the step, in one or two sentences. Null until the step is done.",
            example: "Signed in 4 times in a row with the new secret.",
          }),
        })
        .meta({ id: "RotationStep" }),
    ),
    needs: z
      .array(
        z
          .object({
            code: z.string().meta({ description: "Code of the problem that rejects the request without `dryRun`." }),
            message: z.string().meta({ description: "The missing information, and how to provide it." }),
            send: z.array(z.record(z.string(), z.unknown())).meta({
              description:
                "Members to add to the request's body. Each alternative is enough. Null stands for a value that only you know. Empty if no member of the body helps.",
            }),
          })
          .meta({ id: "RotationNeed" }),
      )
      .meta({
        description:
          "Only of a dry run: what the rotation needs before it can start. Empty if the same request without `dryRun` starts it.",
      }),
    targets: z
      .array(
        z
          .object({
            vaultName: z.string(),
            secretName: z.string(),
            kind: z.enum(["match", "handover", "secret"]).meta({
              description:
                "match: the vault secret stores the client secret. handover: a secret in the handover vault, where users collect the value. secret: the rotated vault secret itself.",
            }),
            state: z.enum(["planned", "writing", "written", "restoring", "restored", "left"]).meta({
              description: "left: another writer changed the secret, so the rotation does not touch it.",
            }),
            previousVersion: z
              .string()
              .nullable()
              .meta({ description: "Version with the old value. Null if the secret did not exist." }),
            version: z
              .string()
              .nullable()
              .meta({ description: "Version with the new value. Null until it is written." }),
            writtenAt: instant.meta({ description: "Time of the write of the new value. Null until then." }),
            checkedAt: instant.meta({
              description:
                "Time of the last check, before the end of the overlap period, that found the new value in the vault secret. Null if it was not checked, such as for a handover or after a finish with `force`.",
            }),
          })
          .meta({ id: "RotationTarget" }),
      )
      .meta({ description: "Key vault secrets that get the new value." }),
    consumers: z
      .array(
        z
          .object({
            id: z.string(),
            kind: z.string().meta({ description: "Type of the resource." }),
            name: z.string(),
            environment: z.string().nullable(),
            vaultName: z.string(),
            secretName: z.string(),
            evidence: z
              .string()
              .meta({ description: "Name of the setting, variable or field that references the secret." }),
            how: z.enum(["automatic", "action", "blind", "willBreak"]).meta({
              description:
                "How the consumer gets a new value. automatic: without help. action: the service refreshes it. blind: the service can't see which value it has. willBreak: it keeps the old value.",
            }),
            slowestSeconds: z.int().meta({
              description: "Longest time in seconds until the consumer reads a new value without help. 0 if unknown.",
            }),
            included: z.boolean().meta({ description: "Whether the request includes the consumer." }),
            brokenBefore: z.boolean().meta({
              description:
                "Whether the consumer could not use the secret before the rotation wrote anything; `problem` says why. It is then neither refreshed nor checked, and can't stop the rotation, unless it can use the secret at the end.",
            }),
            state: z.enum(CONSUMER_STATES).meta({ description: "Progress." }),
            holds: z.enum(["new", "old", "gone", "unknown"]).nullable().meta({
              description:
                "Value that the consumer had at the last check. gone: the consumer no longer uses the secret.",
            }),
            problem: z
              .string()
              .nullable()
              .meta({ description: "Why the consumer is not verified. Null if there is no problem." }),
          })
          .meta({ id: "RotationConsumer" }),
      )
      .meta({ description: "Consumers of the written secrets, in the order in which they are refreshed." }),
    verifiedMeans: z.string().meta({ description: "Explains what the consumer state `verified` proves." }),
    notUpdated: z
      .array(
        z.object({
          vaultName: z.string(),
          secretName: z.string(),
          confidence: z
            .enum(["certain", "likely", "possible"])
            .meta({ description: "How certain it is that this place stores the old secret." }),
          reason: z.enum(LEFT_OUT_REASONS).nullable().meta({
            description:
              "`newPlace`: the place certainly stores the old secret, but no user confirmed it and no earlier rotation wrote it. Confirm the match, also during the overlap period, to have it written. `uncertain`: it may store the old secret; verify and confirm the match. `notNamed`: `targets` names the only places to write. `unreadable`: its vault denies access to the service; grant access. `unanswered`: its vault gave no clear answer, and no user confirmed it and no rotation wrote it. Null for a handover.",
          }),
        }),
      )
      .meta({
        description:
          "Vault secrets that store, or may store, the old client secret and are not written. They keep the old secret from being removed, unless the reason of the rotation is `compromised`.",
      }),
    notes: z
      .array(z.string())
      .meta({ description: "Decisions of the service that differ from the request, such as a shorter lifetime." }),
    coverage: z
      .array(z.string())
      .meta({ description: "Scopes that the service could not read. Consumers there are unknown." }),
    reasons: z.array(z.string()).meta({ description: "Reasons why the old secret is not removed yet." }),
    goingBack: z.enum(["failed", "cancelled", "rolledBack"]).nullable().meta({
      description: "Status that the rotation will end with after its rollback. Null if it is not rolling back.",
    }),
    nextAt: instant.meta({ description: "Time when the rotation continues. Null if it ended or needs attention." }),
    attention: z
      .object({
        code: z.string(),
        message: z.string(),
        done: z.string().meta({ description: "Changes that the rotation has made." }),
        safe: z.string().meta({ description: "Things that are unchanged or work." }),
        next: z.string().meta({ description: "Next steps for the user." }),
        since: z.iso.datetime(),
      })
      .nullable()
      .meta({ description: "Why a user must act. Null if nothing is needed." }),
  })
  .meta({ id: "Rotation" });

export function rotationSummaryView(record: RotationSummary): z.input<typeof RotationSummaryView> {
  const { rotationId, appId, appName, oldKeyId, newKeyId, assetId, resourceId, keyKind } = record;
  const { automatic, requestedBy, createdAt } = record;
  return {
    rotationId,
    appId: appId ?? null,
    appName: appName ?? null,
    oldKeyId: oldKeyId ?? null,
    newKeyId: newKeyId ?? null,
    assetId: assetId ?? null,
    resourceId: resourceId ?? null,
    keyKind: keyKind ?? null,
    status: record.status,
    automatic,
    requestedBy,
    createdAt,
    endedAt: record.endedAt ?? null,
    needsConfirmation: record.needsConfirmation,
    failure: record.failure ?? null,
  };
}

export function rotationView(record: RotationRecord): z.input<typeof RotationView> {
  const { attention, endedAt, status: state } = record;
  const isStopped = endedAt !== undefined || state === "needsAttention";
  return {
    ...rotationSummaryView(record),
    expiryDays: record.expiryDays,
    expiresAt: record.newExpiresAt ?? null,
    overlapDays: record.overlapDays,
    overlapEndsAt: record.overlapEndsAt ?? null,
    updateKeyVaults: record.updateKeyVaults,
    reason: record.reason ?? null,
    plan: planTexts(record),
    needs: [],
    steps: record.steps.map((step) => ({
      name: step.name,
      status: step.status,
      startedAt: step.startedAt ?? null,
      finishedAt: step.finishedAt ?? null,
      attempts: step.attempts,
      failure: step.failure ?? null,
      result: resultTextOf(record, step) ?? null,
    })),
    targets: record.publications.map((publication) => targetView(record, publication)),
    consumers: (record.consumers ?? []).map(consumerView),
    verifiedMeans: VERIFIED_MEANS,
    notUpdated: record.notUpdated.map((place) => ({ ...place, reason: place.reason ?? null })),
    notes: record.notes,
    coverage: record.coverage,
    reasons: record.reasons,
    goingBack: endedAt === undefined ? (record.ending ?? null) : null,
    nextAt: isStopped ? null : record.dueAt,
    attention: attention === undefined ? null : withoutResume(attention),
  };
}

/** Returns what a finished step did. The issuer's sentence, if it has one, replaces the general one. */
function resultTextOf(record: RotationRecord, step: Step): string | undefined {
  const issuerText = isVaultSecret(record) ? undefined : issuerOf(record).resultTexts?.(record)[step.name];
  return step.status === "done" && issuerText !== undefined ? issuerText : resultOf(record, step);
}

/** The API calls a publication, the write of the new value to a place, a target. */
function targetView(
  { checkedAt, reasons, finish }: RotationRecord,
  { vaultName, secretName, kind, state, plannedVersion, writtenVersion, writtenAt }: Publication,
): z.input<typeof RotationView>["targets"][number] {
  // A check that ended without reasons found the new value in each place, except for a handover, which it does not read.
  const isChecked = state === "written" && kind !== "handover" && reasons.length === 0 && !finish?.force;
  // A place that was added in the overlap period may be newer than the last check.
  const isOfThisPlace = checkedAt !== undefined && writtenAt !== undefined && writtenAt <= checkedAt;
  return {
    vaultName,
    secretName,
    kind,
    state,
    previousVersion: plannedVersion ?? null,
    version: writtenVersion ?? null,
    writtenAt: writtenVersion === undefined ? null : (writtenAt ?? null),
    checkedAt: isChecked && isOfThisPlace ? checkedAt : null,
  };
}

const VERIFIED_MEANS =
  "Verified means that the consumer's platform reports the new version. It does not prove that the new value works.";

function consumerView(one: RotationConsumer): z.input<typeof RotationView>["consumers"][number] {
  const { id, kind, name, vaultName, secretName, evidence, how, slowestSeconds, included, state } = one;
  return {
    id,
    kind,
    name,
    environment: one.environment ?? null,
    vaultName,
    secretName,
    evidence,
    how,
    slowestSeconds,
    included,
    brokenBefore: one.brokenBefore ?? false,
    state,
    holds: one.holds ?? null,
    problem: one.problem ?? null,
  };
}

/** Returns the view of a dry run: a rotation without ID and without a next time, and what it needs before it can start. */
export const planView = ({
  record,
  needs,
}: {
  record: RotationRecord;
  needs: Need[];
}): z.input<typeof RotationView> => ({
  ...rotationView(record),
  rotationId: null,
  nextAt: null,
  needs,
});

/** Drops `resume`, the status with which the rotation continues after a retry, because it is internal. */
function withoutResume({ resume: _, ...attention }: NonNullable<RotationRecord["attention"]>) {
  return attention;
}

/** @param refreshed - Number of included consumers that the rotation updates or restarts. */
function verificationText(refreshed: number, skipsCheck: boolean): string {
  if (refreshed === 0) return "No consumer must be updated or restarted.";
  const consumers = refreshed === 1 ? "1 consumer" : `${refreshed} consumers, one after the other`;
  return skipsCheck
    ? `Update or restart ${consumers}, without a check that the new value is in use. If an update fails, roll everything back.`
    : `Update or restart ${consumers}, and check that each uses the new value within 5 minutes. Otherwise roll everything back.`;
}

const UNKNOWN_PLACES = "the key vault secrets that store the old value, of which none is certain yet";

/** Returns one sentence for each step of the plan. The issuer adds those of its own steps. */
function planTexts(record: RotationRecord): { step: StepName; text: string }[] {
  // A record without steps is that of a dry run for something that can't be rotated.
  if (record.steps.length === 0) return [];
  const { expiryDays, publications, skipVerification, consumers = [] } = record;
  const places = publications.length === 0 ? UNKNOWN_PLACES : publications.map(placeOf).join(", ");
  const isHandover = publications.length > 0 && publications.every(({ kind }) => kind === "handover");
  const refreshed = consumers.filter(
    ({ included, how, brokenBefore }) => included && how === "action" && !brokenBefore,
  ).length;
  const commonTexts = {
    verify: verificationText(refreshed, skipVerification === true),
    cleanUp: "Delete the temporary copy of the value.",
  };
  const texts: Partial<Record<StepName, string>> = isVaultSecret(record)
    ? {
        publish: `Write the new value as a new version to ${places}, with an expiry in ${expiryDays} days.`,
        overlap: "Wait until the other consumers have read the new value. Old versions stay in the vault.",
        ...commonTexts,
      }
    : {
        publish: isHandover
          ? `Store the new value in the handover vault, where a user can collect it: ${places}.`
          : `Write the new value as a new version to ${places}.`,
        ...issuerOf(record).planTexts(record),
        ...commonTexts,
      };
  return STEPS.flatMap((step) => (texts[step] === undefined ? [] : [{ step, text: texts[step] }]));
}
