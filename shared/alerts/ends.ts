import pMap from "p-map";
import { type AssetRecord, Assets, placesOf } from "../inventory/asset.ts";
import { nameKey, namePrefix, partitions } from "../inventory/layout.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../time.ts";
import type { ViolationReading } from "./events.ts";
import { thresholdsOf } from "./expiring.ts";
import type { EndItem, FollowedAlert } from "./followed.ts";
import type { AssetItem, ViolationItem } from "./items.ts";
import { fits, type RuleRecord } from "./rule.ts";
import type { VaultSnapshot } from "./vault-changes.ts";

/** Alerts of one kind. */
type Of<T> = Omit<FollowedAlert, "item"> & { item: T };

/** Alerts of one kind, and the others: of what their rule was about before it was changed. */
export function ofKind<K extends FollowedAlert["item"]["kind"]>(alerts: Iterable<FollowedAlert>, kind: K) {
  const own: Of<Extract<FollowedAlert["item"], { kind: K }>>[] = [];
  const others: Pick<EndItem, "of" | "since">[] = [];
  for (const one of alerts) {
    if (one.item.kind === kind) own.push(one as (typeof own)[number]);
    else others.push({ of: one.item, since: one.since });
  }
  return { own, others };
}

/** Assets of one vault and type that are looked up one by one; of more, all of the vault are read. */
const SINGLE_LOOK_UPS = 20;
const PARALLEL = 8;
/** How long an evaluation of compliance may take from the instant it is made for until its rows are there. */
const LATE_MS = 10 * MINUTE_MS;

/**
 * Which alerts about assets have ended, of vaults that changed since the revision: the asset has another expiry that is of
 * no concern to the rule, was disabled, or is gone, or nothing is told of its vault any more.
 */
export async function endedAssets(
  rule: RuleRecord,
  alerts: readonly Of<AssetItem>[],
  span: { to: Date; revision: number },
  snapshot: VaultSnapshot,
  deps: { tables: Tables; ownerTag: string },
): Promise<EndItem[]> {
  const vaults = new Map(snapshot.vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  const hidden = new Set(snapshot.hidden);
  const maybe = alerts.filter(({ item }) => {
    const name = item.vaultName.toLowerCase();
    const vault = vaults.get(name);
    // Without a licence nothing is said of credentials of applications.
    const isUnsaid = item.credential !== undefined && hidden.has(name);
    return !isUnsaid && (vault === undefined || snapshot.changedSince(vault, span.revision));
  });
  const groups = Map.groupBy(maybe, ({ item }) => `${item.vaultName.toLowerCase()}!${item.type}`);
  const found = await pMap(
    groups.values(),
    async (group): Promise<EndItem[]> => {
      const assets = await assetsOf(group, deps.tables);
      const name = group[0]!.item.vaultName.toLowerCase();
      return group.flatMap(({ item: of, since }): EndItem[] => {
        const asset = assets.get(of.name.toLowerCase());
        if (!asset) return [{ kind: "recovered", id: of.id, of, since, reason: "removed" }];
        if (hidden.has(name)) return [{ kind: "recovered", id: of.id, of, since, reason: "outOfScope" }];
        // Its vault is about to leave, or to come back.
        if (!vaults.has(name)) return [];
        if (!asset.enabled) return [{ kind: "recovered", id: of.id, of, since, reason: "disabled" }];
        const { expiresOn, version } = asset;
        if (expiresOn === of.expiresOn) return [];
        const left = expiresOn === undefined ? Number.POSITIVE_INFINITY : expiresOn * 1000 - span.to.getTime();
        // Within a threshold again it goes on as a new alert of the same asset, where the rule is still about it.
        if (left <= Math.max(...thresholdsOf(rule)) * DAY_MS && fits(rule.filters, asset, deps.ownerTag)) return [];
        return [
          {
            kind: "renewed",
            id: of.id,
            of,
            since,
            ...(expiresOn === undefined ? {} : { expiresOn }),
            ...(version === undefined ? {} : { version }),
          },
        ];
      });
    },
    { concurrency: PARALLEL },
  );
  return found.flat();
}

/** The assets that alerts of one vault and type are about, by name in lower case. */
async function assetsOf(group: readonly Of<AssetItem>[], tables: Tables): Promise<Map<string, AssetRecord>> {
  const { vaultName, type } = group[0]!.item;
  const found = new Map<string, AssetRecord>();
  const partitionKey = partitions.vault(vaultName);
  if (group.length > SINGLE_LOOK_UPS) {
    const range = { partitionKey, from: namePrefix(type), before: keyEnd(namePrefix(type)) };
    for await (const rows of tables.pages(Assets, range))
      for (const row of rows) found.set(row.name.toLowerCase(), row);
    return found;
  }
  const rows = await Promise.all(
    group.map(({ item }) => tables.get(Assets, partitionKey, nameKey(type, item.name, vaultName))),
  );
  for (const row of rows) if (row) found.set(row.name.toLowerCase(), row);
  return found;
}

/** Which alerts about violations have ended, of vaults whose results changed since the instant, or that have none any more. */
export async function endedViolations(
  alerts: readonly Of<ViolationItem>[],
  since: Date,
  reading: ViolationReading,
  tables: Tables,
): Promise<EndItem[]> {
  const at = new Date(since.getTime() - LATE_MS).toISOString();
  const maybe = alerts.filter(({ item }) => reading.changedSince(item.vaultName, at));
  const standing = await reading.standing(maybe.map(({ item }) => item));
  return await pMap(
    maybe.filter(({ item }) => !standing.has(item.id)),
    async ({ item: of, since: alertedSince }): Promise<EndItem> => {
      const gone = (await isThere(of, tables)) ? undefined : ("removed" as const);
      const reason = gone ?? (reading.has(of.vaultName) ? "mended" : "outOfScope");
      return { kind: "recovered", id: of.id, of, since: alertedSince, reason };
    },
    { concurrency: PARALLEL },
  );
}

/** Whether the inventory has what a violation is of. */
async function isThere(of: ViolationItem, tables: Tables): Promise<boolean> {
  const place = placesOf(of.resourceId).find(({ type }) => type === of.resourceType);
  if (!place) return (await tables.get(Vaults, VAULTS, vaultKey(of.vaultName))) !== undefined;
  const { vaultName, type, name } = place;
  return (await tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName))) !== undefined;
}

/** Whether violations may have ended since an evaluation that knew so many vaults. */
export const mayHaveEnded = (reading: ViolationReading, since: Date, vaults: number | undefined): boolean =>
  vaults !== reading.vaults || reading.changedAt > new Date(since.getTime() - LATE_MS).toISOString();
