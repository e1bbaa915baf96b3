import * as z from "zod";
import { MINUTE_SECONDS } from "../../platform/time.ts";
import { type ConfigLocation, type Finder, propertiesOf, usesIn } from "./finder.ts";
import { ASSET_NAME, type NamedAsset, VAULT_NAME } from "./key-vault-names.ts";

const text = z.string().nullish();
const connections = z.record(z.string(), z.object({ connectionId: text }));
const workflow = z.object({
  definition: z.record(z.string(), z.unknown()).nullish(),
  parameters: z.object({ $connections: z.object({ value: connections.nullish() }).nullish() }).nullish(),
});
const parameters = z.record(z.string(), z.unknown()).nullish();
const connection = z.object({
  api: z.object({ name: text, id: text }).nullish(),
  parameterValues: parameters,
  alternativeParameterValues: parameters,
});

/** Each run of a workflow reads the secret, so a new value is used within a minute. */
const REFRESH = { how: "automatic", slowestSeconds: MINUTE_SECONDS } as const;

/** Returns the vault that a connection of the Azure Key Vault connector opens. */
export function vaultOfConnection(properties: unknown): string | undefined {
  const { api, parameterValues, alternativeParameterValues } = connection.safeParse(properties).data ?? {};
  if (!/(^|\/)keyvault$/i.test(api?.name ?? api?.id ?? "")) return undefined;
  const name = parameterValues?.vaultName ?? alternativeParameterValues?.vaultName;
  return typeof name === "string" && VAULT_NAME.test(name) ? name : undefined;
}

/**
 * Finds connections of the Azure Key Vault connector. They open a whole vault.
 *
 * subscription-reading.ts calls `find` for each connection that Resource Graph returns.
 */
export const apiConnection: Finder = {
  types: ["microsoft.web/connections"],
  kind: () => "apiConnection",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  find(row) {
    const vaultName = vaultOfConnection(row.properties);
    return { uses: vaultName ? [{ asset: { vaultName }, evidence: "vaultName", refresh: REFRESH }] : [] };
  },
};

/** Finds references of Logic Apps (Consumption): actions and triggers that get a secret through a Key Vault connection. */
export const logicApp: Finder = {
  types: ["microsoft.logic/workflows"],
  kind: () => "logicApp",
  properties: "namingVault",

  async find(row, { vaultOfConnection }) {
    const { definition, parameters } = propertiesOf(row, workflow);
    // Vault names by connection: actions and triggers name their connection by its key in the parameter `$connections`.
    const byParameter = new Map<string, string>();
    for (const [name, { connectionId }] of Object.entries(parameters?.$connections?.value ?? {})) {
      const vault = connectionId ? await vaultOfConnection(connectionId) : undefined;
      if (vault) byParameter.set(name, vault);
    }
    const locations: ConfigLocation[] = operationsOf(definition).flatMap(({ name, inputs }) => {
      const vaultName = byParameter.get(connectionParameterOf(inputs));
      const { path } = inputs;
      if (vaultName === undefined || typeof path !== "string" || !/^\/secrets\//i.test(path)) return [];
      // Triggers have the same prefix, because the search does not distinguish them from actions.
      return [{ evidence: `actions/${name}`, text: { vaultName, path }, refresh: REFRESH }];
    });
    return usesIn(row, locations, assetOf);
  },
};

/** Inputs of an action or trigger in a workflow definition. */
type Inputs = Record<string, unknown>;

/** Maximum depth of nested objects. The designer allows 8 levels of actions. */
const MAX_DEPTH = 40;

/** Returns the actions and triggers of a workflow that have inputs, down to MAX_DEPTH. */
function operationsOf(definition: unknown, depth = 0): { name: string; inputs: Inputs }[] {
  if (typeof definition !== "object" || definition === null || depth > MAX_DEPTH) return [];
  return Object.entries(definition).flatMap(([name, inner]) => {
    const inputs = typeof inner === "object" && inner !== null ? (inner as { inputs?: unknown }).inputs : undefined;
    const operation = typeof inputs === "object" && inputs !== null ? [{ name, inputs: inputs as Inputs }] : [];
    return [...operation, ...operationsOf(inner, depth + 1)];
  });
}

/** Returns the key of the connection of an action or trigger in the parameter `$connections`; "" if it has none. */
function connectionParameterOf({ host }: Inputs): string {
  const name = (host as { connection?: { name?: unknown } } | null | undefined)?.connection?.name;
  return (typeof name === "string" && /^@parameters\('\$connections'\)\['([^']+)'\]/.exec(name)?.[1]) || "";
}

/**
 * Parses `/secrets/@{encodeURIComponent('name')}/value`, with `versions/<version>` before `value` if the reference is pinned.
 * Returns the whole vault if only a run can evaluate the name.
 */
function assetOf(text: unknown): NamedAsset | undefined {
  const { vaultName, path } = text as { vaultName: string; path: string };
  const segments = path.split("/").slice(2).map(unwrapLiteral);
  const [name, second, version] = segments;
  if (name?.startsWith("@")) return { vaultName };
  if (!name || !ASSET_NAME.test(name)) return undefined;
  if (second === "value") return { vaultName, type: "secret", name };
  return second === "versions" && version && /^[0-9a-f]{32}$/i.test(version)
    ? { vaultName, type: "secret", name, version }
    : undefined;
}

/**
 * Returns the text of a segment that is an expression with a literal text, as the designer writes it. Returns other segments
 * unchanged.
 */
const unwrapLiteral = (segment: string): string =>
  /^@\{(?:encodeURIComponent\()*'([^']*)'\)*\}$/.exec(segment)?.[1] ?? segment;
