import { createHash } from "node:crypto";
import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import { secretReference } from "../secrets/stored-secrets.ts";

/**
 * Rows of sync. A sync record copies a secret of a key vault (the source) to another vault or provider (the target). All rows
 * are in one partition. Their keys (IDs are ULIDs):
 *
 * | key | rows |
 * |---|---|
 * | `r\|<id>` | records |
 * | `t\|<provider>\|<service>\|<region>\|<hash of the name>` | index of records by target |
 * | `s\|<vault>\|<secret>\|<id>` | index of records by source |
 * | `d\|<time>\|<id>` | index of records by the time when they are due |
 * | `l\|<id>` | leases on records |
 * | `p\|<provider>` | configurations of providers |
 * | `h\|<id>\|<inverted entry ID>` | history entries by record, newest first |
 * | `o\|<entry ID>` | the same entries by time, oldest first |
 * | `n\|licence` | date of the last notice about a missing license |
 */

/** Partition of all rows of sync, so that a record and its index rows change in one transaction. */
export const SYNC = "sync";
const TABLE = "Sync";

/**
 * State after the last run. `pending`: a run is due. `drifted`: someone else changed the target, and the record only reports
 * that. A record that is not enabled is shown as `paused`.
 */
export const RUN_STATES = ["new", "inSync", "pending", "drifted", "failing"] as const;
export const STATES = [...RUN_STATES, "paused"] as const;
export type RecordState = (typeof STATES)[number];

/** What a run does with a target that someone else changed or deleted: restores it, or only reports it. */
export const ON_DRIFT = ["overwrite", "report"] as const;

/** Why the last run failed. */
const failure = z.object({
  /** A `SyncFailureCode`, a code of a `CloudFailure` of a vault, or `internal`. */
  code: z.string(),
  /** Where the cause is. */
  side: z.enum(["source", "target", "service"]),
  message: z.string(),
  remedy: z.string(),
  providerCode: z.string().optional(),
  /** Time of the first run with this failure. */
  since: z.string(),
});
export type RecordFailure = z.infer<typeof failure>;

/** A key vault as Azure Resource Manager reports it. Another ID or creation date means another vault. */
const vaultIdentity = z.object({
  /** Resource ID in lower case. */
  id: z.string(),
  /** ISO 8601. Absent if Azure Resource Manager reports none. */
  createdOn: z.string().optional(),
});
export type VaultIdentity = z.infer<typeof vaultIdentity>;

const syncRecord = z.object({
  recordId: z.string(),
  sourceVault: z.string(),
  sourceSecret: z.string(),
  targetProvider: z.string(),
  targetService: z.string(),
  targetName: z.string(),
  targetRegion: z.string().optional(),
  scheduleHours: z.number(),
  enabled: z.boolean(),
  onDrift: z.enum(ON_DRIFT),
  /** Takes over an existing target that this record did not create. */
  adopt: z.boolean(),
  state: z.enum(RUN_STATES),
  /** The record created the target or took it over. */
  targetOwned: z.boolean(),
  /**
   * Location of the target at the last run: the provider's `locationMembers` as JSON. The same name at another location is
   * another target.
   */
  place: z.string().optional(),
  /** Identity of the source vault and, for `azure`, of the target vault at the last successful run. */
  sourceIdentity: vaultIdentity.optional(),
  targetIdentity: vaultIdentity.optional(),
  /** Time when a user last confirmed the current vaults (`confirmVaults`). */
  vaultsConfirmedAt: z.string().optional(),
  /** Time of the last successful run, whether it wrote or not. */
  lastCheckedAt: z.string().optional(),
  /** Time of the last write to the target. */
  lastSyncedAt: z.string().optional(),
  /** Source version of the last write. */
  lastSourceVersion: z.string().optional(),
  /** The `markId` of the last write, which the target has beside its value if the provider stores marks. */
  targetMark: z.string().optional(),
  /**
   * The newest versions of the source, if several were created in the same second: Key Vault then does not say which is
   * current. While the versions are the same, `currentVersion` is the current one.
   */
  tiedVersions: z.string().optional(),
  currentVersion: z.string().optional(),
  failure: failure.optional(),
  failedRuns: z.number(),
  /** Time of the next run. Absent while the record is paused. The due row has this time in its key. */
  nextRunAt: z.string().optional(),
  /** Counts requests for an immediate run, so that a request during a run is not lost. */
  requests: z.number(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type SyncRecord = z.infer<typeof syncRecord>;
export type SyncRecordRow = Row<SyncRecord>;
/** Signed, because the record decides where a secret is sent. */
export const Records = entity(TABLE, syncRecord, { signed: true });

/** Finds a record by its target, which has only one record, and by its source. */
export const References = entity(TABLE, z.object({ recordId: z.string() }));

/** A row of any index, by its key alone. */
export const IndexKeys = entity(TABLE, z.object({}));

/** A record's row in the list of due records, earliest first. */
export const DueRows = entity(
  TABLE,
  z.object({
    /** Time of the last message for the record. In the future if the message was sent with a delay. */
    sentAt: z.string().optional(),
    /** True if the message of `sentAt` is a follow-up, which is sent after this row is written. */
    followUp: z.boolean().optional(),
    /** The record was tampered with, and its history has an entry about that. From then on the record is checked once a day. */
    aside: z.boolean().optional(),
  }),
);

/** Lease of a worker on a record. The age of the row decides whether the lease has expired. */
const lease = z.object({
  /** ID of the worker that has the lease. */
  owner: z.string(),
  /** The source version that is about to be written, and whether the target did not exist before. */
  writing: z.string().optional(),
  creating: z.boolean().optional(),
  /** The lease is released: its worker ended without an outcome. */
  free: z.boolean().optional(),
});
export type LeaseRecord = z.infer<typeof lease>;
export const Leases = entity(TABLE, lease);

/** Configuration of a provider. Its secrets are in the service's own key vault. */
const configuration = z.object({
  provider: z.string(),
  settings: z.record(z.string(), z.unknown()),
  secret: secretReference.optional(),
  /** Names of the secret members that are set. */
  secretsSet: z.array(z.string()),
  /** Expiry that an administrator entered. */
  expiresOn: z.string().optional(),
  /** When the provider rejected the credentials. Runs do not try them again until they change. */
  refused: z
    .object({
      at: z.string(),
      providerCode: z.string().optional(),
      /** The record whose run was rejected. Earlier versions did not write it. */
      recordId: z.string().optional(),
      /** The provider's address in the settings of the host that called it, or `public`. Earlier versions did not write it. */
      address: z.string().optional(),
    })
    .optional(),
  /** Changes with every change by a user. */
  revision: z.string(),
  createdAt: z.string(),
  checkedAt: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type ProviderConfiguration = z.infer<typeof configuration>;
/** Signed, because the configuration decides where a secret is sent. */
export const Configurations = entity(TABLE, configuration, { signed: true });

/**
 * Kinds of entries in the history of a record. Runs without changes have no entry. `created`: first write of the target.
 * `updated`: write of a new version. `mended`: a target that someone else changed or deleted is restored. `recovered`: a run
 * after a failure succeeded without a write. `removed`: the record was deleted.
 */
export const ENTRY_KINDS = ["created", "updated", "mended", "driftFound", "failed", "recovered", "removed"] as const;
const entry = z.object({
  entryId: z.string(),
  recordId: z.string(),
  kind: z.enum(ENTRY_KINDS),
  at: z.string(),
  source: z.string(),
  target: z.string(),
  sourceVersion: z.string().optional(),
  targetVersion: z.string().optional(),
  failure: failure.optional(),
});
export type SyncEntry = z.infer<typeof entry>;
export const Entries = entity(TABLE, entry);

/** Date of the last audit entry about runs that were skipped because of a missing license. */
export const Notices = entity(TABLE, z.object({ day: z.string() }));
export const LICENCE_NOTICE = "n|licence";

export const RECORD_PREFIX = "r|";
export const TARGET_PREFIX = "t|";
/** Prefix of references by source. */
export const SOURCE_PREFIX = "s|";
export const DUE_PREFIX = "d|";
export const CONFIGURATION_PREFIX = "p|";
/** Prefix of all entries, oldest first. */
export const ENTRY_PREFIX = "o|";

export const recordKey = (recordId: string): string => RECORD_PREFIX + recordId;
export const leaseKey = (recordId: string): string => `l|${recordId}`;
export const dueKey = (nextRunAt: string, recordId: string): string => `${DUE_PREFIX}${nextRunAt}|${recordId}`;
export const configurationKey = (provider: string): string => CONFIGURATION_PREFIX + provider;
export const sourcePrefix = (vault: string, secret: string): string =>
  `${SOURCE_PREFIX}${keyText(vault.toLowerCase())}|${keyText(secret.toLowerCase())}|`;
export const sourceKey = ({ sourceVault, sourceSecret, recordId }: SyncRecord): string =>
  sourcePrefix(sourceVault, sourceSecret) + recordId;
/** @param name - Normalized by `comparableName` of its service. */
export const targetKey = (provider: string, service: string, region: string | undefined, name: string): string =>
  `${TARGET_PREFIX}${[provider, service, (region ?? "").toLowerCase()].map(keyText).join("|")}|${hashOf(name)}`;
/** Hashed, because names may be longer than keys. */
const hashOf = (name: string): string => createHash("sha256").update(name).digest("hex");
export const entryPrefix = (recordId: string): string => `h|${recordId}|`;
export const entryKeys = ({ recordId, entryId }: SyncEntry): [byRecord: string, oldestFirst: string] => [
  entryPrefix(recordId) + newestFirst(entryId),
  ENTRY_PREFIX + entryId,
];

/** Returns the state that users see. */
export const stateOf = ({ enabled, state }: SyncRecord): RecordState => (enabled ? state : "paused");
export const isRecordId = isUlid;

/** Returns the source of a record as text for users. `targetOf` returns the target. */
export const sourceOf = ({ sourceVault, sourceSecret }: Pick<SyncRecord, "sourceVault" | "sourceSecret">): string =>
  `${sourceVault}/${sourceSecret}`;
export const targetOf = (record: SyncRecord): string =>
  [record.targetProvider, record.targetService, record.targetRegion, record.targetName].filter(Boolean).join("/");

/** Queue of records to run. A message is only a hint: the record's row decides whether the record is due. */
export const RUN_QUEUE = "sync-runs";
export const RunMessage = z.object({ recordId: z.string() });
/** Queue of providers whose configuration changed. Their failed records become due. */
export const CONFIGURED_QUEUE = "sync-configured";
export const ConfiguredMessage = z.object({ provider: z.string() });
