/** Display texts for the API's dependency enums, for filters, lists and the graph. */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Dependency = Schemas["Dependency"];

/** The kind of evidence that a resource uses an asset. Texts continue a sentence whose subject is the resource. */
export const STRENGTHS = {
  references: "its configuration references the asset",
  entitled: "it has permission to read the asset",
  observed: "a log shows that it read the asset",
} as const satisfies Record<Dependency["strength"], string>;

/** What happens to a consumer when the asset gets a new version. Short, because a badge doesn't wrap. */
export const REFRESHES = {
  automatic: "updates automatically",
  action: "needs an update or restart",
  blind: "effect unknown",
  willBreak: "keeps the old value",
} as const satisfies Record<Dependency["refresh"]["how"], string>;

/** The explanation of each effect, for a legend. */
export const REFRESH_MEANINGS = {
  automatic: "it reads the new value by itself",
  action: "a rotation updates or restarts it; until then, it uses the old value",
  blind: "the service can't see whether or when it uses a new value",
  willBreak: "it stops working when the old value becomes invalid, unless someone changes it",
} as const satisfies Record<Dependency["refresh"]["how"], string>;

/** Kinds of consumers, named as in Azure. */
const KINDS = {
  webApp: "web app",
  functionApp: "function app",
  containerApp: "container app",
  containerAppJob: "container app job",
  containerAppsCertificate: "certificate of container apps",
  apiManagement: "API Management",
  applicationGateway: "application gateway",
  frontDoor: "Front Door",
  dataFactory: "data factory",
  logicApp: "logic app",
  apiConnection: "API connection",
  appConfiguration: "App Configuration",
  appServiceCertificate: "App Service certificate",
  storageAccount: "storage account",
  sqlServer: "SQL server",
  diskEncryptionSet: "disk encryption set",
  kubernetesCluster: "Kubernetes cluster",
  virtualMachine: "virtual machine",
  machineLearning: "Machine Learning",
  devopsVariableGroup: "Azure DevOps variable group",
  devopsServiceConnection: "Azure DevOps service connection",
  syncRecord: "sync record",
  principal: "user, group or application",
} as const satisfies Record<Dependency["resource"]["kind"], string>;

/** Directory types at the start of the name of a principal whose display name is unknown, such as "User <object ID>". */
const PRINCIPAL_TYPES: Record<string, string> = {
  ServicePrincipal: "service principal",
  User: "user",
  Group: "group",
  ForeignGroup: "group of another tenant",
  Device: "device",
  Principal: "user, group or application",
};

/** The name of a principal without a display name: its directory type and object ID. */
const NAMELESS = /^(\w+) ([\da-f-]{36})$/i;

/** Returns whether a consumer is a user, group or application without a known name. Azure then gives only the object ID. */
export const isNameless = ({ name, kind }: { name: string; kind: string }): boolean =>
  kind === "principal" && NAMELESS.test(name);

/**
 * Returns the name of a consumer with its kind and environment. A principal without a display name is shown by its object ID. The
 * identity of a resource has the name of the resource, so its kind says that it is an identity.
 */
export function consumerTitle(consumer: {
  name: string;
  kind: string;
  environment: string | null;
  identityOf?: string | null;
}): string {
  if (consumer.identityOf) return `${isolated(consumer.name)} (managed identity of the resource)`;
  const [, type = "", id] = NAMELESS.exec(consumer.name) ?? [];
  const typeText = PRINCIPAL_TYPES[type];
  if (consumer.kind === "principal" && id !== undefined && typeText !== undefined)
    return `${typeText.charAt(0).toUpperCase()}${typeText.slice(1)} ${id}`;
  return `${isolated(consumer.name)} (${kindOf(consumer)})`;
}

/**
 * Names of the sources in which dependency discovery searches for consumers. Lists of scopes that could not be read use them too:
 * if a whole source could not be read, the API names the source in place of a resource.
 */
export const SOURCES: Record<string, string> = {
  azure: "Azure",
  devops: "Azure DevOps",
  sync: "Sync",
  logs: "Logs",
  literals: "App settings with plaintext copies",
};

/**
 * Returns a sentence of the API about a scope that could not be searched, which starts with the scope: the name of a source, or an
 * ID. The sentence names a subscription itself, so its ID is left out.
 */
export function scopeText(sentence: string): string {
  const [, scope = "", rest = ""] = /^(\S+): (.+)$/s.exec(sentence) ?? [];
  if (rest === "") return sentence;
  const name = scope.startsWith("/") ? scope.split("/").at(-1)! : (SOURCES[scope] ?? scope);
  return rest.includes(`subscription ${scope}`) ? rest : `${name}: ${rest}`;
}

/** Parts of an evidence that name a list of settings of a resource, in the words of the Azure portal. */
const EVIDENCE: readonly [RegExp, string][] = [
  [/^appsettings\//i, "app setting "],
  [/^connectionstrings\//i, "connection string "],
  [/^secrets\//i, "secret "],
];

/** Returns the evidence of a dependency as text, such as "app setting DB_PASSWORD" for `appsettings/DB_PASSWORD`. */
export function evidenceText(evidence: string): string {
  const partText = (part: string) => {
    const known = EVIDENCE.find(([start]) => start.test(part));
    return known ? part.replace(...known) : part;
  };
  return isolated(evidence.split(", ").map(partText).join(", "));
}

/** Returns the kind of a consumer, with its environment if known. For assets, which graphs contain too, returns their type. */
export const kindOf = ({ kind, environment }: { kind: string; environment: string | null }): string => {
  const text = (KINDS as Record<string, string>)[kind] ?? kind;
  return environment === null ? text : `${text}, ${isolated(environment)}`;
};

/** Returns whether a node of a graph is an asset. The others are consumers. */
export const isAsset = ({ kind }: { kind: string }): boolean => ["secret", "key", "certificate"].includes(kind);

/**
 * Returns whether the ID of an asset is that of a credential outside key vaults: `entra.<tenant>.…` or `b2c.<tenant>.…`. The ID
 * of a vault's asset has the type in the second place.
 */
export const isCredential = (assetId: string): boolean => /^(entra|b2c)\.[\da-f-]{36}\./.test(assetId);
