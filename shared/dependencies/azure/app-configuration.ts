import * as z from "zod";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";

const properties = z.object({ endpoint: z.string() });

/**
 * Finds references of App Configuration stores: key-values that refer to a key vault. The library of each app decides when
 * it reads such a secret again. The key-values are not in Azure Resource Manager.
 *
 * subscription-reading.ts calls `find` for each store that Resource Graph returns. `blind` means that the service
 * can't observe when the resource loads a new version.
 */
export const appConfiguration: Finder = {
  types: ["microsoft.appconfiguration/configurationstores"],
  kind: () => "appConfiguration",
  properties: "all",

  async find(row, { names, appConfiguration, signal }) {
    const { endpoint } = propertiesOf(row, properties);
    const references = await appConfiguration.list(endpoint, signal);
    const locations = references.map(({ key, label, uri }) => ({
      evidence: label === undefined ? `kv/${key}` : `kv/${key} (${label})`,
      // Without an address the reference is invalid. An empty object is reported as invalid, `undefined` would be skipped.
      text: uri ?? {},
      refresh: { how: "blind" } as const,
    }));
    return usesIn(row, locations, names.ofUrl);
  },
};
