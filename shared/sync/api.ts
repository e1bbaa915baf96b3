import * as z from "zod";
import { entityTag } from "../http/conditional.ts";
import { pageParameters } from "../http/paging.ts";
import type { Row } from "../storage/entity.ts";
import type { Planned } from "./plan.ts";
import { PROVIDERS, providerOf } from "./providers/providers.ts";
import {
  ENTRY_KINDS,
  ON_DRIFT,
  type ProviderConfiguration,
  STATES,
  type SyncEntry,
  type SyncRecord,
  type SyncRecordRow,
  stateOf,
} from "./record.ts";

/** Sync records, their history and the providers' configuration as the API takes and shows them. */

const instant = z.iso.datetime();
const providerIds = PROVIDERS.map(({ id }) => id) as [string, ...string[]];
const targetProvider = z.enum(providerIds).meta({ description: "The provider of the target." });
const services = PROVIDERS.map((one) => `\`${one.id}\`: ${Object.keys(one.services).join(", ")}`).join("; ");

export const recordParams = z.strictObject({ record_id: z.string() });
export const providerParams = z.strictObject({ provider: z.string() });

const changeable = {
  scheduleHours: z.int().min(1).max(720).meta({
    description: "How often the target is looked at, in hours. A new version is copied at once when it is heard of.",
  }),
  enabled: z.boolean().meta({ description: "false pauses the record." }),
  onDrift: z.enum(ON_DRIFT).meta({
    description:
      "What becomes of a target that somebody else changed or deleted: `overwrite` mends it, `report` only says so.",
  }),
  adopt: z.boolean().meta({
    description: "Takes over a target that exists and was not made by this record: its value is overwritten.",
  }),
};

const place = {
  sourceVault: z
    .string()
    .min(1)
    .max(256)
    .meta({ description: "A key vault of the inventory, by its name or address.", example: "kv-payments-prod" }),
  sourceSecret: z
    .string()
    .regex(/^[0-9a-zA-Z-]{1,127}$/, "must be a secret's name: 1 to 127 letters, digits and hyphens")
    .meta({ description: "The secret's name there.", example: "sql-password" }),
  targetProvider,
  targetService: z
    .string()
    .min(1)
    .max(64)
    .meta({ description: `The service of the provider. ${services}.` }),
  targetName: z
    .string()
    .min(1)
    .max(2048)
    .meta({ description: "The secret's name there.", example: "payments/sql-password" }),
  targetRegion: z.string().min(1).max(256).meta({
    description:
      "Where in the provider: a region such as eu-west-1; for azure the name of the key vault to write to. Left out, the one that the provider is configured with.",
    example: "eu-west-1",
  }),
};

export const NewSyncRecord = z
  .strictObject({
    ...place,
    targetRegion: place.targetRegion.nullish(),
    scheduleHours: changeable.scheduleHours.default(24),
    enabled: changeable.enabled.default(true),
    onDrift: changeable.onDrift.default("overwrite"),
    adopt: changeable.adopt.default(false),
  })
  .meta({ id: "NewSyncRecord" });
export type NewSyncRecord = z.output<typeof NewSyncRecord>;

export const SyncRecordChange = z
  .strictObject({
    ...place,
    targetRegion: place.targetRegion.nullable(),
    ...changeable,
    confirmVaults: z.boolean().meta({
      description:
        "`true` accepts the key vaults that have the names of source and target now, after the record failed with `otherPlace`.",
    }),
  })
  .partial()
  .meta({
    id: "SyncRecordChange",
    description: "Any subset. Source and target stay what they are: another one is another record.",
  });
export type SyncRecordChange = z.output<typeof SyncRecordChange>;

const FailureView = z
  .object({
    code: z.string().meta({ example: "accessDenied" }),
    side: z
      .enum(["source", "target", "service"])
      .meta({ description: "Where it failed: at the source, at the target, or in this service." }),
    message: z.string(),
    remedy: z.string().meta({ description: "What to do about it." }),
    providerCode: z.string().nullable().meta({ description: "What the provider itself calls it." }),
    since: instant,
  })
  .meta({ id: "SyncFailure" });

const state = z.enum(STATES).meta({
  description:
    "`new`: not run yet. `inSync`: the target held the source's version at the last look. `pending`: a run is due. `drifted`: the target was changed by somebody else and is left so. `failing`: the last run failed. `paused`: not enabled.",
});
const drift = z.enum(["none", "found", "unknown"]).meta({
  description: "`unknown` where the provider can't tell what a target holds.",
});

const status = {
  recordId: z.string(),
  state,
  drift,
  lastCheckedAt: instant.nullable().meta({ description: "When a run last ended well." }),
  lastSyncedAt: instant.nullable().meta({ description: "When the target was last written." }),
  lastSourceVersion: z.string().nullable().meta({ description: "The version of the source that was last written." }),
  targetMark: z.string().nullable().meta({
    description: "The mark it was written under, which follows from the record and the source's version.",
  }),
  nextRunAt: instant.nullable(),
  failure: FailureView.nullable(),
};

export const SyncRecordView = z
  .object({
    ...status,
    ...place,
    targetRegion: z
      .string()
      .nullable()
      .meta({ description: "Where in the provider; null: where the provider is configured to.", example: "eu-west-1" }),
    ...changeable,
    targetOwned: z.boolean().meta({ description: "Whether this record made the target or took it over." }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "SyncRecord" });

export const SyncStatus = z
  .object({
    ...status,
    running: z.boolean().meta({ description: "Whether a run is under way now." }),
    failedRuns: z.int().meta({ description: "Runs in a row that failed." }),
    etag: z.string(),
  })
  .meta({ id: "SyncStatus" });

export const SyncTriggered = z
  .object({ recordId: z.string(), state, nextRunAt: instant.nullable() })
  .meta({ id: "SyncTriggered" });

export const SyncPlan = z
  .object({
    recordId: z.string(),
    action: z.enum(["none", "write", "restore", "report", "blocked"]).meta({
      description:
        "`write`: the source's value would be written. `restore`: the version that holds it would be made current again, without a value. `report`: the target differs and would be left. `blocked`: see failure.",
    }),
    reason: z.string().meta({ description: "Why, in a sentence." }),
    undelete: z.boolean().meta({ description: "The target is deleted and would be brought back first." }),
    adopt: z.boolean().meta({ description: "The target is not ours and would be taken over first." }),
    sourceVersion: z
      .string()
      .nullable()
      .meta({ description: "The newest version of the source; null where it can't be read." }),
    target: z
      .object({
        exists: z.boolean().meta({ description: "Whether there is such a target." }),
        ownedBy: z.string().nullable().meta({ description: "The sync record whose mark it carries." }),
        holdsSourceVersion: z.boolean().nullable().meta({ description: "null where the provider can't tell." }),
        deletedUntil: z
          .string()
          .nullable()
          .meta({ description: "Until when a deleted target can be brought back; null where it is not deleted." }),
      })
      .nullable(),
    failure: FailureView.omit({ since: true }).nullable(),
  })
  .meta({ id: "SyncPlan" });

export const SyncEntryView = z
  .object({
    entryId: z.string(),
    recordId: z.string(),
    kind: z.enum(ENTRY_KINDS).meta({ description: "What happened." }),
    at: instant,
    source: z.string().meta({ description: "The key vault's secret, as `<vault>/<secret>`." }),
    target: z.string(),
    sourceVersion: z
      .string()
      .nullable()
      .meta({ description: "The version of the source that it was about; null where none was." }),
    targetVersion: z
      .string()
      .nullable()
      .meta({ description: "What the provider calls the version that was written; null where nothing was." }),
    failure: FailureView.nullable(),
  })
  .meta({ id: "SyncHistoryEntry" });

/** Every member that any provider is configured with; which ones belong together, the provider's own schema says. */
const members = new Map<string, z.ZodType[]>();
for (const { configuration } of PROVIDERS) {
  for (const [name, schema] of Object.entries(configuration.shape as Record<string, z.ZodType>)) {
    // What a provider takes for a member that is left out is no other provider's.
    const given = schema instanceof z.ZodDefault ? (schema.unwrap() as z.ZodType) : schema;
    members.set(name, [...(members.get(name) ?? []), given]);
  }
}
const secretNames = new Set(PROVIDERS.flatMap(({ secretMembers }) => secretMembers));
const described = PROVIDERS.map(
  ({ id, configuration }) => `\`${id}\`: ${Object.keys(configuration.shape).join(", ") || "none"}`,
);

export const ProviderChange = z
  .strictObject({
    ...Object.fromEntries(
      [...members].map(([name, schemas]) => {
        const [first, ...others] = schemas as [z.ZodType, ...z.ZodType[]];
        const member = (others.length > 0 ? z.union(schemas) : first).optional();
        const description = [...new Set(schemas.map((schema) => schema.description ?? ""))].join(" ").trim();
        return [
          name,
          member.meta({ ...(description && { description }), ...(secretNames.has(name) && { writeOnly: true }) }),
        ];
      }),
    ),
    expiresOn: instant.nullable().optional().meta({
      description:
        "When the credentials end, where that is known: the alert serviceCredentialExpiry tells of it before. Left out, the end of the saved credentials stays; null takes it away.",
    }),
  })
  .meta({
    id: "SyncProviderChange",
    description: `What the provider takes: ${described.join("; ")}. Members that are secret may be left out to keep the saved ones, unless a member changes that decides where they are sent.`,
  });
export type ProviderChange = z.output<typeof ProviderChange> & Record<string, unknown>;

export const ProviderView = z
  .object({
    provider: z.string().meta({ description: "The provider's id." }),
    title: z.string(),
    services: z.array(z.string()).meta({ description: "Its services that can be a targetService." }),
    configured: z.boolean().meta({ description: "True too where there is nothing to configure." }),
    settings: z
      .record(z.string(), z.unknown())
      .meta({ description: "What it is configured with, without its secrets." }),
    secretsSet: z.array(z.string()).meta({ description: "The secret members that are set; never a value." }),
    expiresOn: instant.nullable(),
    refusedAt: instant.nullable().meta({
      description: "When the provider refused the credentials. They are not tried again until they change.",
    }),
    checkedAt: instant.nullable().meta({ description: "When the credentials were last tried; null before." }),
    updatedAt: instant.nullable(),
    updatedBy: z.string().nullable(),
    etag: z.string().nullable(),
  })
  .meta({ id: "SyncProvider" });
export const ProviderList = z.object({ items: z.array(ProviderView) }).meta({ id: "SyncProviderList" });

export const recordQuery = z.strictObject({
  state: z.enum(STATES).optional(),
  target_provider: targetProvider.optional(),
  source_vault: z.string().max(256).optional(),
  source_secret: z.string().max(127).optional(),
  ...pageParameters,
});

const failureView = (failure: SyncRecord["failure"]) =>
  failure ? { ...failure, providerCode: failure.providerCode ?? null } : null;

function statusOf(record: SyncRecord) {
  const marks = providerOf(record.targetProvider)?.services[record.targetService]?.marks ?? true;
  return {
    recordId: record.recordId,
    state: stateOf(record),
    drift: !marks ? ("unknown" as const) : record.state === "drifted" ? ("found" as const) : ("none" as const),
    lastCheckedAt: record.lastCheckedAt ?? null,
    lastSyncedAt: record.lastSyncedAt ?? null,
    lastSourceVersion: record.lastSourceVersion ?? null,
    targetMark: record.targetMark ?? null,
    nextRunAt: record.nextRunAt ?? null,
    failure: failureView(record.failure),
  };
}

export function recordView(record: SyncRecordRow): z.infer<typeof SyncRecordView> {
  const { sourceVault, sourceSecret, targetProvider, targetService, targetName, targetRegion = null } = record;
  const { scheduleHours, enabled, onDrift, adopt, targetOwned, createdAt, createdBy, updatedAt, updatedBy } = record;
  const ends = { sourceVault, sourceSecret, targetProvider, targetService, targetName, targetRegion };
  const rest = { targetOwned, createdAt, createdBy, updatedAt, updatedBy, etag: entityTag(record) };
  return { ...statusOf(record), ...ends, scheduleHours, enabled, onDrift, adopt, ...rest };
}

export const statusView = (record: SyncRecordRow, running: boolean): z.infer<typeof SyncStatus> => ({
  ...statusOf(record),
  running,
  failedRuns: record.failedRuns,
  etag: entityTag(record),
});

export const triggeredView = (record: SyncRecord): z.infer<typeof SyncTriggered> => ({
  recordId: record.recordId,
  state: stateOf(record),
  nextRunAt: record.nextRunAt ?? null,
});

export const planView = (recordId: string, planned: Planned): z.infer<typeof SyncPlan> => {
  const { decision, source, state, holds, failure } = planned;
  return {
    recordId,
    action: decision?.action ?? "blocked",
    reason: decision?.why ?? failure?.message ?? "",
    undelete: decision?.undelete ?? false,
    adopt: decision?.adopt ?? false,
    sourceVersion: source ?? null,
    target: state
      ? {
          exists: state.exists,
          ownedBy: state.ownedBy ?? null,
          holdsSourceVersion: holds ?? null,
          deletedUntil: state.deletedUntil ?? null,
        }
      : null,
    failure: failure ? { ...failure, providerCode: failure.providerCode ?? null } : null,
  };
};

export const entryView = (entry: SyncEntry): z.infer<typeof SyncEntryView> => {
  const { entryId, recordId, kind, at, source, target, sourceVersion = null, targetVersion = null } = entry;
  return {
    entryId,
    recordId,
    kind,
    at,
    source,
    target,
    sourceVersion,
    targetVersion,
    failure: failureView(entry.failure),
  };
};

export function providerView(id: string, found: Row<ProviderConfiguration> | undefined): z.infer<typeof ProviderView> {
  const { title, services: all, secretMembers } = providerOf(id)!;
  return {
    provider: id,
    title,
    services: Object.keys(all),
    configured: found !== undefined || secretMembers.length === 0,
    settings: found?.settings ?? {},
    secretsSet: found?.secretsSet ?? [],
    expiresOn: found?.expiresOn ?? null,
    refusedAt: found?.refused?.at ?? null,
    checkedAt: found?.checkedAt ?? null,
    updatedAt: found?.updatedAt ?? null,
    updatedBy: found?.updatedBy ?? null,
    etag: found ? entityTag(found) : null,
  };
}
