/**
 * Records, row keys and messages of scans. A scan reads all vaults of the chosen subscriptions; its plan is the list of these
 * vaults.
 */
import * as z from "zod";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { VaultDescription, VaultFailure } from "../inventory/vault.ts";
import { entity } from "../platform/storage/entity.ts";

/**
 * All modes read all lists. `delta` reads the details of new and changed assets, `full` also the details that are due and the
 * diagnostic settings. `force` is a full scan that also reads vaults in back-off, and starts although another scan of the same
 * subscriptions is active.
 */
export const SCAN_MODES = ["full", "delta", "force"] as const;
export type ScanMode = (typeof SCAN_MODES)[number];

/** A scan is `queued`, then `running`, then has one of the final statuses. Canceling it leads to `cancelled`. */
export const SCAN_STATUSES = ["queued", "running", "completed", "partial", "failed", "timedOut", "cancelled"] as const;
export type ScanStatus = (typeof SCAN_STATUSES)[number];
export const hasEnded = (status: ScanStatus): boolean => status !== "queued" && status !== "running";

const counts = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });

/** Numbers of assets that a scan found and changed, in total or in one vault. */
export const Tally = z.object({
  found: counts.meta({ description: "Numbers of listed assets by type." }),
  added: z.int(),
  updated: z.int(),
  removed: z.int(),
});
export type Tally = z.infer<typeof Tally>;

export const emptyTally = (): Tally => ({
  found: { certificate: 0, key: 0, secret: 0 },
  added: 0,
  updated: 0,
  removed: 0,
});

export function addTally(total: Tally, part: Tally): void {
  for (const type of ASSET_TYPES) total.found[type] += part.found[type];
  total.added += part.added;
  total.updated += part.updated;
  total.removed += part.removed;
}

const SubscriptionOutcome = z.object({
  subscriptionId: z.string(),
  /** Display name in Azure. Absent if the scan did not read it, or in rows of earlier versions. */
  name: z.string().optional(),
  vaults: z.int(),
  failure: VaultFailure.optional(),
});

/** ID that stands for a subscription whose entry in the list of subscriptions could not be read. */
export const UNREADABLE_SUBSCRIPTION = "unreadable";

type SubscriptionOutcome = z.infer<typeof SubscriptionOutcome>;

/** Returns the subscriptions that a scan could not read. Their vaults are unknown. */
export const unreadSubscriptions = (outcomes: readonly SubscriptionOutcome[]): SubscriptionOutcome[] =>
  outcomes.filter(({ failure }) => failure !== undefined);

/** Returns a subscription's title for people, such as `Payments (8a31…)`. */
export function subscriptionTitle({ subscriptionId, name }: SubscriptionOutcome): string {
  if (subscriptionId === UNREADABLE_SUBSCRIPTION) return "an entry in the list of subscriptions";
  return name === undefined ? subscriptionId : `${name} (${subscriptionId})`;
}

export const ScanRecord = z.object({
  scanId: z.string(),
  mode: z.enum(SCAN_MODES),
  /** Subscriptions of the request. Undefined for all. */
  subscriptions: z.array(z.string()).optional(),
  status: z.enum(SCAN_STATUSES),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  createdAt: z.string(),
  /**
   * ID of the worker's last step of planning. It changes with each step, so that only one of two concurrent planners can
   * continue.
   */
  planner: z.string().optional(),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  /** Time at which `discoveryScanTimeout` ends the scan. */
  deadline: z.string().optional(),
  cancelledBy: z.string().optional(),
  vaultsTotal: z.int(),
  subscriptionOutcomes: z.array(SubscriptionOutcome),
  /** Reason of a scan that failed before it read any vault. */
  failure: VaultFailure.optional(),
  /** Set when the scan has ended. Before that, the vaults' rows are counted. */
  vaultsDone: z.int().optional(),
  vaultsFailed: z.int().optional(),
  tally: Tally.optional(),
  /** The decided end of the scan. Present until the end is written completely. */
  ending: z
    .object({
      status: z.enum(SCAN_STATUSES),
      finishedAt: z.string(),
      vaultsDone: z.int(),
      vaultsFailed: z.int(),
      tally: Tally,
      failure: VaultFailure.optional(),
      /** ID of its audit entry. */
      entryId: z.string(),
    })
    .optional(),
});
export type ScanRecord = z.infer<typeof ScanRecord>;

/** Rows of scans: one in the scan's own partition, and a copy in the partition `SCAN_LIST`, newest first. */
export const Scans = entity("Scans", ScanRecord);

/** A vault of a scan's plan, with the resource manager's description that the worker needs. */
export const PlannedVault = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  /**
   * `remove`: missing from a complete listing. `skip`: failed recently, in back-off. `fail`: its description could not be read.
   */
  action: z.enum(["scan", "remove", "skip", "fail"]),
  /** The resource manager's description. For `scan` and `skip`. */
  resource: VaultDescription.optional(),
  /**
   * When the description, or the listing that lacks the vault, was requested, by the clock of the storage. Absent in rows of
   * earlier versions.
   */
  listedAt: z.string().optional(),
  /** For `fail`. */
  failure: VaultFailure.optional(),
  /**
   * Undefined until a worker claims the vault. For a claimed vault: true while a worker scans the vault and renews its row,
   * false while the vault's message waits in the queue. See the table of states in vault-states.ts.
   */
  begun: z.boolean().optional(),
  /**
   * For claimed vaults: the last worker. A worker is the handling of one message, and is named after it: `plan` for the message
   * that plans the scan, otherwise the index in its `VaultMessage`, the position of the first vault that the worker scans.
   */
  worker: z.string().optional(),
});
export type PlannedVault = z.infer<typeof PlannedVault>;
export const PlannedVaults = entity("Scans", PlannedVault);

export const VAULT_OUTCOMES = ["succeeded", "partial", "failed", "skipped", "removed"] as const;

/** Maximum number of changed assets listed per vault. The counts include all. */
export const MAX_NAMED_CHANGES = 1000;

export const VaultOutcome = z.object({
  vaultName: z.string(),
  subscriptionId: z.string(),
  outcome: z.enum(VAULT_OUTCOMES),
  /** One per list that could not be read: `vault` for the whole vault, `rotationPolicies` for those of keys. */
  failures: z.array(VaultFailure.extend({ list: z.string() })),
  tally: Tally,
  added: z.array(z.string()),
  updated: z.array(z.string()),
  removed: z.array(z.string()),
  finishedAt: z.string(),
});
export type VaultOutcome = z.infer<typeof VaultOutcome>;
export const VaultOutcomes = entity("Scans", VaultOutcome);

/**
 * A scan's partition has the scan and then its vaults, grouped by state. A vault changes its state by moving from one key
 * prefix to the next in one transaction, so that one range query returns the remaining vaults. Row keys, in their order:
 * - `0`: the scan itself
 * - `1!<index>`: a vault that waits
 * - `2!<index>`: a vault that a worker has claimed
 * - `2~<index>`: a claimed vault that is handed off (`handedOffKey`)
 * - `3!<index>`: a finished vault, with its outcome
 */
export const scanPartition = (scanId: string): string => `scan:${scanId}`;
export const SCAN_ROW = "0";
export const waitingKey = (index: string): string => `1!${index}`;
export const claimedKey = (index: string): string => `2!${index}`;
/**
 * Key of a claimed vault that was read and is being written while its worker has claimed another vault. The worker that
 * finishes it claims no further vault.
 */
export const handedOffKey = (index: string): string => `${HANDED_OFF}${index}`;
export const isHandedOff = (rowKey: string): boolean => rowKey.startsWith(HANDED_OFF);
export const doneKey = (index: string): string => `3!${index}`;
/** Returns a vault's position in the plan as six digits, for row keys and messages. */
export const indexText = (position: number): string => String(position).padStart(6, "0");
export const indexOf = (rowKey: string): string => rowKey.slice(2);
export const WAITING = "1!";
export const CLAIMED = "2!";
/** Prefix that sorts after other claimed vaults and before finished ones. */
const HANDED_OFF = "2~";
export const DONE = "3!";
/** Sorts after every key of the three states. */
export const AFTER_DONE = "4";

/** All queued and running scans in one row, to detect overlaps and count workers, and the single-vault re-scans (`looks`). */
export const ActiveRow = z.object({
  scans: z.array(
    z.object({
      scanId: z.string(),
      mode: z.enum(SCAN_MODES),
      subscriptions: z.array(z.string()).optional(),
      /** Number of workers, each with one claimed vault. 0 until the scan is planned. */
      workers: z.int(),
      createdAt: z.string(),
    }),
  ),
  looks: z
    .array(
      z.object({
        worker: z.string(),
        subscriptionId: z.string(),
        otherSubscriptionIds: z.array(z.string()).optional(),
        /** End of the lease. After that the worker has crashed. */
        until: z.string(),
      }),
    )
    .default([]),
  /** True if a re-scan was denied a worker since the last scan ended. Absent in rows of earlier versions. */
  looksWait: z.boolean().optional(),
});
export type ActiveRow = z.infer<typeof ActiveRow>;
export const ActiveScans = entity("Scans", ActiveRow);
export const ACTIVE = "active";

/**
 * The claim of the first scan, which starts automatically if storage has no scan. The claim is inserted before the scan starts,
 * so that only one instance starts it.
 */
export const FirstScan = z.object({
  /** ID of the scan to start. If there were scans already, no scan has this ID. */
  scanId: z.string(),
  /** True once there is a scan. */
  started: z.boolean(),
});
export type FirstScan = z.infer<typeof FirstScan>;
export const FirstScans = entity("Scans", FirstScan);
export const FIRST = "first";

/** Partition of the list of scans. Its keys count down, so that it is read newest first. */
export const SCAN_LIST = "scans";

/** The queues of a scan, in the order of its steps. */
export const QUEUES = {
  start: "scan-start",
  plan: "scan-plan",
  vaults: "scan-vaults",
  finish: "scan-finish",
} as const;

export const StartMessage = z.object({ mode: z.enum(["full", "delta"]) });
export const ScanMessage = z.object({ scanId: z.string() });
export const VaultMessage = z.object({ scanId: z.string(), index: z.string() });
