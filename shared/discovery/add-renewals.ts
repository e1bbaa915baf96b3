/** Adds to the certificates of a list who renews them and when. */
import pMap from "p-map";
import type { AssetRecord } from "../inventory/asset.ts";
import { type AriWindow, MAX_VERSION_DATES, renewalPlanOf, type VersionDates } from "../inventory/renewal.ts";
import type { AssetChange } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { VaultClient } from "../platform/azure/key-vault.ts";

const MAX_CONCURRENT_REQUESTS = 8;
/** Pages of 25 versions. They come in no order, so the newest are known only after the last page. */
const MAX_PAGES = 20;

/**
 * Completes certificates that were read with what the comparison does not cover: the dates of their versions, the window of
 * ARI, and the plan that follows. Lists the versions of changed certificates whose newest version is another one: one call for
 * each 25 versions. Unchanged certificates keep their stored plan, by which their rows are indexed.
 *
 * @returns the first failure to list versions. Those certificates keep the dates that are known, and are marked as stale, so
 * that the next scan reads them again.
 */
export async function addRenewals(
  client: Pick<VaultClient, "versions">,
  changes: readonly AssetChange[],
  assets: readonly AssetRecord[],
  options: {
    storedAssets: ReadonlyMap<string, AssetRecord>;
    /** Returns the window that the authority of a certificate suggests. */
    windowOf?: ((asset: AssetRecord) => AriWindow | undefined) | undefined;
    signal: AbortSignal;
  },
): Promise<CloudFailure | undefined> {
  const { storedAssets, windowOf, signal } = options;
  let failure: CloudFailure | undefined;
  const changed = new Set(changes.map(({ after }) => after));
  await pMap(
    assets,
    async (asset) => {
      const stored = storedAssets.get(asset.name.toLowerCase());
      asset.versionDates = stored?.versionDates;
      asset.ari = windowOf?.(asset) ?? (stored?.version === asset.version ? stored?.ari : undefined);
      // An asset that a crashed worker left incomplete is written again as stored.
      if (!changed.has(asset) || asset === stored) {
        asset.renewal = stored?.renewal;
        return;
      }
      if (stored?.version !== asset.version || !hasNewest(asset)) {
        try {
          asset.versionDates = await readVersionDates(client, asset.name, signal);
        } catch (error) {
          if (!(error instanceof CloudFailure) || error.code === "timedOut") throw error;
          // The certificate was deleted meanwhile. The next scan removes it.
          if (error.code !== "notFound") failure ??= error;
          asset.listing = "";
        }
      }
      asset.renewal = renewalPlanOf(asset);
    },
    { concurrency: MAX_CONCURRENT_REQUESTS },
  );
  return failure;
}

/** Returns whether the known dates include the newest version. They don't if an earlier scan could not list the versions. */
const hasNewest = ({ versionDates, createdOn = 0 }: AssetRecord): boolean =>
  versionDates !== undefined && (versionDates[0]?.[0] ?? createdOn) >= createdOn;

/** Returns the dates of the newest versions, newest first. */
async function readVersionDates(
  client: Pick<VaultClient, "versions">,
  name: string,
  signal: AbortSignal,
): Promise<VersionDates[]> {
  const dates: VersionDates[] = [];
  let pages = 0;
  for await (const page of client.versions("certificate", name, signal)) {
    for (const { createdOn, notBefore, expiresOn } of page)
      if (createdOn !== undefined) dates.push([createdOn, notBefore ?? null, expiresOn ?? null]);
    if (++pages === MAX_PAGES) break;
  }
  return dates.sort((a, b) => b[0] - a[0]).slice(0, MAX_VERSION_DATES);
}
