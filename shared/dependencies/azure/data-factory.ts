import type { LinkedService } from "../../platform/azure/data-factory.ts";
import { MINUTE_SECONDS } from "../../platform/time.ts";
import { type Finder, type Place, usesIn } from "./finder.ts";
import { ASSET_NAME, type KeyVaultNames, type NamedAsset } from "./key-vault-names.ts";

/**
 * Finds references of data factories: linked services whose fields are secrets of a key vault. Each run reads them when it
 * starts. https://learn.microsoft.com/azure/data-factory/store-credentials-in-key-vault
 */
export const dataFactory: Finder = {
  types: ["microsoft.datafactory/factories"],
  parts: ["microsoft.datafactory/factories/linkedservices"],
  kind: () => "dataFactory",
  properties: "none",

  async find(row, { names, dataFactory, signal }) {
    const { entries, unreadable } = await dataFactory.linkedServices(row.id, signal);
    const vaults = vaultsOf(entries, names);
    const places: Place[] = entries.flatMap((service) =>
      secretsIn(service.typeProperties).map(({ field, secret }) => ({
        evidence: `linkedservices/${service.name}/${field}`,
        text: secret,
        refresh: { how: "automatic", slowestSeconds: MINUTE_SECONDS },
      })),
    );
    const { uses, failures } = usesIn(row, places, (secret) => assetOf(secret as Record<string, unknown>, vaults));
    return { uses, failures: [...unreadable, ...failures] };
  },
};

/** Returns the linked services that are key vaults, by name. */
function vaultsOf(services: readonly LinkedService[], names: KeyVaultNames): Map<string, string> {
  const found = new Map<string, string>();
  for (const { name, type, typeProperties } of services) {
    const vault = type === "AzureKeyVault" ? names.ofVaultUrl(typeProperties.baseUrl) : undefined;
    if (vault) found.set(name, vault.vaultName);
  }
  return found;
}

/** Maximum depth of the search. Linked services are much flatter. */
const DEEPEST = 12;

/** Returns the fields that are secrets of a key vault, at any depth. */
function secretsIn(value: unknown, field = "", depth = 0): { field: string; secret: Record<string, unknown> }[] {
  if (typeof value !== "object" || value === null || depth > DEEPEST) return [];
  if ("type" in value && value.type === "AzureKeyVaultSecret") {
    return [{ field, secret: value as Record<string, unknown> }];
  }
  return Object.entries(value).flatMap(([name, inner]) =>
    secretsIn(inner, field === "" ? name : `${field}.${name}`, depth + 1),
  );
}

/** Names the whole vault if only a run can evaluate the name of the secret. */
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

/** Matches expressions: https://learn.microsoft.com/azure/data-factory/control-flow-expression-language-functions */
const isExpression = (value: unknown): boolean =>
  typeof value === "string"
    ? value.startsWith("@")
    : typeof value === "object" && value !== null && "type" in value && value.type === "Expression";
