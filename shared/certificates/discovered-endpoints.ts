import { assetId } from "../inventory/asset.ts";
import type { Clock } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import {
  DEFAULT_PORT,
  discoveredKey,
  ENDPOINTS,
  type EndpointRecord,
  Endpoints,
  endpointRange,
  isDiscovered,
  isHostName,
  MAX_DISCOVERED,
  PICK_UP_SECONDS,
  type Platform,
} from "./endpoint.ts";

/** A host at which a resource serves a certificate, as a discovery found it. */
export interface DiscoveredHost {
  vaultName: string;
  /** Name of the certificate. */
  name: string;
  host: string;
  platform: Platform;
  resource: { id: string; name: string };
}

/**
 * Replaces the endpoints that a discovery found, and keeps those that people added. One request per 1,000 endpoints, and one for each
 * difference.
 */
export async function replaceDiscovered(
  hosts: readonly DiscoveredHost[],
  deps: { tables: Tables; clock: Clock; onCorrupt: (row: StorageCorrupt) => void },
): Promise<void> {
  const { tables, clock, onCorrupt } = deps;
  const now = clock.now().toISOString();
  const wanted = new Map<string, EndpointRecord>();
  const counts = new Map<string, number>();
  for (const { vaultName, name, host: text, platform, resource } of hosts) {
    const host = text.toLowerCase();
    if (!isHostName(host)) continue;
    const key = discoveredKey({ vaultName, name }, host, DEFAULT_PORT);
    const id = assetId({ vaultName, type: "certificate", name });
    const added = { addedAt: now, addedBy: "system" };
    const same = wanted.get(key);
    if (same) {
      // Two resources name the host, such as a web app behind Front Door. Which of them answers is unknown, so that the slower
      // platform decides when a version is late.
      if (PICK_UP_SECONDS[platform] > PICK_UP_SECONDS[same.platform]) wanted.set(key, { ...same, platform, resource });
      continue;
    }
    const count = counts.get(id) ?? 0;
    if (count >= MAX_DISCOVERED) continue;
    counts.set(id, count + 1);
    wanted.set(key, { vaultName, name, host, port: DEFAULT_PORT, platform, resource, ...added });
  }
  for await (const rows of tables.pages(Endpoints, { ...endpointRange(), onCorrupt })) {
    for (const row of rows) {
      const { rowKey } = row;
      const same = wanted.get(isDiscovered(rowKey) ? rowKey : discoveredKey(row, row.host, row.port));
      if (same) {
        // A person added the same endpoint, or an earlier discovery found it.
        wanted.delete(discoveredKey(row, row.host, row.port));
        const isSame = row.platform === same.platform && row.resource?.id === same.resource?.id;
        if (isDiscovered(rowKey) && !isSame) {
          const { platform, resource } = same;
          await tables.modify(Endpoints, ENDPOINTS, rowKey, (stored) =>
            stored ? { ...withoutKeys(stored), platform, ...(resource && { resource }) } : undefined,
          );
        }
      } else if (isDiscovered(rowKey)) await tables.remove(Endpoints, ENDPOINTS, rowKey);
    }
  }
  for (const [key, record] of wanted) await tables.put(Endpoints, ENDPOINTS, key, record);
}
