import * as z from "zod";
import { entityTag } from "../platform/http/conditional-requests.ts";
import { pageParameters } from "../platform/http/paging.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Planned } from "./decide.ts";
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

/** API schemas and views of sync records, their history and the configuration of providers. */

const instant = z.iso.datetime();
const providerIds = PROVIDERS.map(({ id }) => id) as [string, ...string[]];
const targetProvider = z.enum(providerIds).meta({ description: "Provider of the target." });
const servicesOfEachProvider = PROVIDERS.map(
  ({ id, services }) => `\`${id}\`: ${Object.keys(services).join(", ")}`,
).join("; ");

export const recordParams = z.strictObject({ record_id: z.string() });
export const providerParams = z.strictObject({ provider: z.string() });

const optionFields = {
  scheduleHours: z.int().min(1).max(720).meta({
    description: "Hours between checks of the target. New versions are copied as soon as the service learns of them.",
  }),
  enabled: z.boolean().meta({ description: "`false` pauses the record." }),
  onDrift: z.enum(ON_DRIFT).meta({
    description:
      "How to handle a target that someone else changed or deleted: `overwrite` restores it, `report` only reports it.",
  }),
  adopt: z.boolean().meta({
    description: "`true` takes over an existing target that this record did not create and overwrites its value.",
  }),
};

const sourceAndTargetFields = {
  sourceVault: z
    .string()
    .min(1)
    .max(256)
    .meta({ description: "Key vault of the inventory, by name or address.", example: "kv-payments-prod" }),
  sourceSecret: z
    .string()
    .regex(/^[0-9a-zA-Z-]{1,127}$/, "must be a secret's name: 1 to 127 letters, digits and hyphens")
    .meta({ description: "Name of the secret in the key vault.", example: "sql-password" }),
  targetProvider,
  targetService: z
    .string()
    .min(1)
    .max(64)
    .meta({ description: `Service of the provider. ${servicesOfEachProvider}.` }),
  targetName: z
    .string()
    .min(1)
    .max(2048)
    .meta({ description: "Name of the secret at the target.", example: "payments/sql-password" }),
  targetRegion: z.string().min(1).max(256).meta({
    description:
      "Location at the provider: a region such as eu-west-1, or for azure the name of the target key vault. Default: the location in the provider's configuration.",
    example: "eu-west-1",
  }),
};

export const NewSyncRecord = z
  .strictObject({
    ...sourceAndTargetFields,
    targetRegion: sourceAndTargetFields.targetRegion.nullish(),
    scheduleHours: optionFields.scheduleHours.default(24),
    enabled: optionFields.enabled.default(true),
    onDrift: optionFields.onDrift.default("overwrite"),
    adopt: optionFields.adopt.default(false),
  })
  .meta({ id: "NewSyncRecord" });
export type NewSyncRecord = z.output<typeof NewSyncRecord>;

export const SyncRecordChange = z
  .strictObject({
    ...sourceAndTargetFields,
    targetRegion: sourceAndTargetFields.targetRegion.nullable(),
    ...optionFields,
    confirmVaults: z.boolean().meta({
      description:
        "`true` accepts the key vaults that have the names of source and target now, after the record failed with `otherPlace`.",
    }),
  })
  .partial()
  .meta({
    id: "SyncRecordChange",
    description: "Any subset of the fields. Source and target can't be changed; create another record instead.",
  });
export type SyncRecordChange = z.output<typeof SyncRecordChange>;

const FailureView = z
  .object({
    code: z.string().meta({ example: "accessDenied" }),
    side: z
      .enum(["source", "target", "service"])
      .meta({ description: "Where the run failed: at the source, at the target, or in this service." }),
    message: z.string(),
    remedy: z.string().meta({ description: "How to fix the problem." }),
    providerCode: z.string().nullable().meta({ description: "Error code of the provider." }),
    since: instant,
  })
  .meta({ id: "SyncFailure" });

const state = z.enum(STATES).meta({
  description:
    "`new`: not run yet. `inSync`: the last check found the current version at the target. `pending`: a run is due. `drifted`: someone else changed the target, and it is left unchanged. `failing`: the last run failed. `paused`: disabled.",
});
const drift = z.enum(["none", "found", "unknown"]).meta({
  description: "`unknown` when the provider does not report what a target holds.",
});

const statusFields = {
  recordId: z.string(),
  state,
  drift,
  lastCheckedAt: instant.nullable().meta({ description: "Time of the last successful run." }),
  lastSyncedAt: instant.nullable().meta({ description: "Time of the last write to the target." }),
  lastSourceVersion: z.string().nullable().meta({ description: "Source version that was last written." }),
  targetMark: z.string().nullable().meta({
    description: "Ownership marker of the write, derived from the record and the source version.",
  }),
  nextRunAt: instant.nullable(),
  failure: FailureView.nullable(),
};

export const SyncRecordView = z
  .object({
    ...statusFields,
    ...sourceAndTargetFields,
    targetRegion: z.string().nullable().meta({
      description: "Location at the provider. Null: the location in the provider's configuration.",
      example: "eu-west-1",
    }),
    ...optionFields,
    targetOwned: z.boolean().meta({ description: "Whether this record created the target or took it over." }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "SyncRecord" });

export const SyncStatus = z
  .object({
    ...statusFields,
    running: z.boolean().meta({ description: "Whether a run is in progress." }),
    failedRuns: z.int().meta({ description: "Number of consecutive failed runs." }),
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
        "`write`: writes the value of the source. `restore`: makes the version with that value current again, without reading it. `report`: the target differs and is left unchanged. `blocked`: see failure.",
    }),
    reason: z.string().meta({ description: "Reason, in a sentence." }),
    undelete: z.boolean().meta({ description: "True when the target is deleted and would be recovered first." }),
    adopt: z
      .boolean()
      .meta({ description: "True when the target is not owned by this record and would be taken over first." }),
    sourceVersion: z
      .string()
      .nullable()
      .meta({ description: "Newest version of the source. Null when it can't be read." }),
    target: z
      .object({
        exists: z.boolean().meta({ description: "Whether the target exists." }),
        ownedBy: z
          .string()
          .nullable()
          .meta({ description: "Sync record that owns the target, from its ownership marker." }),
        holdsSourceVersion: z.boolean().nullable().meta({ description: "Null when the provider does not report it." }),
        deletedUntil: z
          .string()
          .nullable()
          .meta({ description: "Time until which a deleted target can be recovered. Null when it is not deleted." }),
      })
      .nullable(),
    failure: FailureView.omit({ since: true }).nullable(),
  })
  .meta({ id: "SyncPlan" });

export const SyncEntryView = z
  .object({
    entryId: z.string(),
    recordId: z.string(),
    kind: z.enum(ENTRY_KINDS).meta({ description: "Kind of event." }),
    at: instant,
    source: z.string().meta({ description: "Source secret, as `<vault>/<secret>`." }),
    target: z.string(),
    sourceVersion: z.string().nullable().meta({ description: "Source version. Null when the event has none." }),
    targetVersion: z
      .string()
      .nullable()
      .meta({ description: "Version ID at the provider. Null when nothing was written." }),
    failure: FailureView.nullable(),
  })
  .meta({ id: "SyncHistoryEntry" });

/**
 * The schemas of each configuration member of all providers, by member name. One schema of the API accepts all of them; the
 * provider's own schema then rejects members of other providers.
 */
const schemasByMember = new Map<string, z.ZodType[]>();
for (const { configuration } of PROVIDERS) {
  for (const [name, schema] of Object.entries(configuration.shape as Record<string, z.ZodType>)) {
    // Defaults are removed, because the default of one provider does not apply to another provider.
    const withoutDefault = schema instanceof z.ZodDefault ? (schema.unwrap() as z.ZodType) : schema;
    schemasByMember.set(name, [...(schemasByMember.get(name) ?? []), withoutDefault]);
  }
}
const secretMemberNames = new Set(PROVIDERS.flatMap(({ secretMembers }) => secretMembers));
const membersOfEachProvider = PROVIDERS.map(
  ({ id, configuration }) => `\`${id}\`: ${Object.keys(configuration.shape).join(", ") || "none"}`,
);

export const ProviderChange = z
  .strictObject({
    ...Object.fromEntries(
      [...schemasByMember].map(([name, schemas]) => {
        // Providers can share a schema.
        const [first, ...others] = [...new Set(schemas)] as [z.ZodType, ...z.ZodType[]];
        const member = (others.length > 0 ? z.union(schemas) : first).optional();
        const description = [...new Set(schemas.map((schema) => schema.description ?? ""))].join(" ").trim();
        return [
          name,
          member.meta({ ...(description && { description }), ...(secretMemberNames.has(name) && { writeOnly: true }) }),
        ];
      }),
    ),
    expiresOn: instant.nullable().optional().meta({
      description:
        "Expiry date of the credentials, for alerts of type serviceCredentialExpiry. If omitted, the saved date is kept; null removes it.",
    }),
  })
  .meta({
    id: "SyncProviderChange",
    description: `Configuration of the provider: ${membersOfEachProvider.join("; ")}. Secret fields can be omitted to keep the saved values, unless a field changes that decides where they are sent.`,
  });
export type ProviderChange = z.output<typeof ProviderChange> & Record<string, unknown>;

export const ProviderView = z
  .object({
    provider: z.string().meta({ description: "ID of the provider." }),
    title: z.string(),
    services: z.array(z.string()).meta({ description: "Services that can be used as targetService." }),
    configured: z.boolean().meta({ description: "True also if the provider needs no configuration." }),
    settings: z.record(z.string(), z.unknown()).meta({ description: "Configuration without secrets." }),
    secretsSet: z
      .array(z.string())
      .meta({ description: "Names of the secret fields that are set. Never their values." }),
    expiresOn: instant.nullable(),
    refusedAt: instant.nullable().meta({
      description: "Time when the provider rejected the credentials. They are not used again until they change.",
    }),
    checkedAt: instant
      .nullable()
      .meta({ description: "Time of the last test of the credentials. Null before the first." }),
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
  // A target that stores the mark of its value shows changes by others. Otherwise drift can't be detected.
  const storesMark = providerOf(record.targetProvider)?.services[record.targetService]?.storesMark ?? true;
  return {
    recordId: record.recordId,
    state: stateOf(record),
    drift: !storesMark ? ("unknown" as const) : record.state === "drifted" ? ("found" as const) : ("none" as const),
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
  const sourceAndTarget = { sourceVault, sourceSecret, targetProvider, targetService, targetName, targetRegion };
  const metadata = { targetOwned, createdAt, createdBy, updatedAt, updatedBy, etag: entityTag(record) };
  return { ...statusOf(record), ...sourceAndTarget, scheduleHours, enabled, onDrift, adopt, ...metadata };
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
  const { decision, source, state, holdsSourceVersion, failure } = planned;
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
          holdsSourceVersion: holdsSourceVersion ?? null,
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

export function providerView(id: string, row: Row<ProviderConfiguration> | undefined): z.infer<typeof ProviderView> {
  const { title, services: servicesByName, secretMembers } = providerOf(id)!;
  return {
    provider: id,
    title,
    services: Object.keys(servicesByName),
    configured: row !== undefined || secretMembers.length === 0,
    settings: row?.settings ?? {},
    secretsSet: row?.secretsSet ?? [],
    expiresOn: row?.expiresOn ?? null,
    refusedAt: row?.refused?.at ?? null,
    checkedAt: row?.checkedAt ?? null,
    updatedAt: row?.updatedAt ?? null,
    updatedBy: row?.updatedBy ?? null,
    etag: row ? entityTag(row) : null,
  };
}
