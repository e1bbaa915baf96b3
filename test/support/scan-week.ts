import { randomUUID } from "node:crypto";
import pMap from "p-map";
import type { AssetKind } from "simulated-cloud/company/company.ts";
import { planVaults } from "../../shared/discovery/plan-vaults.ts";
import type { ScanMode } from "../../shared/discovery/scan.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import type { AssetRecord, AssetType } from "../../shared/inventory/asset.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { liveIn } from "../azure/live-cloud.ts";

/** Hours of the scans of the default schedules after the full scan: one full scan and four delta scans. */
const SCANS: readonly { mode: "full" | "delta"; after: number }[] = [
  { mode: "full", after: 0 },
  ...[4.5, 10.5, 16.5, 22.5].map((after) => ({ mode: "delta" as const, after })),
];
/** 01:30, the time of the full scan. */
const FULL_AT_MS = 1.5 * HOUR_MS;
const DAYS = 7;
const VAULTS_AT_ONCE = 4;
const KINDS: Record<AssetType, AssetKind> = { secret: "secrets", key: "keys", certificate: "certificates" };
const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const log = { debug() {}, info() {}, warn() {}, error() {} };

/** A third of the company of the request budgets (measured-company.ts), with the promised number of changes. */
export const WHOLE_WEEK = { vaults: 12, secrets: 90, keys: 20, certificates: 30, changes: 500 };
/** Changes that neither lists nor events show. */
export const UNTOLD = ["certificate policy", "key rotation policy"];

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

/** Changes of the week by kind. */
export interface ChangesSeen {
  made: number;
  /** Hours from a change to the scan that detected the last change of the kind. */
  longestHours: number;
}

export interface WeekOutcome {
  seen: Record<string, ChangesSeen>;
  /** Changes that no scan of the week or of the following week detected. */
  unseen: string[];
  /** Key Vault operations of the week's scans, and of the same scans if each full scan read everything. */
  operations: number;
  whole: number;
}

interface Place {
  vault: string;
  type: AssetType;
  name: string;
}

interface Change extends Place {
  kind: string;
  at: number;
  isSeen: (asset: AssetRecord | undefined) => boolean;
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
  const { cloud, config } = await liveIn({ company });
  const { control } = cloud;
  try {
    const services = { config, identity: createIdentity(config), log };
    const storeClock = createStoreClock();
    let ahead = 0;
    const clock = { now: () => new Date(storeClock.now().getTime() + ahead) };
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
      prepareChange: async () => async () => {},
    };
    const moveTo = (instant: number) => {
      const by = Math.max(0, instant - clock.now().getTime());
      ahead += by;
      control.moveClock(by);
    };
    const operationsSoFar = () =>
      Object.entries(control.counts()).reduce(
        (sum, [name, count]) => sum + (name.startsWith("keyvault.") ? count : 0),
        0,
      );

    /** Returns the number of Key Vault operations. */
    async function scan(mode: ScanMode, scheduled: boolean): Promise<number> {
      const before = operationsSoFar();
      const signal = AbortSignal.timeout(HOUR_MS);
      const watched = async () => ({ all: false, named: [SUBSCRIPTION], discovered: [] });
      const plan = await planVaults(
        { mode },
        { tables, resourceManager, watched, seen: async () => {}, clock, signal },
      );
      const how = { mode, scheduled, signal };
      const scanOne = async (vault: (typeof plan.vaults)[number]) => {
        const { outcome, failures } = await scanVault(vault, { ...how, owner: randomUUID() }, deps);
        if (outcome !== "succeeded") throw new Error(`${vault.name}: ${outcome} ${JSON.stringify(failures)}`);
      };
      await pMap(plan.vaults, scanOne, { concurrency: VAULTS_AT_ONCE });
      return operationsSoFar() - before;
    }

    const places = placesOf(options, (vault, type) => control.items(vault, KINDS[type]).map(({ name }) => name));
    const uriOf = (vault: string) =>
      `https://${vault}.${config.cloud.keyVaultSuffix}:${new URL(config.SERVICE_KEY_VAULT_URL!).port}`;
    const clients = createVaultSecrets(services);
    const secretsIn = (vault: string) => clients.open({ name: vault, vaultUri: uriOf(vault) });
    const itemOf = ({ vault, type, name }: Place) =>
      control.items(vault, KINDS[type]).find((one) => one.name === name)!;

    /** The kinds of changes: the assets they apply to, the change, and how a scan shows that it detected the change. */
    const kinds: Record<string, { types: AssetType[]; make(place: Place, at: number): Promise<Change["isSeen"]> }> = {
      "new version": {
        types: ["secret", "key", "certificate"],
        async make(place) {
          const { vault, type, name } = place;
          if (type === "secret") control.putSecret(vault, { name });
          else if (type === "key") control.putKey(vault, { name });
          else control.putCertificate(vault, { name });
          const { version, created } = itemOf(place);
          return (asset) => (type === "secret" ? isAt(asset?.createdOn, created) : asset?.version === version);
        },
      },
      attributes: {
        types: ["secret", "key"],
        async make(place, at) {
          control.change(place.vault, KINDS[place.type], place.name, { expiresInDays: 400 + at });
          const { expires } = itemOf(place);
          return (asset) => isAt(asset?.expiresOn, expires!);
        },
      },
      tags: {
        types: ["secret", "key", "certificate"],
        async make({ vault, type, name }, at) {
          control.change(vault, KINDS[type], name, { tags: { week: String(at) } });
          return (asset) => asset?.tags?.week === String(at);
        },
      },
      added: {
        types: ["secret"],
        async make({ vault, name }) {
          control.putSecret(vault, { name: `${name}-new` });
          return (asset) => asset !== undefined;
        },
      },
      deleted: {
        types: ["secret"],
        async make({ vault, name }) {
          await secretsIn(vault).remove(name);
          return (asset) => asset === undefined;
        },
      },
      recovered: {
        types: ["secret"],
        async make({ vault, name }) {
          await secretsIn(vault).recover(name);
          return (asset) => asset !== undefined;
        },
      },
      purged: {
        types: ["key", "certificate"],
        async make({ vault, type, name }) {
          control.remove(vault, KINDS[type], name);
          return (asset) => asset === undefined;
        },
      },
      "certificate policy": {
        types: ["certificate"],
        async make({ vault, type, name }) {
          const { autoRenew } = (await writer.assetsOf(vault, type)).get(name.toLowerCase())!;
          control.setRenewal(vault, name, { action: autoRenew ? "EmailContacts" : "AutoRenew", percentage: 80 });
          return (asset) => asset?.autoRenew === !autoRenew;
        },
      },
      "key rotation policy": {
        types: ["key"],
        async make({ vault, name }, at) {
          control.setRotation(vault, name, { rotateAfterDays: 100 + at });
          return (asset) =>
            asset?.rotationPolicy?.lifetimeActions.some((one) => one.timeAfterCreate === `P${100 + at}D`) === true;
        },
      },
    };
    const wanted = Array.from({ length: options.changes }, (_, at) => {
      const names = Object.keys(kinds);
      const kind = names[at % names.length]!;
      const { types } = kinds[kind]!;
      const place = places.take(types[Math.floor(at / names.length) % types.length]!);
      return { kind, place, at };
    });

    const tomorrow = Math.ceil(clock.now().getTime() / DAY_MS) * DAY_MS + FULL_AT_MS;
    // Half of the time to the first scan is then less than the six hours between two delta scans.
    moveTo(tomorrow - 10 * HOUR_MS);
    for (const { kind, place } of wanted) if (kind === "recovered") await secretsIn(place.vault).remove(place.name);
    await scan("full", false);

    const seen: WeekOutcome["seen"] = Object.fromEntries(
      Object.keys(kinds).map((kind) => [kind, { made: 0, longestHours: 0 }]),
    );
    let pending: Change[] = [];
    async function note(): Promise<void> {
      const now = clock.now().getTime();
      const rows = new Map<string, Promise<Map<string, AssetRecord>>>();
      const left: Change[] = [];
      for (const change of pending) {
        const list = `${change.vault} ${change.type}`;
        if (!rows.has(list)) rows.set(list, writer.assetsOf(change.vault, change.type));
        const name = change.kind === "added" ? `${change.name}-new` : change.name;
        const asset = (await rows.get(list)!).get(name.toLowerCase());
        const kind = seen[change.kind]!;
        if (change.isSeen(asset)) kind.longestHours = Math.max(kind.longestHours, (now - change.at) / HOUR_MS);
        else left.push(change);
      }
      pending = left;
    }

    let operations = 0;
    const slots = DAYS * SCANS.length;
    let last = clock.now().getTime();
    for (let slot = 0; slot < slots; slot++) {
      const { mode, after } = SCANS[slot % SCANS.length]!;
      const due = tomorrow + Math.floor(slot / SCANS.length) * DAY_MS + after * HOUR_MS;
      moveTo((last + due) / 2);
      const [from, until] = [slot, slot + 1].map((part) => Math.floor((part * wanted.length) / slots));
      for (const { kind, place, at } of wanted.slice(from, until)) {
        const isSeen = await kinds[kind]!.make(place, at);
        pending.push({ ...place, kind, at: clock.now().getTime(), isSeen });
        seen[kind]!.made++;
      }
      moveTo(due);
      last = due;
      operations += await scan(mode, true);
      await note();
    }
    for (let day = DAYS; day < 2 * DAYS + 1 && pending.length > 0; day++) {
      moveTo(tomorrow + day * DAY_MS);
      await scan("full", true);
      await note();
    }
    const [delta, full] = [await scan("delta", false), await scan("full", false)];
    return {
      seen,
      unseen: pending.map(({ kind, vault, type, name }) => `${kind}: ${vault}.${type}.${name}`),
      operations,
      whole: DAYS * (SCANS.length - 1) * delta + DAYS * full,
    };
  } finally {
    await cloud.stop();
  }
}

const isAt = (seconds: number | undefined, instant: string): boolean =>
  seconds === Math.floor(Date.parse(instant) / 1000);

/** Returns each asset once, one vault after the other. */
function placesOf({ vaults }: WeekOptions, names: (vault: string, type: AssetType) => string[]) {
  const left = Object.fromEntries(
    (["secret", "key", "certificate"] as const).map((type) => {
      const inVaults = Array.from({ length: vaults }, (_, at) => `kv-week-${at}`).map((vault) =>
        names(vault, type).map((name): Place => ({ vault, type, name })),
      );
      const longest = Math.max(...inVaults.map(({ length }) => length));
      return [type, Array.from({ length: longest }, (_, at) => inVaults.flatMap((own) => own[at] ?? [])).flat()];
    }),
  ) as Record<AssetType, Place[]>;
  return {
    take(type: AssetType): Place {
      const place = left[type].shift();
      if (!place) throw new Error(`Too few assets of type ${type} for this number of changes.`);
      return place;
    },
  };
}
