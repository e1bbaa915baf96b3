import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, usesIn } from "./finder.ts";
import { type NamedAsset, ofVaultId } from "./key-vault-names.ts";

/**
 * Front Door uses a new version of a certificate within three days:
 * https://learn.microsoft.com/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain
 */
const SLOWEST_SECONDS = 3 * DAY_SECONDS;

/**
 * Finds certificates of Front Door Standard and Premium that come from key vaults. Resource Graph returns the Front Door
 * profiles, but not their certificates.
 *
 * subscription-reading.ts calls `find` for each profile.
 */
export const frontDoor: Finder = {
  types: ["microsoft.cdn/profiles"],
  childTypes: ["microsoft.cdn/profiles/secrets"],
  kind: () => "frontDoor",
  // Resource Graph does not return the properties that name a key vault, so none are queried.
  properties: "none",

  async find(row, { frontDoor, signal }) {
    // Profiles of the older CDN have the same type but no secrets.
    if (row.sku !== "" && !/AzureFrontDoor$/i.test(row.sku)) return { uses: [] };
    const { entries, unreadable } = await frontDoor.secrets(row.id, signal);
    const locations = entries.map(({ name, secretSource, useLatestVersion, secretVersion }) => ({
      evidence: `secrets/${name}`,
      text: secretSource && { secretSource, secretVersion },
      refresh: { how: "automatic", slowestSeconds: SLOWEST_SECONDS } as const,
      // With `useLatestVersion` the profile takes new versions, although the source names one.
      usesNewestVersion: useLatestVersion,
    }));
    const { uses, failures } = usesIn(row, locations, (text) => sourceOf(text as Source));
    return { uses, failures: [...unreadable, ...failures] };
  },
};

/** The secret that a certificate of Front Door comes from. */
interface Source {
  secretSource: string;
  secretVersion: string | undefined;
}

/** Returns the secret that a source names. Its resource ID ends with `/secrets/<name>` or `/secrets/<name>/<version>`. */
function sourceOf({ secretSource, secretVersion }: Source): NamedAsset | undefined {
  const [, id = secretSource, versionInId] = /^(.*\/secrets\/[^/]+)\/([0-9a-f]{32})$/i.exec(secretSource) ?? [];
  const asset = ofVaultId(id);
  if (asset?.name === undefined) return undefined;
  const version = secretVersion || versionInId;
  return { ...asset, ...(version && { version }) };
}
