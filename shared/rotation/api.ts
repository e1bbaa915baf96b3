import * as z from "zod";
import { pageParameters, queryInstant } from "../platform/http/paging.ts";
import { MAX_TARGETS } from "./policy.ts";
import { placeOf } from "./publications.ts";
import {
  CONSUMER_STATES,
  isVaultSecret,
  LEFT_OUT_REASONS,
  ROTATION_REASONS,
  ROTATION_STATUSES,
  type RotationConsumer,
  type RotationRecord,
  type RotationSummary,
  STEPS,
} from "./rotation.ts";

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

export const RotateRequest = z
  .strictObject({
    appId: guid.meta({ description: "The application's client id." }),
    secretId: guid.meta({ description: "The keyId of the client secret to replace." }),
    expiryDays: z.int().min(1).max(730).optional().meta({
      description: "Days the new secret is good for; defaultValidityDays when left out. A tenant's policy may cut it.",
    }),
    updateKeyVaults: z.boolean().default(true).meta({
      description:
        "Whether the new value is written to key vault secrets that hold the old one; see `targets`. False: it is put into the vault that HANDOVER_KEY_VAULT_URL names.",
    }),
    overlapDays: z.int().min(0).max(90).default(7).meta({ description: "Days that both secrets live." }),
    removeExpired: z.boolean().default(false).meta({
      description: "Whether an expired client secret is removed first where the application can't have another one.",
    }),
    ...placesOptions,
    ...consumersOptions,
    dryRun: z.boolean().default(false).meta({ description: "Answers the plan and does nothing." }),
  })
  .meta({ id: "RotateRequest" });

export const FinishRequest = z
  .strictObject({
    force: z.boolean().default(false).meta({
      description:
        "Removes the old secret whatever stands against it. Where a way back waits for a person because consumers can't be brought back (consumerNotRestored) it leaves those as they are and ends.",
    }),
  })
  .meta({ id: "FinishRequest" });

export const RotationParams = z.object({
  rotation_id: z.string().meta({ description: "The rotationId of the rotation." }),
});

const status = z.enum(ROTATION_STATUSES).meta({ description: "How far it is: docs/rotation.md says what each means." });

export const RotationQuery = z.strictObject({
  ...pageParameters,
  status: status.optional(),
  appId: guid.optional().meta({ description: "Rotations of this application; its client id." }),
  assetId: z.string().max(300).optional().meta({
    description: "Rotations of this vault secret; its asset id. Not together with appId.",
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

const summary = {
  rotationId: z.string().nullable().meta({ description: "Null for a plan." }),
  appId: z.string().nullable().meta({
    description: "Client ID of the application. Null if the rotation replaces a vault secret that is no client secret.",
  }),
  appName: z.string().nullable(),
  oldKeyId: z
    .string()
    .nullable()
    .meta({ description: "The client secret that is replaced; null where a vault's secret is." }),
  newKeyId: z.string().nullable().meta({ description: "Null until the new client secret is made." }),
  assetId: z.string().nullable().meta({
    description: "The vault secret that is rotated; null where an application's client secret is.",
  }),
  status,
  automatic: z.boolean().meta({ description: "Whether a policy began it." }),
  requestedBy: z.string(),
  createdAt: z.iso.datetime(),
  endedAt: instant,
  needsConfirmation: z
    .boolean()
    .meta({ description: "Whether the old secret stays until a person finishes the rotation." }),
  failure: Failure.nullable().meta({ description: "Why it ended without success, or goes back." }),
};

export const RotationSummaryView = z.object(summary).meta({ id: "RotationSummary" });

export const RotationView = z
  .object({
    ...summary,
    expiryDays: z.int(),
    expiresAt: instant.meta({ description: "When the new secret ends; null until it is made." }),
    overlapDays: z.int(),
    overlapEndsAt: instant.meta({
      description: "When both have lived long enough; null until the new one is written.",
    }),
    updateKeyVaults: z.boolean(),
    reason: z
      .enum(ROTATION_REASONS)
      .nullable()
      .meta({ description: "As in the request; null for a routine rotation." }),
    plan: z
      .array(
        z.object({
          step: z.enum(STEPS).meta({ description: "Which step." }),
          text: z.string().meta({ description: "Description of the step in one sentence." }),
        }),
      )
      .meta({ description: "Steps of the rotation, in order." }),
    steps: z.array(
      z
        .object({
          name: z.enum(STEPS),
          status: z.enum(["waiting", "running", "done", "failed", "skipped"]).meta({ description: "How far it is." }),
          startedAt: instant,
          finishedAt: instant,
          attempts: z
            .int()
            .meta({ description: "Number of times the step was started, including starts that only waited." }),
          failure: Failure.nullable().meta({ description: "Its last failure." }),
        })
        .meta({ id: "RotationStep" }),
    ),
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
              .meta({ description: "The version that held the old value; null where there was none." }),
            version: z.string().nullable().meta({ description: "The version with the new value." }),
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
            evidence: z.string().meta({ description: "The name of the setting, variable or field." }),
            how: z.enum(["automatic", "action", "blind", "willBreak"]).meta({
              description:
                "How the consumer gets a new value. automatic: without help. action: the service refreshes it. blind: the service can't see which value it has. willBreak: it keeps the old value.",
            }),
            slowestSeconds: z
              .int()
              .meta({
                description: "Longest time in seconds until the consumer reads a new value without help. 0 if unknown.",
              }),
            included: z.boolean().meta({ description: "Whether it is acted on." }),
            state: z.enum(CONSUMER_STATES).meta({ description: "How far it is." }),
            holds: z.enum(["new", "old", "gone", "unknown"]).nullable().meta({
              description:
                "Value that the consumer had at the last check. gone: the consumer no longer uses the secret.",
            }),
            problem: z
              .string()
              .nullable()
              .meta({ description: "Why it is not verified; null where nothing is wrong." }),
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
            .meta({ description: "How sure it is that it holds the old secret." }),
          reason: z.enum(LEFT_OUT_REASONS).nullable().meta({
            description:
              "`newPlace`: it holds the old secret for certain, but no person confirmed it and no earlier rotation wrote it; confirm the match, also during the overlap, to have it written. `uncertain`: it may hold the old secret; verify and confirm the match. `notNamed`: `targets` names the only places that are written. `unreadable`: its vault refuses the service; grant access. Null where the value is handed over.",
          }),
        }),
      )
      .meta({
        description:
          "Vault secrets that hold the old client secret, or may hold it, and are not written. They keep the old one from being removed, unless the reason of the rotation is `compromised`.",
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
        safe: z.string().meta({ description: "What the rotation did not change, or what works." }),
        next: z.string().meta({ description: "What to do." }),
        since: z.iso.datetime(),
      })
      .nullable()
      .meta({ description: "Why a person must look; null otherwise." }),
  })
  .meta({ id: "Rotation" });

export function rotationSummaryView(record: RotationSummary): z.input<typeof RotationSummaryView> {
  const { rotationId, appId, appName, oldKeyId, newKeyId, assetId, automatic, requestedBy, createdAt } = record;
  return {
    rotationId,
    appId: appId ?? null,
    appName: appName ?? null,
    oldKeyId: oldKeyId ?? null,
    newKeyId: newKeyId ?? null,
    assetId: assetId ?? null,
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
  const waits = endedAt !== undefined || state === "needsAttention";
  return {
    ...rotationSummaryView(record),
    expiryDays: record.expiryDays,
    expiresAt: record.newExpiresAt ?? null,
    overlapDays: record.overlapDays,
    overlapEndsAt: record.overlapEndsAt ?? null,
    updateKeyVaults: record.updateKeyVaults,
    reason: record.reason ?? null,
    plan: planTexts(record),
    steps: record.steps.map(({ name, status: at, startedAt, finishedAt, attempts, failure }) => ({
      name,
      status: at,
      startedAt: startedAt ?? null,
      finishedAt: finishedAt ?? null,
      attempts,
      failure: failure ?? null,
    })),
    targets: record.publications.map(({ vaultName, secretName, kind, state: at, plannedVersion, writtenVersion }) => ({
      vaultName,
      secretName,
      kind,
      state: at,
      previousVersion: plannedVersion ?? null,
      version: writtenVersion ?? null,
    })),
    consumers: (record.consumers ?? []).map(consumerView),
    verifiedMeans: VERIFIED_MEANS,
    notUpdated: record.notUpdated.map((place) => ({ ...place, reason: place.reason ?? null })),
    notes: record.notes,
    coverage: record.coverage,
    reasons: record.reasons,
    goingBack: endedAt === undefined ? (record.ending ?? null) : null,
    nextAt: waits ? null : record.dueAt,
    attention: attention === undefined ? null : withoutResume(attention),
  };
}

const VERIFIED_MEANS =
  "`verified` means that the platform reports the new version for this consumer. It does not prove that the system that checks the value accepts it.";

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
    state,
    holds: one.holds ?? null,
    problem: one.problem ?? null,
  };
}

/** Returns the view of a dry run: a rotation without ID and without a next time. */
export const planView = (record: RotationRecord): z.input<typeof RotationView> => ({
  ...rotationView(record),
  rotationId: null,
  nextAt: null,
});

function withoutResume({ resume: _, ...attention }: NonNullable<RotationRecord["attention"]>) {
  return attention;
}

function planTexts(record: RotationRecord): { step: (typeof STEPS)[number]; text: string }[] {
  const { appName, appId, oldKeyId, expiryDays, overlapDays, publications, removeExpired, consumers = [] } = record;
  const places = publications.map(placeOf).join(", ");
  const handover = publications.every(({ kind }) => kind === "handover");
  const acted = consumers.filter(({ included, how }) => included && how === "action").length;
  const verify = {
    step: "verify" as const,
    text: `Refresh the ${acted} consumers that need it, one after the other, and check that each holds the new value within 5 minutes. Otherwise roll everything back.`,
  };
  if (isVaultSecret(record)) {
    return [
      {
        step: "publish",
        text: `Write the new value as a new version to ${places}, with an expiry in ${expiryDays} days.`,
      },
      verify,
      { step: "overlap", text: "Wait until those that take it by themselves hold it; old versions stay in the vault." },
      { step: "cleanUp", text: "Remove the held value." },
    ];
  }
  return [
    ...(removeExpired === undefined
      ? []
      : [{ step: "makeRoom" as const, text: `Remove the expired client secret ${removeExpired}.` }]),
    {
      step: "create",
      text: `Add a client secret to ${appName} (${appId}), good for ${expiryDays} days, and hold its value in the service's own key vault.`,
    },
    {
      step: "prove",
      text: "Sign in with it until it works reliably: several times in a row, spread over more than 15 seconds.",
    },
    { step: "publish", text: handover ? `Hand it over in ${places}.` : `Write it as a new version to ${places}.` },
    verify,
    { step: "overlap", text: `Let both secrets live for ${overlapDays} days.` },
    {
      step: "revoke",
      text: handover
        ? `Remove the client secret ${oldKeyId} once a person finishes the rotation.`
        : `See that everything still holds the new secret, then remove the client secret ${oldKeyId}.`,
    },
    { step: "cleanUp", text: "Remove the held value." },
  ];
}
