/** Display texts for the API's dependency enums, for filters, lists and the graph. */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Dependency = Schemas["Dependency"];

/** The kind of evidence that a resource uses an asset. */
export const STRENGTHS = {
  references: "configuration reference",
  entitled: "has access",
  observed: "read found in logs",
} as const satisfies Record<Dependency["strength"], string>;

/** What happens to a consumer when the asset gets a new version. */
export const REFRESHES = {
  automatic: "updates automatically",
  action: "needs an update or restart",
  blind: "update can't be observed",
  willBreak: "keeps the old version and breaks",
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
  principal: "principal",
} as const satisfies Record<Dependency["resource"]["kind"], string>;

/** Returns the kind of a consumer, with its environment if known. For assets, which graphs contain too, returns their type. */
export const kindOf = ({ kind, environment }: { kind: string; environment: string | null }): string => {
  const text = (KINDS as Record<string, string>)[kind] ?? kind;
  return environment === null ? text : `${text}, ${isolated(environment)}`;
};
