import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults, ListedVersion } from "../platform/azure/key-vault.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { isCredentialId, locationsOf } from "./asset.ts";
import { VAULTS, Vaults, vaultKey } from "./vault.ts";

/**
 * The versions of an asset, read from its vault at request time.
 */

/** Maximum number of versions read of one asset: 20 pages. */
const MAX_VERSIONS = 500;
/** The platform requires a response within 230 seconds. */
const TIMEOUT_MS = MINUTE_MS;

export interface AssetVersions {
  /** Newest first. Key Vault's times have whole seconds and no order within a second. */
  versions: ListedVersion[];
  /** False if there are more versions than were read. */
  complete: boolean;
}

/**
 * Lists the versions of an asset from its vault: one call per 25 versions.
 *
 * @throws {Problem} notFound; conflict for a credential of a directory.
 * @throws {CloudFailure} when the vault can't be read.
 */
export async function readVersions(
  id: string,
  { tables, keyVaults }: { tables: Tables; keyVaults: Pick<KeyVaults, "open"> },
): Promise<AssetVersions> {
  const shortenedId = id.slice(0, 300);
  if (isCredentialId(id)) throw new Problem("conflict", "A credential of a directory has no versions.");
  const [location] = locationsOf(id);
  const vault = location && (await tables.get(Vaults, VAULTS, vaultKey(location.vaultName)));
  if (!location || !vault) throw notFound(`The asset ${shortenedId}`);
  const versions: ListedVersion[] = [];
  try {
    const pages = keyVaults.open(vault).versions(location.type, location.name, AbortSignal.timeout(TIMEOUT_MS));
    for await (const page of pages) {
      versions.push(...page);
      if (versions.length > MAX_VERSIONS) break;
    }
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "notFound") throw missingInVault(shortenedId);
    throw error;
  }
  if (versions.length === 0) throw missingInVault(shortenedId);
  versions.sort((a, b) => (b.createdOn ?? 0) - (a.createdOn ?? 0));
  return { versions: versions.slice(0, MAX_VERSIONS), complete: versions.length <= MAX_VERSIONS };
}

const missingInVault = (id: string): Problem =>
  new Problem("notFound", `Its vault has no asset ${id} now. The next scan removes it from the inventory.`);
