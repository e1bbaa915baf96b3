import * as z from "zod";
import { ASSET_TYPES } from "../inventory/asset.ts";

/** What can use an asset of a key vault. */
export const CONSUMER_KINDS = [
  "webApp",
  "functionApp",
  "containerApp",
  "containerAppJob",
  "containerAppsCertificate",
  "apiManagement",
  "applicationGateway",
  "frontDoor",
  "dataFactory",
  "logicApp",
  "apiConnection",
  "appConfiguration",
  "appServiceCertificate",
  "storageAccount",
  "sqlServer",
  "diskEncryptionSet",
  "kubernetesCluster",
  "virtualMachine",
  "machineLearning",
  "devopsVariableGroup",
  "devopsServiceConnection",
  "syncRecord",
  /** Who has a role or an access policy that lets it read. */
  "principal",
] as const;
export type ConsumerKind = (typeof CONSUMER_KINDS)[number];

/** Who uses an asset, or may. */
export const Resource = z.object({
  /** Of Azure the resource id, in the spelling in which it was answered; of the others an id that names its system first. */
  id: z.string(),
  kind: z.enum(CONSUMER_KINDS),
  name: z.string(),
  subscriptionId: z.string().optional(),
  /** As its tag `environment`, `env` or `stage` says. */
  environment: z.string().optional(),
  /** Something else writes its settings, such as Terraform: what is changed there by hand comes back. */
  managedBy: z.string().optional(),
  /** Of a principal: the id of the resource whose managed identity it is. */
  identityOf: z.string().optional(),
});
export type Resource = z.infer<typeof Resource>;

/**
 * What becomes of the consumer when the asset gets a new version. `automatic`: it takes it by itself within
 * `slowestSeconds`. `action`: once it is told to. `blind`: nobody can see when. `willBreak`: it is pinned to a version, or
 * holds a copy, and goes on with the old value.
 */
export const Refresh = z.object({
  how: z.enum(["automatic", "action", "blind", "willBreak"]),
  slowestSeconds: z.int().optional(),
});
export type Refresh = z.infer<typeof Refresh>;

/** The id of a principal as a resource. */
export const principalId = (objectId: string): string => `entra/${objectId.toLowerCase()}`;

/** In the place of a vault's name: what uses an application by any of its secrets names the application, not the secret. */
export const applicationHolder = (tenantId: string): string => `entra.${tenantId.toLowerCase()}`;

/** One use of one asset by one resource. Holds names, never a value. */
export const Edge = z.object({
  /**
   * Of a client secret that is looked up by its application `entra.<tenant id>` (no vault can be called so); `type` is then
   * `secret` and `name` the application's client id, all in lower case.
   */
  vaultName: z.string(),
  /** Without type and name: the whole vault. */
  type: z.enum(ASSET_TYPES).optional(),
  name: z.string().optional(),
  resource: Resource,
  /** `references`: its configuration names the asset. `entitled`: it may read. `observed`: a log has seen it read. */
  strength: z.enum(["references", "entitled", "observed"]),
  /** The name of the setting, variable, field or role that says so. */
  evidence: z.string(),
  /** The version that it names. */
  pinned: z.string().optional(),
  refresh: Refresh,
  /** Of one that a log has seen: the day in UTC of its last read, such as `2026-11-22`. */
  lastReadOn: z.string().optional(),
  /** It keeps a copy of the value, which only an action replaces. */
  copy: z.boolean().optional(),
  /** Whether the platform can follow the reference now, by its own word for it, such as `AccessToKeyVaultDenied`. */
  state: z.object({ resolved: z.boolean(), status: z.string(), version: z.string().optional() }).optional(),
});
export type Edge = z.infer<typeof Edge>;
