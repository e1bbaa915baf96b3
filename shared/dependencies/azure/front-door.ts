import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, usesIn } from "./finder.ts";
import { type NamedAsset, ofVaultId } from "./key-vault-names.ts";

/** Up to three days: https://learn.microsoft.com/azure/frontdoor/standard-premium/how-to-configure-https-custom-domain */
const SLOWEST = 3 * DAY_SECONDS;

/** Finds certificates of Front Door Standard and Premium. They are not in Resource Graph. */
export const frontDoor: Finder = {
  types: ["microsoft.cdn/profiles"],
  parts: ["microsoft.cdn/profiles/secrets"],
  kind: () => "frontDoor",
  properties: "none",

  async find(row, { frontDoor, signal }) {
    // Profiles of the older CDN have the same type but no secrets.
    if (row.sku !== "" && !/AzureFrontDoor$/i.test(row.sku)) return { uses: [] };
    const { entries, unreadable } = await frontDoor.secrets(row.id, signal);
    const places = entries.map(({ name, secretSource, useLatestVersion, secretVersion }) => ({
      evidence: `secrets/${name}`,
      text: secretSource && { secretSource, secretVersion },
      refresh: { how: "automatic", slowestSeconds: SLOWEST } as const,
      follows: useLatestVersion,
    }));
    const { uses, failures } = usesIn(row, places, (text) => sourceOf(text as Source));
    return { uses, failures: [...unreadable, ...failures] };
  },
};

interface Source {
  secretSource: string;
  secretVersion: string | undefined;
}

/** Matches the ID of a vault's secret, with or without a version. */
function sourceOf({ secretSource, secretVersion }: Source): NamedAsset | undefined {
  const [, id = secretSource, own] = /^(.*\/secrets\/[^/]+)\/([0-9a-f]{32})$/i.exec(secretSource) ?? [];
  const asset = ofVaultId(id);
  if (asset?.name === undefined) return undefined;
  const version = secretVersion || own;
  return { ...asset, ...(version && { version }) };
}
