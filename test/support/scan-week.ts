import { randomUUID } from "node:crypto";
import pMap from "p-map";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { planVaults } from "../../shared/discovery/plan-vaults.ts";
import type { ScanMode } from "../../shared/discovery/scan.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import type { AssetRecord, AssetType } from "../../shared/inventory/asset.ts";
import { createInventoryWriter, type InventoryWriter } from "../../shared/inventory/write.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import type { Clock } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type ChangedAsset, createChangeKinds, type IsSeen, KINDS } from "./week-changes.ts";

/*
 * Simulates a week of scheduled scans while secrets, keys and certificates change, and reports how long each kind of change
 * remained undetected. Tests and benchmarks of scans call `runWeek`. A delta scan reads the lists of assets, and details of
 * assets that changed according to the lists. A full scan also reads details of unchanged assets.
 */

/** The scans of a day on the default schedules, with their hours after the full scan: one full scan and four delta scans. */
const DAILY_SCANS: readonly { mode: "full" | "delta"; hoursAfterFullScan: number }[] = [
  { mode: "full", hoursAfterFullScan: 0 },
  ...[4.5, 10.5, 16.5, 22.5].map((hoursAfterFullScan) => ({ mode: "delta" as const, hoursAfterFullScan })),
];
/** The time of day of the full scan, 01:30. */
const FULL_SCAN_TIME_MS = 1.5 * HOUR_MS;
const DAYS = 7;
/** Number of vaults that the simulated workers scan at the same time. */
const CONCURRENT_VAULTS = 4;
const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const log = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * The company of the measured week: a third of the company in measured-company.ts, and 500 changes, the number for which the
 * project promises its detection times.
 */
export const WHOLE_WEEK = { vaults: 12, secrets: 90, keys: 20, certificates: 30, changes: 500 };

export interface WeekOptions {
  connectionString: string;
  vaults: number;
  /** Number of assets in each vault. */
  secrets: number;
  keys: number;
  certificates: number;
  /** Number of changes over the week. */
  changes: number;
}

/** The changes of one kind during the week. "Seen" means detected by a scan. */
export interface ChangesSeen {
  /** Number of changes. */
  made: number;
  /** Hours from a change to the scan that detected the last change of the kind. */
  longestHours: number;
}

export interface WeekOutcome {
  /** The changes by kind. */
  seen: Record<string, ChangesSeen>;
  /** Changes that no scan of the week or of the following week detected. */
  unseen: string[];
  /** Number of Key Vault operations of the week's scans. */
  operations: number;
  /** For comparison: number of Key Vault operations of the same scans if each full scan read the details of every asset. */
  whole: number;
}

/** A change that no scan has detected yet. */
interface PendingChange extends ChangedAsset {
  kind: string;
  /** Time of the change in milliseconds. */
  at: number;
  isSeen: IsSeen;
}

/**
 * Runs the scheduled scans of seven days while the company changes before each scan, and then daily full scans until every
 * change is detected. The clocks of the scans and of the cloud are moved.
 */
export async function runWeek(options: WeekOptions): Promise<WeekOutcome> {
  const { secrets, keys, certificates } = options;
  const vaults = Array.from({ length: options.vaults }, (_, at) => ({
    name: `kv-week-${at}`,
    generate: { secrets, keys, certificates },
  }));
  const company = { subscriptions: [{ id: SUBSCRIPTION, name: "Week", vaults }] };
  const { cloud, config } = await startTestCloud({ company });
  const { control } = cloud;
  try {
    const services = { config, identity: createIdentity(config), log };
    const storeClock = createStoreClock();
    let aheadMs = 0;
    const clock = { now: () => new Date(storeClock.now().getTime() + aheadMs) };
    const tables = createTables({ connectionString: options.connectionString }, { clock: storeClock });
    const writer = createInventoryWriter({ tables, clock });
    const resourceManager = createResourceManager(services);
    const deps = {
      writer,
      keyVaults: createKeyVaults(services),
      resourceManager,
      clock,
      ownerTag: "owner",
      detailRefreshDays: config.DETAIL_REFRESH_DAYS,
      renewalInformation: createRenewalInformation({ config: { ARI_DIRECTORIES: [] }, clock }),
      log,
      // Writes nothing: in the service, this callback writes the compliance results of changed assets.
      prepareChange: async () => async () => {},
    };
    /** Moves the clocks of the scans and of the cloud to this time. */
    const moveTo = (timeMs: number) => {
      const byMs = Math.max(0, timeMs - clock.now().getTime());
      aheadMs += byMs;
      control.moveClock(byMs);
    };
    const countOperations = () =>
      Object.entries(control.counts()).reduce(
        (sum, [name, count]) => sum + (name.startsWith("keyvault.") ? count : 0),
        0,
      );

    /** Scans all vaults, and returns the number of Key Vault operations of the scan. */
    async function scan(mode: ScanMode, scheduled: boolean): Promise<number> {
      const countBefore = countOperations();
      const signal = AbortSignal.timeout(HOUR_MS);
      const watched = async () => ({ all: false, named: [SUBSCRIPTION], discovered: [] });
      const plan = await planVaults(
        { mode },
        { tables, resourceManager, watched, onSubscriptionsListed: async () => {}, clock, signal },
      );
      const how = { mode, scheduled, signal };
      const scanOne = async (vault: (typeof plan.vaults)[number]) => {
        const { outcome, failures } = await scanVault(vault, { ...how, workerId: randomUUID() }, deps);
        if (outcome !== "succeeded") throw new Error(`${vault.name}: ${outcome} ${JSON.stringify(failures)}`);
      };
      await pMap(plan.vaults, scanOne, { concurrency: CONCURRENT_VAULTS });
      return countOperations() - countBefore;
    }

    const unchangedAssets = queueAssets(options, (vault, type) =>
      control.items(vault, KINDS[type]).map(({ name }) => name),
    );
    const uriOf = (vault: string) =>
      `https://${vault}.${config.cloud.keyVaultSuffix}:${new URL(config.SERVICE_KEY_VAULT_URL!).port}`;
    const clients = createVaultSecrets(services);
    const secretsIn = (vault: string) => clients.open({ name: vault, vaultUri: uriOf(vault) });
    const kinds = createChangeKinds({ control, writer, secretsIn });
    const plannedChanges = Array.from({ length: options.changes }, (_, changeNumber) => {
      const names = Object.keys(kinds);
      const kind = names[changeNumber % names.length]!;
      const { types } = kinds[kind]!;
      const target = unchangedAssets.take(types[Math.floor(changeNumber / names.length) % types.length]!);
      return { kind, target, changeNumber };
    });

    const firstFullScanMs = Math.ceil(clock.now().getTime() / DAY_MS) * DAY_MS + FULL_SCAN_TIME_MS;
    // Changes are made halfway between two scans. With ten hours before the first scan, the first changes wait for five hours,
    // less than the six hours between two delta scans.
    moveTo(firstFullScanMs - 10 * HOUR_MS);
    for (const { kind, target } of plannedChanges)
      if (kind === "recovered") await secretsIn(target.vault).remove(target.name);
    await scan("full", false);

    const tracker = new ChangeTracker(Object.keys(kinds), writer, clock);

    let operations = 0;
    const scanCount = DAYS * DAILY_SCANS.length;
    let lastScanMs = clock.now().getTime();
    for (let scanNumber = 0; scanNumber < scanCount; scanNumber++) {
      const { mode, hoursAfterFullScan } = DAILY_SCANS[scanNumber % DAILY_SCANS.length]!;
      const day = Math.floor(scanNumber / DAILY_SCANS.length);
      const dueMs = firstFullScanMs + day * DAY_MS + hoursAfterFullScan * HOUR_MS;
      moveTo((lastScanMs + dueMs) / 2);
      // An equal share of the changes precedes each scan.
      const [from, until] = [scanNumber, scanNumber + 1].map((part) =>
        Math.floor((part * plannedChanges.length) / scanCount),
      );
      for (const { kind, target, changeNumber } of plannedChanges.slice(from, until)) {
        const isSeen = await kinds[kind]!.make(target, changeNumber);
        tracker.add({ ...target, kind, at: clock.now().getTime(), isSeen });
      }
      moveTo(dueMs);
      lastScanMs = dueMs;
      operations += await scan(mode, true);
      await tracker.recordDetectedChanges();
    }
    for (let day = DAYS; day < 2 * DAYS + 1 && tracker.pending.length > 0; day++) {
      moveTo(firstFullScanMs + day * DAY_MS);
      await scan("full", true);
      await tracker.recordDetectedChanges();
    }
    // A full scan that a user starts reads the details of every asset. A scheduled one reads only those that are due.
    const [deltaOperations, fullOperations] = [await scan("delta", false), await scan("full", false)];
    return {
      seen: tracker.seen,
      unseen: tracker.pending.map(({ kind, vault, type, name }) => `${kind}: ${vault}.${type}.${name}`),
      operations,
      whole: DAYS * (DAILY_SCANS.length - 1) * deltaOperations + DAYS * fullOperations,
    };
  } finally {
    await cloud.stop();
  }
}

/** Remembers the changes that no scan has detected yet, and records how long the detected ones took. */
class ChangeTracker {
  readonly seen: WeekOutcome["seen"];
  pending: PendingChange[] = [];
  readonly #writer: Pick<InventoryWriter, "assetsOf">;
  readonly #clock: Clock;

  constructor(kinds: readonly string[], writer: Pick<InventoryWriter, "assetsOf">, clock: Clock) {
    this.seen = Object.fromEntries(kinds.map((kind) => [kind, { made: 0, longestHours: 0 }]));
    this.#writer = writer;
    this.#clock = clock;
  }

  add(change: PendingChange): void {
    this.pending.push(change);
    this.seen[change.kind]!.made++;
  }

  /** Compares the pending changes with the inventory. */
  async recordDetectedChanges(): Promise<void> {
    const nowMs = this.#clock.now().getTime();
    const rows = new Map<string, Promise<Map<string, AssetRecord>>>();
    const stillPending: PendingChange[] = [];
    for (const change of this.pending) {
      const list = `${change.vault} ${change.type}`;
      if (!rows.has(list)) rows.set(list, this.#writer.assetsOf(change.vault, change.type));
      const name = change.kind === "added" ? `${change.name}-new` : change.name;
      const asset = (await rows.get(list)!).get(name.toLowerCase());
      const kind = this.seen[change.kind]!;
      if (change.isSeen(asset)) kind.longestHours = Math.max(kind.longestHours, (nowMs - change.at) / HOUR_MS);
      else stillPending.push(change);
    }
    this.pending = stillPending;
  }
}

/** Returns a queue that gives out each asset once, taking turns between the vaults. */
function queueAssets({ vaults }: WeekOptions, names: (vault: string, type: AssetType) => string[]) {
  const queues = Object.fromEntries(
    (["secret", "key", "certificate"] as const).map((type) => {
      const inVaults = Array.from({ length: vaults }, (_, at) => `kv-week-${at}`).map((vault) =>
        names(vault, type).map((name): ChangedAsset => ({ vault, type, name })),
      );
      const longest = Math.max(...inVaults.map(({ length }) => length));
      const takingTurns = Array.from({ length: longest }, (_, index) =>
        inVaults.flatMap((assets) => assets[index] ?? []),
      );
      return [type, takingTurns.flat()];
    }),
  ) as Record<AssetType, ChangedAsset[]>;
  return {
    take(type: AssetType): ChangedAsset {
      const asset = queues[type].shift();
      if (!asset) throw new Error(`Too few assets of type ${type} for this number of changes.`);
      return asset;
    },
  };
}
