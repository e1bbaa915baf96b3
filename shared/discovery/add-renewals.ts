/** Completes the certificates that a scan listed with their renewal: who renews them and when. */
import pMap from "p-map";
import type { AssetRecord } from "../inventory/asset.ts";
import { type AriWindow, MAX_VERSION_DATES, renewalPlanOf, type VersionDates } from "../inventory/renewal.ts";
import type { AssetChange } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { VaultClient } from "../platform/azure/key-vault.ts";

const MAX_CONCURRENT_REQUESTS = 8;
/**
 * Maximum number of pages that are read, each of 25 versions. Key Vault lists versions in no order, so the newest ones are known
 * only after the last page.
 */
const MAX_PAGES = 20;

/**
 * Sets the members of certificates that are not part of their content hash: the dates of their versions, the window of ARI, and
 * the renewal plan that follows from these. Lists the versions of each changed certificate whose newest version is not among the
 * stored ones, with one call for each 25 versions. Unchanged certificates keep their stored plan, because the keys of their rows
 * follow from it.
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
