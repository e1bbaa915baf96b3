/** Builds vault and asset records for tests, and writes them to the inventory as a scan does. */
import { randomUUID } from "node:crypto";
import { ASSET_TYPES, type AssetRecord, type AssetType, contentHash } from "../../shared/inventory/asset.ts";
import type { Moment, Status } from "../../shared/inventory/asset-status.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { countOwners, effectiveOwnerTag } from "../../shared/inventory/owners.ts";
import { packPlanned } from "../../shared/inventory/planned-certificates.ts";
import { expiriesColumn, type VaultRecord } from "../../shared/inventory/vault.ts";
import type { AssetChange, InventoryWriter } from "../../shared/inventory/write.ts";

/** The time of most records, in Unix milliseconds. */
export const START = Date.parse("2026-11-21T10:00:00.000Z");
export const SUBSCRIPTIONS = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"] as const;

/** Returns the record of a vault that has not been scanned. */
export const vaultRecord = (name: string, subscriptionId: string = SUBSCRIPTIONS[0]): VaultRecord => ({
  name,
  id: `/vaults/${name}`,
  vaultUri: `https://${name}.vault.azure.net/`,
  location: "westeurope",
  subscriptionId,
  resourceGroup: "rg",
  tenantId: "tenant",
  sku: "standard",
  softDelete: true,
  purgeProtection: true,
  rbacAuthorization: true,
  publicNetworkAccess: "Enabled",
  networkDefaultAction: "Allow",
  privateEndpoints: 0,
  firstSeenAt: new Date(START).toISOString(),
  failedScans: 0,
  pending: false,
  listedAt: {},
  failures: {},
  listings: {},
  contents: {},
});

/** Returns the record of an enabled asset without an expiry date. `changes` replaces or adds fields. */
export function assetRecord(
  vault: VaultRecord,
  type: AssetType,
  name: string,
  changes: Partial<AssetRecord> = {},
): AssetRecord {
  const { name: vaultName, id: vaultId, subscriptionId } = vault;
  const fields = { type, name, vaultName, vaultId, subscriptionId, enabled: true, listing: "", ...changes };
  return { ...fields, firstSeenAt: new Date(START).toISOString(), content: contentHash(fields) };
}

/** Replaces the vault's assets, as a scan that read all its lists does. */
export async function writeVault(writer: InventoryWriter, vault: VaultRecord, assets: AssetRecord[]): Promise<void> {
  const stored = await writer.readForUpdate(vault.name);
  const changes: AssetChange[] = [];
  const record = { ...vault };
  for (const type of ASSET_TYPES) {
    const ofType = assets.filter((asset) => asset.type === type);
    const storedAssets = await writer.assetsOf(vault.name, type);
    for (const after of ofType) {
      const before = storedAssets.get(after.name.toLowerCase());
      storedAssets.delete(after.name.toLowerCase());
      changes.push({ type, name: after.name, before, after });
    }
    for (const before of storedAssets.values()) changes.push({ type, name: before.name, before, after: undefined });
    record[expiriesColumn(type)] = packExpiries(ofType.map((asset) => asset.expiresOn));
    record.owners = { ...record.owners, [type]: countOwners(ofType, effectiveOwnerTag(vault, "owner")) };
    record.listings = { ...record.listings, [type]: `${ofType.length}` };
  }
  record.certificateRenewals = packPlanned(assets);
  // The fourth argument names this writer. The last one would write data derived from the change, such as compliance results.
  await writer.apply(stored, record, changes, `test/${randomUUID()}`, async () => async () => {});
}

const DAY_MS = 86_400_000;

/** Returns an asset's status by the words of the specification, without the code under test. */
export function expectedStatus(
  { expiresOn, notBefore, renewal }: Pick<AssetRecord, "expiresOn" | "notBefore" | "renewal">,
  { now, criticalDays, warningDays }: Moment,
): Status {
  if (expiresOn === undefined) return "healthy";
  const expiry = expiresOn * 1000;
  if (now > expiry) return "expired";
  const statusByDistance = (critical: number, warning: number): Status =>
    expiry - now <= critical ? "critical" : expiry - now <= warning ? "warning" : "healthy";
  if (!renewal) return statusByDistance(criticalDays * DAY_MS, warningDays * DAY_MS);
  if (renewal.windowEnd === undefined) {
    const lifetime = expiry - notBefore! * 1000;
    return statusByDistance(
      Math.min(criticalDays * DAY_MS, lifetime / 6),
      Math.min(warningDays * DAY_MS, lifetime / 3),
    );
  }
  // The whole second of the window's end belongs to the window.
  const windowEnd = (renewal.windowEnd + 1) * 1000;
  if (now < windowEnd) return "healthy";
  const isHalfOver = now - windowEnd >= expiry - now;
  return isHalfOver || expiry - now <= criticalDays * DAY_MS ? "critical" : "warning";
}
