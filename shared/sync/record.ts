import { createHash } from "node:crypto";
import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import { secretReference } from "../secrets/stored-secrets.ts";

/** Rows of sync. All stand in one partition, so that a record changes with its place in every index in one transaction. */
export const SYNC = "sync";
const TABLE = "Sync";

/** What the last run found; `paused` is not among them: that is a record which is not enabled. */
export const RUN_STATES = ["new", "inSync", "pending", "drifted", "failing"] as const;
export const STATES = [...RUN_STATES, "paused"] as const;
export type RecordState = (typeof STATES)[number];

export const ON_DRIFT = ["overwrite", "report"] as const;

/** Why the last run failed. */
const failure = z.object({
  /** A `SyncFailureCode`, a code of a `CloudFailure` for the source's vault, or `internal`. */
  code: z.string(),
  /** Where it lies. */
  side: z.enum(["source", "target", "service"]),
  message: z.string(),
  remedy: z.string(),
  providerCode: z.string().optional(),
  /** The first run that failed like this. */
  since: z.string(),
});
export type RecordFailure = z.infer<typeof failure>;

/** A key vault as Azure Resource Manager knows it. Another ID or creation date means another vault. */
const vaultIdentity = z.object({
  /** Its resource id in lower case. */
  id: z.string(),
  /** ISO 8601; absent where Azure Resource Manager gives none. */
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
  /** Takes over a target that exists and is not ours. */
  adopt: z.boolean(),
  state: z.enum(RUN_STATES),
  /** We made the target, or took it over. */
  targetOwned: z.boolean(),
  /** Where the target was seen: the provider's `placeMembers` then, as JSON. Another place has another target. */
  place: z.string().optional(),
  /** Identity of the source vault and, for `azure`, of the target vault at the last successful run. */
  sourceIdentity: vaultIdentity.optional(),
  targetIdentity: vaultIdentity.optional(),
  /** Time when a person last confirmed the current vaults (`confirmVaults`). */
  vaultsConfirmedAt: z.string().optional(),
  /** When a run last ended well, written or not. */
  lastCheckedAt: z.string().optional(),
  /** When the target was last written. */
  lastSyncedAt: z.string().optional(),
  /** The source version the target was last written with. */
  lastSourceVersion: z.string().optional(),
  /** The `markId` it was written under. */
  targetMark: z.string().optional(),
  /**
   * The source's newest versions as they were then, where Key Vault does not say which of them is current: it dates them by
   * the second. As long as they are these, `currentVersion` is.
   */
  tiedVersions: z.string().optional(),
  currentVersion: z.string().optional(),
  failure: failure.optional(),
  failedRuns: z.number(),
  /** When it is due; absent while it is paused. Its row in the due index stands at this instant. */
  nextRunAt: z.string().optional(),
  /** Counts requests to run it at once, so that one that comes during a run is not taken for done. */
  requests: z.number(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type SyncRecord = z.infer<typeof syncRecord>;
export type SyncRecordRow = Row<SyncRecord>;
/** Signed, since it decides where a secret is sent. */
export const Records = entity(TABLE, syncRecord, { signed: true });

/** A record by another key: by its target, of which there is one, and by its source. */
export const References = entity(TABLE, z.object({ recordId: z.string() }));

/** A row of any index by its key alone, whatever it holds. */
export const IndexKeys = entity(TABLE, z.object({}));

/** A record's place among those that are due, the earliest first. */
export const DueRows = entity(
  TABLE,
  z.object({
    /** When its message was last sent. */
    sentAt: z.string().optional(),
    /** The record was tampered with, which was told: from then on it is looked at once a day. */
    aside: z.boolean().optional(),
  }),
);

/** One worker's hold on a record. How long it holds is told by the row's age. */
const lease = z.object({
  owner: z.string(),
  /** The source version that is about to be written, and whether nothing was there before. */
  writing: z.string().optional(),
  creating: z.boolean().optional(),
  /** Nobody holds it any more: the worker ended without an outcome. */
  free: z.boolean().optional(),
});
export type LeaseRecord = z.infer<typeof lease>;
export const Leases = entity(TABLE, lease);

/** What a provider is configured with; its secrets lie in the service's own key vault. */
const configuration = z.object({
  provider: z.string(),
  settings: z.record(z.string(), z.unknown()),
  secret: secretReference.optional(),
  /** Which secret members it holds. */
  secretsSet: z.array(z.string()),
  /** As an administrator says. */
  expiresOn: z.string().optional(),
  /** The provider refused the credentials: they are not tried again until they change. */
  refused: z.object({ at: z.string(), providerCode: z.string().optional() }).optional(),
  /** Changes with every change by people. */
  revision: z.string(),
  createdAt: z.string(),
  checkedAt: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type ProviderConfiguration = z.infer<typeof configuration>;
/** Signed, since it decides where a secret is sent. */
export const Configurations = entity(TABLE, configuration, { signed: true });

/** What happened to a record. Runs that found everything as it should be are not entered. */
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

/** When it was last said that due records are left alone for want of a licence. */
export const Notices = entity(TABLE, z.object({ day: z.string() }));
export const LICENCE_NOTICE = "n|licence";

export const RECORD_PREFIX = "r|";
export const TARGET_PREFIX = "t|";
/** Of references by source. */
export const SOURCE_PREFIX = "s|";
export const DUE_PREFIX = "d|";
export const CONFIGURATION_PREFIX = "p|";
/** Of all entries, the oldest first. */
export const ENTRY_PREFIX = "o|";

export const recordKey = (recordId: string): string => RECORD_PREFIX + recordId;
export const leaseKey = (recordId: string): string => `l|${recordId}`;
export const dueKey = (nextRunAt: string, recordId: string): string => `${DUE_PREFIX}${nextRunAt}|${recordId}`;
export const configurationKey = (provider: string): string => CONFIGURATION_PREFIX + provider;
export const sourcePrefix = (vault: string, secret: string): string =>
  `${SOURCE_PREFIX}${keyText(vault.toLowerCase())}|${keyText(secret.toLowerCase())}|`;
export const sourceKey = ({ sourceVault, sourceSecret, recordId }: SyncRecord): string =>
  sourcePrefix(sourceVault, sourceSecret) + recordId;
/** @param name - As `sameName` of its service writes it. */
export const targetKey = (provider: string, service: string, region: string | undefined, name: string): string =>
  `${TARGET_PREFIX}${[provider, service, (region ?? "").toLowerCase()].map(keyText).join("|")}|${hashOf(name)}`;
/** Names may be longer than keys. */
const hashOf = (name: string): string => createHash("sha256").update(name).digest("hex");
export const entryPrefix = (recordId: string): string => `h|${recordId}|`;
export const entryKeys = ({ recordId, entryId }: SyncEntry): [byRecord: string, oldestFirst: string] => [
  entryPrefix(recordId) + newestFirst(entryId),
  ENTRY_PREFIX + entryId,
];

export const stateOf = ({ enabled, state }: SyncRecord): RecordState => (enabled ? state : "paused");
export const isRecordId = isUlid;

/** Source and target as people name them. */
export const sourceOf = ({ sourceVault, sourceSecret }: Pick<SyncRecord, "sourceVault" | "sourceSecret">): string =>
  `${sourceVault}/${sourceSecret}`;
export const targetOf = (record: SyncRecord): string =>
  [record.targetProvider, record.targetService, record.targetRegion, record.targetName].filter(Boolean).join("/");

/** The queue of records to run: a hint to look at one; whether it is due stands in its row. */
export const RUN_QUEUE = "sync-runs";
export const RunMessage = z.object({ recordId: z.string() });
/** The queue of providers whose configuration changed: what failed for want of one is due again. */
export const CONFIGURED_QUEUE = "sync-configured";
export const ConfiguredMessage = z.object({ provider: z.string() });
