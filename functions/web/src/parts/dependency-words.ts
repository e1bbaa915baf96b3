/** What the API's words mean, for filters, lists and the picture alike. */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Dependency = Schemas["Dependency"];

/** How it is known that somebody uses an asset. */
export const STRENGTHS = {
  references: "its configuration names the asset",
  entitled: "it may read it",
  observed: "a log has seen it",
} as const satisfies Record<Dependency["strength"], string>;

/** What a new version of the asset does to who uses it. */
export const REFRESHES = {
  automatic: "takes it by itself",
  action: "takes it when told to",
  blind: "nobody can see when it takes it",
  willBreak: "goes on with the old one, and breaks",
} as const satisfies Record<Dependency["refresh"]["how"], string>;

/** What uses an asset, in Azure's own names. */
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
  syncRecord: "copy in another store",
  principal: "principal",
} as const satisfies Record<Dependency["resource"]["kind"], string>;

/** What somebody is who uses an asset, and where. In a picture it may be an asset that others are made of. */
export const kindOf = ({ kind, environment }: { kind: string; environment: string | null }): string => {
  const words = (KINDS as Record<string, string>)[kind] ?? kind;
  return environment === null ? words : `${words}, ${isolated(environment)}`;
};
