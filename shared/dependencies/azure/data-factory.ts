import type { LinkedService } from "../../platform/azure/data-factory.ts";
import { MINUTE_SECONDS } from "../../platform/time.ts";
import { type ConfigLocation, type Finder, usesIn } from "./finder.ts";
import { ASSET_NAME, type KeyVaultNames, type NamedAsset } from "./key-vault-names.ts";

/**
 * Finds references of data factories: linked services whose fields are secrets of a key vault. Each run reads them when it
 * starts. https://learn.microsoft.com/azure/data-factory/store-credentials-in-key-vault
 *
 * subscription-reading.ts calls `find` for each factory that Resource Graph returns.
 */
export const dataFactory: Finder = {
  types: ["microsoft.datafactory/factories"],
  childTypes: ["microsoft.datafactory/factories/linkedservices"],
  kind: () => "dataFactory",
  // Resource Graph does not return the needed properties, so none are queried.
  properties: "none",

  async find(row, { names, dataFactory, signal }) {
    const { entries, unreadable } = await dataFactory.linkedServices(row.id, signal);
    const vaults = vaultsOf(entries, names);
    const locations: ConfigLocation[] = entries.flatMap((service) =>
      secretsIn(service.typeProperties).map(({ field, secret }) => ({
        evidence: `linkedservices/${service.name}/${field}`,
        text: secret,
        // Each run reads the secret when it starts, so a new value is used within a minute.
        refresh: { how: "automatic", slowestSeconds: MINUTE_SECONDS },
      })),
    );
    const { uses, failures } = usesIn(row, locations, (secret) => assetOf(secret as Record<string, unknown>, vaults));
    return { uses, failures: [...unreadable, ...failures] };
  },
};

/** Returns vault names by the name of the linked service of type `AzureKeyVault` through which other services use the vault. */
function vaultsOf(services: readonly LinkedService[], names: KeyVaultNames): Map<string, string> {
  const found = new Map<string, string>();
  for (const { name, type, typeProperties } of services) {
    const vault = type === "AzureKeyVault" ? names.ofVaultUrl(typeProperties.baseUrl) : undefined;
    if (vault) found.set(name, vault.vaultName);
  }
  return found;
}

/** Maximum depth of the search. Linked services are much flatter. */
const MAX_DEPTH = 12;

/** Returns the fields that are secrets of a key vault, at any depth. */
function secretsIn(value: unknown, field = "", depth = 0): { field: string; secret: Record<string, unknown> }[] {
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH) return [];
  if ("type" in value && value.type === "AzureKeyVaultSecret") {
    return [{ field, secret: value as Record<string, unknown> }];
  }
  return Object.entries(value).flatMap(([name, inner]) =>
    secretsIn(inner, field === "" ? name : `${field}.${name}`, depth + 1),
  );
}

/**
 * Returns the secret that a field names, or the whole vault if the secret's name is an expression that only a run can evaluate.
 */
function assetOf(secret: Record<string, unknown>, vaults: Map<string, string>): NamedAsset | undefined {
  const {
    store,
    secretName: name,
    secretVersion: version,
  } = secret as {
    store?: { referenceName?: unknown } | null;
    secretName?: unknown;
    secretVersion?: unknown;
  };
  const vaultName = vaults.get(String(store?.referenceName));
  if (vaultName === undefined) return undefined;
  if (isExpression(name)) return { vaultName };
  if (typeof name !== "string" || !ASSET_NAME.test(name)) return undefined;
  const isPinned = typeof version === "string" && /^[0-9a-f]{32}$/i.test(version);
  return { vaultName, type: "secret", name, ...(isPinned && { version }) };
}

/**
 * Returns whether a value is an expression, such as `@pipeline().parameters.secret`:
 * https://learn.microsoft.com/azure/data-factory/control-flow-expression-language-functions
 */
const isExpression = (value: unknown): boolean =>
  typeof value === "string"
    ? value.startsWith("@")
    : typeof value === "object" && value !== null && "type" in value && value.type === "Expression";
