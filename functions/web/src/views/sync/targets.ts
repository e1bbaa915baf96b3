import type { Schemas } from "../../api/client.ts";

type Provider = Schemas["NewSyncRecord"]["targetProvider"];

export const PROVIDER_NAMES = {
  azure: "Azure Key Vault",
  aws: "AWS",
  hashicorp: "HashiCorp Vault",
  google: "Google Cloud",
  github: "GitHub",
  kubernetes: "Kubernetes",
} as const satisfies Record<Provider, string>;

/** Names of the services that store secrets. */
const SERVICE_NAMES = {
  keyvault: "Key vault",
  secretsmanager: "Secrets Manager",
  parameterstore: "Parameter Store",
  kv: "KV secrets engine",
  secretmanager: "Secret Manager",
  actions: "Actions secret",
  secret: "Secret",
} as const;

/** The services of each provider that store secrets. */
export const SERVICES = {
  azure: ["keyvault"],
  aws: ["secretsmanager", "parameterstore"],
  hashicorp: ["kv"],
  google: ["secretmanager"],
  github: ["actions"],
  kubernetes: ["secret"],
} as const satisfies Record<Provider, readonly string[]>;

/** Returns the services of a provider with their display names. */
export const serviceNames = <P extends Provider>(provider: P) =>
  Object.fromEntries(SERVICES[provider].map((service) => [service, SERVICE_NAMES[service]])) as Record<
    (typeof SERVICES)[P][number],
    string
  >;

/** The label of a target's location. The other providers have the location in their configuration. */
const LOCATION_NAMES: Partial<Record<Provider, string>> = { azure: "", aws: "region " };

/** Returns the target of a sync record as one line, such as "AWS, Secrets Manager, region eu-west-1, name db". */
export function targetText({ targetProvider, targetService, targetRegion, targetName }: Schemas["SyncRecord"]): string {
  // The service of Azure Key Vault has the provider's name.
  const service =
    targetProvider === "azure" ? "" : ((SERVICE_NAMES as Record<string, string>)[targetService] ?? targetService);
  const location = targetRegion && `${LOCATION_NAMES[targetProvider] ?? "location "}${targetRegion}`;
  return [PROVIDER_NAMES[targetProvider], service, location, `name ${targetName}`].filter(Boolean).join(", ");
}
