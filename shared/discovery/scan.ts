import * as z from "zod";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { entity } from "../platform/storage/entity.ts";

export const SCAN_MODES = ["full", "delta", "force"] as const;
export type ScanMode = (typeof SCAN_MODES)[number];

/** `queued → running →` one of the others. `cancelled` is the contract's DELETE on a scan. */
export const SCAN_STATUSES = ["queued", "running", "completed", "partial", "failed", "timedOut", "cancelled"] as const;
export type ScanStatus = (typeof SCAN_STATUSES)[number];
export const isOver = (status: ScanStatus): boolean => status !== "queued" && status !== "running";

const counts = z.object({ certificate: z.int(), key: z.int(), secret: z.int() });

/** What a scan found and changed, in all or in one vault. */
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
  /** What the resource manager calls it; absent where it was not asked, or in rows of earlier versions. */
  name: z.string().optional(),
  vaults: z.int(),
  failure: VaultFailure.optional(),
});

/** Stands for the id of a subscription whose entry in the list of subscriptions could not be read. */
export const UNREADABLE_SUBSCRIPTION = "unreadable";

type SubscriptionOutcome = z.infer<typeof SubscriptionOutcome>;

/** Subscriptions that a scan could not read: nothing is known of the vaults in them. */
export const unreadSubscriptions = (outcomes: readonly SubscriptionOutcome[]): SubscriptionOutcome[] =>
  outcomes.filter(({ failure }) => failure !== undefined);

/** Names a subscription of a scan for people, such as `Payments (8a31…)`. */
export function subscriptionTitle({ subscriptionId, name }: SubscriptionOutcome): string {
  if (subscriptionId === UNREADABLE_SUBSCRIPTION) return "an entry in the list of subscriptions";
  return name === undefined ? subscriptionId : `${name} (${subscriptionId})`;
}

export const ScanRecord = z.object({
  scanId: z.string(),
  mode: z.enum(SCAN_MODES),
  /** As asked for; undefined for all. */
  subscriptions: z.array(z.string()).optional(),
  status: z.enum(SCAN_STATUSES),
  trigger: z.enum(["api", "schedule"]),
  requestedBy: z.string(),
  requestId: z.string(),
  createdAt: z.string(),
  /** Who plans it: another one at each step, so that of two planners only one goes on. */
  planner: z.string().optional(),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  /** The instant `discoveryScanTimeout` ends it. */
  deadline: z.string().optional(),
  cancelledBy: z.string().optional(),
  vaultsTotal: z.int(),
  subscriptionOutcomes: z.array(SubscriptionOutcome),
  /** Why the whole scan failed, when it never came to its vaults. */
  failure: VaultFailure.optional(),
  /** Filled when it is over; while it runs the vaults' rows are counted. */
  vaultsDone: z.int().optional(),
  vaultsFailed: z.int().optional(),
  tally: Tally.optional(),
  /** How it ends, once that is decided and until all of its end is written. */
  ending: z
    .object({
      status: z.enum(SCAN_STATUSES),
      finishedAt: z.string(),
      vaultsDone: z.int(),
      vaultsFailed: z.int(),
      tally: Tally,
      failure: VaultFailure.optional(),
      /** The id of its entry in the audit log. */
      entryId: z.string(),
    })
    .optional(),
});
export type ScanRecord = z.infer<typeof ScanRecord>;

/** The scan itself in its own partition, and a copy under `scans`, newest first, for the list. */
export const Scans = entity("Scans", ScanRecord);

/** A vault of a scan's plan: all the worker needs, so that it asks the resource manager nothing again. */
export const PlannedVault = z.object({
  name: z.string(),
  subscriptionId: z.string(),
  /**
   * `remove`: missing from a complete listing. `skip`: failed lately, its back-off is not over. `fail`: the resource
   * manager's description of it could not be read.
   */
  action: z.enum(["scan", "remove", "skip", "fail"]),
  /** The resource manager's description; for `scan` and `skip`. */
  resource: z.record(z.string(), z.unknown()).optional(),
  /**
   * When the resource manager was asked for that description, or for the listing that lacks it, by the store's clock.
   * Absent in plans of a version before.
   */
  listedAt: z.string().optional(),
  /** For `fail`. */
  failure: VaultFailure.optional(),
  /** Of a claimed one: true while a worker has it in hand and renews the row; else its message waits in the queue. */
  begun: z.boolean().optional(),
  /** Of a claimed one: who has, or had, it in hand: `plan` for the scan's first message, else the index in the worker's message. */
  worker: z.string().optional(),
});
export type PlannedVault = z.infer<typeof PlannedVault>;
export const PlannedVaults = entity("Scans", PlannedVault);

export const VAULT_OUTCOMES = ["succeeded", "partial", "failed", "skipped", "removed"] as const;

/** At most this many changed assets are named per vault; the counts stay whole. */
export const MAX_NAMED_CHANGES = 1000;

export const VaultOutcome = z.object({
  vaultName: z.string(),
  subscriptionId: z.string(),
  outcome: z.enum(VAULT_OUTCOMES),
  /** Per list that could not be read; `vault` for the vault as a whole, `rotationPolicies` for those of keys. */
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
 * A scan's partition: the scan, then its vaults by state. A vault changes state by moving from one prefix to the next in
 * one transaction, so that one range answers what is left to do.
 */
export const scanPartition = (scanId: string): string => `scan:${scanId}`;
export const SCAN_ROW = "0";
export const waitingKey = (index: string): string => `1!${index}`;
export const claimedKey = (index: string): string => `2!${index}`;
/** Of a claimed one whose worker has read it and claimed another in its place: whoever ends this one claims none. */
export const handedOnKey = (index: string): string => `${HANDED_ON}${index}`;
export const isHandedOn = (rowKey: string): boolean => rowKey.startsWith(HANDED_ON);
export const doneKey = (index: string): string => `3!${index}`;
/** A vault's place in the plan, as its rows' keys and its messages have it. */
export const indexAt = (place: number): string => String(place).padStart(6, "0");
export const indexOf = (rowKey: string): string => rowKey.slice(2);
export const WAITING = "1!";
export const CLAIMED = "2!";
/** Among the claimed ones. */
const HANDED_ON = "2~";
export const DONE = "3!";
/** After every key of the three states. */
export const BEYOND = "4";

/**
 * Scans that are queued or running, in one row: what a new scan would overlap with, and how many workers are out. Beside
 * them those that look at a vault between scans.
 */
export const ActiveScans = entity(
  "Scans",
  z.object({
    scans: z.array(
      z.object({
        scanId: z.string(),
        mode: z.enum(SCAN_MODES),
        subscriptions: z.array(z.string()).optional(),
        /** Vaults this scan may have claimed at once, beside those that are handed on; 0 until it is planned. */
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
          /** Renewed while it looks; beyond it the worker is dead. */
          until: z.string(),
        }),
      )
      .default([]),
    /** Whether a look was refused since the last scan left. Absent in rows of a version before. */
    looksWait: z.boolean().optional(),
  }),
);
export const ACTIVE = "active";

/** The scan that an empty store starts by itself, claimed before it is started, so that only one instance starts it. */
export const FirstScan = z.object({
  /** Id of no scan where the store had scans already. */
  scanId: z.string(),
  /** False until the store has a scan. */
  started: z.boolean(),
});
export type FirstScan = z.infer<typeof FirstScan>;
export const FirstScans = entity("Scans", FirstScan);
export const FIRST = "first";

/** The list of scans is read newest first, so its keys count down. */
export const SCAN_LIST = "scans";

/** The queues of a scan, in the order a scan passes them. */
export const QUEUES = {
  start: "scan-start",
  plan: "scan-plan",
  vaults: "scan-vaults",
  finish: "scan-finish",
} as const;

export const StartMessage = z.object({ mode: z.enum(["full", "delta"]) });
export const ScanMessage = z.object({ scanId: z.string() });
export const VaultMessage = z.object({ scanId: z.string(), index: z.string() });
