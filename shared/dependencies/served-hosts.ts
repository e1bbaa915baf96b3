import type { DiscoveredHost } from "../certificates/discovered-endpoints.ts";
import type { Platform } from "../certificates/endpoint.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { ConsumerKind } from "./edge.ts";
import { assetOfEdge, EDGES, Edges, rangeOf } from "./rows.ts";

/** The platforms of the kinds of consumers that serve certificates. */
const PLATFORM_OF: Partial<Record<ConsumerKind, Platform>> = {
  apiManagement: "apiManagement",
  applicationGateway: "applicationGateway",
  appServiceCertificate: "appService",
  containerAppsCertificate: "containerApps",
  frontDoor: "frontDoor",
};

/** Returns the host names at which consumers serve certificates of key vaults: see `Dependencies.servedHosts`. */
export async function servedHosts(tables: Tables): Promise<DiscoveredHost[]> {
  const found: DiscoveredHost[] = [];
  const select = ["hosts", "resource"] as const;
  for await (const rows of tables.pages(Edges, { ...rangeOf(EDGES), select, onCorrupt: "leaveOut" })) {
    for (const { rowKey, hosts = [], resource } of rows) {
      const platform = PLATFORM_OF[resource.kind];
      const { vaultName, asset } = assetOfEdge(rowKey);
      if (hosts.length === 0 || platform === undefined || asset === undefined) continue;
      const name = asset.slice(asset.indexOf(".") + 1);
      const { id, name: resourceName } = resource;
      for (const host of hosts) found.push({ vaultName, name, host, platform, resource: { id, name: resourceName } });
    }
  }
  return found;
}
