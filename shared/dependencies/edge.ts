import * as z from "zod";
import { ASSET_TYPES } from "../inventory/asset.ts";

/** Kinds of resources that can use an asset. */
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
  /** A principal with a role or an access policy that lets it read. */
  "principal",
] as const;
export type ConsumerKind = (typeof CONSUMER_KINDS)[number];

/** A resource that uses an asset, or may use it. */
export const Resource = z.object({
  /** For Azure the resource ID in its original spelling. For other systems an ID that starts with the system. */
  id: z.string(),
  kind: z.enum(CONSUMER_KINDS),
  name: z.string(),
  subscriptionId: z.string().optional(),
  /** Value of the tag `environment`, `env` or `stage`. */
  environment: z.string().optional(),
  /** Tool that writes the resource's settings, such as Terraform. It reverts manual changes. */
  managedBy: z.string().optional(),
  /** For a principal: ID of the resource whose managed identity it is. */
  identityOf: z.string().optional(),
});
export type Resource = z.infer<typeof Resource>;

/**
 * How a consumer gets a new version of the asset. `automatic`: without help within `slowestSeconds`. `action`: after a refresh.
 * `blind`: at a time that can't be observed. `willBreak`: never, because the consumer is pinned to a version or stores a copy.
 */
export const Refresh = z.object({
  how: z.enum(["automatic", "action", "blind", "willBreak"]),
  slowestSeconds: z.int().optional(),
});
export type Refresh = z.infer<typeof Refresh>;

/** Returns the resource ID of a principal. */
export const principalId = (objectId: string): string => `entra/${objectId.toLowerCase()}`;

/**
 * Returns the text that a dependency has instead of a vault name if the consumer uses a client secret of an application of this
 * tenant.
 */
export const applicationVaultName = (tenantId: string): string => `entra.${tenantId.toLowerCase()}`;

/** A dependency: one use of one asset by one resource. Contains names, never a value. */
export const Edge = z.object({
  /**
   * For a client secret of an application: `entra.<tenant id>`, which can't be a vault name. `type` is then `secret` and `name`
   * is the application's client ID, all in lower case.
   */
  vaultName: z.string(),
  /** Without type and name the dependency is on the whole vault. */
  type: z.enum(ASSET_TYPES).optional(),
  name: z.string().optional(),
  resource: Resource,
  /**
   * `references`: the resource's configuration names the asset. `entitled`: the resource has access. `observed`: a log contains
   * a read.
   */
  strength: z.enum(["references", "entitled", "observed"]),
  /** Name of the setting, variable, field or role. */
  evidence: z.string(),
  /** The version that the reference names. */
  pinned: z.string().optional(),
  refresh: Refresh,
  /** For `observed`: the day (UTC) of the last logged read, such as `2026-11-22`. */
  lastReadOn: z.string().optional(),
  /** Whether the resource stores a copy of the value, which only a refresh replaces. */
  copy: z.boolean().optional(),
  /** For a copy of keys of an Azure resource: the names of the keys, which can be others than the asset stores. */
  keyNames: z.array(z.string()).optional(),
  /** For a certificate: the host names at which the consumer serves it. */
  hosts: z.array(z.string()).optional(),
  /** Whether the platform can resolve the reference now, with its own status, such as `AccessToKeyVaultDenied`. */
  state: z.object({ resolved: z.boolean(), status: z.string(), version: z.string().optional() }).optional(),
});
export type Edge = z.infer<typeof Edge>;
