import type { CloudClock } from "../clock.ts";
import type { Company } from "../company/company.ts";
import type { CompanyChild, CompanyResource } from "../company/resources.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import type { Vault } from "../vaults/vault.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import { generatedSite, generatedSiteIndex, SITES_IDENTITY } from "./generated-sites.ts";
import { allPrincipalsOf, type ManagedIdentity, managedIdentity, userIdentity, userIdentityId } from "./identities.ts";
import { replacePlaceholders, vaultsInPlaceholders } from "./placeholders.ts";
import { type ResourceType, resourceType } from "./resource-types.ts";
import { VaultAccess } from "./vault-access.ts";

// The store behind the simulated Azure Resource Manager: all resources of the company except vaults, subscriptions and
// roles.

export type Properties = Record<string, unknown>;

/** The current state of one of the company's resources. */
export interface ArmResource {
  /** The resource ID, in the declared spelling. */
  id: string;
  type: ResourceType;
  name: string;
  subscriptionId: string;
  location: string;
  kind?: string;
  tags?: Record<string, string>;
  sku?: Record<string, unknown>;
  identity?: ManagedIdentity;
  /** `properties` as responses contain them. */
  properties: Properties;
  /** Whether the service's identity is denied access. */
  denied: boolean;
  /** App settings. */
  settings: Record<string, string>;
  connectionStrings: Record<string, { value: string; type: string }>;
  /** Names of settings that stay with a slot when slots are swapped. */
  slotSettings: string[];
  /** Key-values of an App Configuration store. */
  keyValues: NonNullable<CompanyChild["keyValues"]>;
  /**
   * Vault secrets whose value is written in plain text, by place: `appsettings/NAME`, `connectionstrings/NAME` or
   * `secrets/NAME`.
   */
  copies: Record<string, { vault: string; secret: string }>;
  /** Earlier states as Resource Graph rows, oldest first. `until` is Unix milliseconds of the simulated clock. */
  earlierStates: { until: number; toGraphRow: Properties }[];
}

/** A change of a resource, for Resource Graph. */
export interface ArmChange {
  id: string;
  type: string;
  subscriptionId: string;
  changeType: "Create" | "Update" | "Delete";
  /** Unix milliseconds of the simulated clock. */
  at: number;
}

/** Requests that a storage account answered on one day, as Azure Monitor counts them. */
export interface StorageTransactions {
  /** ID of the account, in lower case. */
  id: string;
  /** Unix milliseconds. */
  at: number;
  authentication: "AccountKey" | "SAS" | "OAuth" | "Anonymous";
  count: number;
}

interface StoreOptions {
  resources: VaultStore;
  clock: CloudClock;
  tenantId: string;
  vaultUri(vault: Vault): string;
  /** Returns the URL of a host of this cloud. */
  origin(host: string): string;
}

/** Stores the company's resources other than vaults, and which identity can read which vault. The store is in memory. */
export class ArmStore {
  readonly #options: StoreOptions;
  /** Resources by ID in lower case. */
  readonly #resources = new Map<string, ArmResource>();
  /** Number of generated sites, by subscription. A generated site is created when it is read, so that many cost no memory. */
  readonly #generated = new Map<string, number>();
  /** Which identity can read which vault. */
  readonly access = new VaultAccess();
  /** All changes since the start, oldest first. */
  readonly changes: ArmChange[] = [];
  /** Requests of storage accounts, for metrics. */
  readonly transactions: StorageTransactions[] = [];
  readonly tenantId: string;

  constructor(company: Company, options: StoreOptions) {
    this.#options = options;
    this.tenantId = options.tenantId;
    for (const { name, resources = [], roleAssignments = [], generate } of company.subscriptions) {
      const subscriptionId = this.#subscriptionNamed(name);
      for (const declared of resources) this.#add(subscriptionId, declared);
      for (const { principal, principalType = "ServicePrincipal", role, vault, managementGroup } of roleAssignments) {
        const group = managementGroup && `/providers/Microsoft.Management/managementGroups/${managementGroup}`;
        const scope = group ?? (vault === undefined ? `/subscriptions/${subscriptionId}` : this.#vault(vault).id);
        this.access.assign(guidFrom(`principal ${principal}`), principalType, role, scope);
      }
      if (generate?.sites) {
        this.#generated.set(subscriptionId, generate.sites);
        const scope = `/subscriptions/${subscriptionId}`;
        this.access.assign(
          userIdentity(SITES_IDENTITY).principalId,
          "ServicePrincipal",
          "Key Vault Secrets User",
          scope,
        );
      }
    }
  }

  /** Returns a resource by its ID in any spelling, a generated site too. Undefined if there is none. */
  get(id: string): ArmResource | undefined {
    const stored = this.#resources.get(id.toLowerCase());
    if (stored !== undefined) return stored;
    const [, , subscription = ""] = id.toLowerCase().split("/");
    const index = generatedSiteIndex(id, this.#generated.get(subscription) ?? 0);
    return index === undefined ? undefined : this.#generateSite(subscription, index);
  }

  /** Iterates over all resources of a subscription in a fixed order. Each resource is created when it is read. */
  *resourcesIn(subscriptionId: string): Generator<{ type: ResourceType; read(): ArmResource }> {
    const subscription = subscriptionId.toLowerCase();
    const storedResources = [...this.#resources.values()].filter((one) => one.subscriptionId === subscription);
    const generated = this.#generated.get(subscription) ?? 0;
    for (const one of storedResources) {
      // A generated site that was changed is stored too. The loop below returns it at its place among the generated ones.
      const index = generatedSiteIndex(one.id, generated);
      if (index === undefined) yield { type: one.type, read: () => one };
    }
    const type = resourceType("Microsoft.Web/sites")!;
    for (let index = 0; index < generated; index++) yield { type, read: () => this.#generateSite(subscription, index) };
  }

  /** Iterates over all stored resources. Generated sites are not included. */
  all(): IterableIterator<ArmResource> {
    return this.#resources.values();
  }

  /** Returns the direct child resources of a resource. */
  childrenOf(parent: ArmResource, type: ResourceType): ArmResource[] {
    const start = `${parent.id.toLowerCase()}/`;
    return [...this.#resources.values()].filter((one) => one.type === type && one.id.toLowerCase().startsWith(start));
  }

  /** Changes a resource. A generated resource is stored from then on. */
  change(resource: ArmResource, change: (resource: ArmResource) => void): void {
    const at = this.#options.clock.now();
    resource.earlierStates.push({ until: at, toGraphRow: this.toGraphRow(resource) });
    change(resource);
    this.#resources.set(resource.id.toLowerCase(), resource);
    this.#recordChange(resource, "Update", at);
  }

  /**
   * Adds or replaces a resource.
   * @returns its ID
   */
  put(subscriptionId: string, declared: CompanyResource): string {
    const { resource, replaced } = this.#add(subscriptionId.toLowerCase(), declared);
    const at = this.#options.clock.now();
    // A new resource has an empty row as its earlier state: it did not exist. A replaced resource loses its earlier states, so
    // Resource Graph shows the new declaration at once, without its lag.
    if (!replaced) resource.earlierStates.push({ until: at, toGraphRow: {} });
    this.#recordChange(resource, replaced ? "Update" : "Create", at);
    return resource.id;
  }

  /** Deletes a resource and its child resources. A generated site is then generated again. */
  remove(id: string): boolean {
    const resource = this.get(id);
    if (resource === undefined) return false;
    for (const key of this.#resources.keys()) {
      if (key === id.toLowerCase() || key.startsWith(`${id.toLowerCase()}/`)) this.#resources.delete(key);
    }
    this.#recordChange(resource, "Delete", this.#options.clock.now());
    return true;
  }

  /**
   * Grants or revokes all identities of a resource read access to a vault.
   * @throws {Error} if there is no such vault.
   */
  allow({ identity, type }: ArmResource, vaultName: string, allowed: boolean): void {
    const vault = this.#vault(vaultName);
    const role = USES_VAULT_KEY.has(type.noun) ? "Key Vault Crypto Service Encryption User" : "Key Vault Secrets User";
    for (const principal of allPrincipalsOf(identity)) {
      if (allowed) this.access.grant(principal, vault, role);
      else this.access.revoke(principal, vault);
    }
  }

  /** Returns a resource in the form of Azure Resource Manager. */
  toArmBody(resource: ArmResource): Properties {
    const { id, type, kind, location, tags, sku, identity } = resource;
    return {
      id,
      name: fullName(resource),
      type: type.type,
      ...(kind !== undefined && { kind }),
      ...(!isChild(type) && { location }),
      ...(tags !== undefined && { tags }),
      ...(sku !== undefined && { sku }),
      ...(identity !== undefined && { identity }),
      properties: withoutValues(resource.properties),
    };
  }

  /** Returns a resource in the form of a Resource Graph row without projection. */
  toGraphRow(resource: ArmResource): Properties {
    const { id, type, subscriptionId, location, kind = "", tags = null, sku = null, identity = null } = resource;
    return {
      id,
      name: fullName(resource),
      type: type.type.toLowerCase(),
      tenantId: this.tenantId,
      kind,
      location,
      resourceGroup: id.split("/")[4]!.toLowerCase(),
      subscriptionId,
      managedBy: "",
      sku,
      plan: null,
      properties: structuredClone(withoutValues(resource.properties)),
      tags,
      identity,
      zones: null,
      extendedLocation: null,
    };
  }

  #recordChange({ id, type, subscriptionId }: ArmResource, changeType: ArmChange["changeType"], at: number): void {
    this.changes.push({ id, type: type.type.toLowerCase(), subscriptionId, changeType, at });
  }

  #add(subscriptionId: string, declared: CompanyResource): { resource: ArmResource; replaced: boolean } {
    const group = declared.resourceGroup ?? "rg-apps";
    const pathPrefix = `/subscriptions/${subscriptionId}/resourceGroups/${group}/providers`;
    const id = `${pathPrefix}/${declared.type}/${declared.name}`;
    const replaced = this.#resources.has(id.toLowerCase());
    return { resource: this.#declare(subscriptionId, declared.type, id, declared, undefined), replaced };
  }

  #declare(
    subscriptionId: string,
    typeName: string,
    id: string,
    declared: CompanyChild,
    parent: ArmResource | undefined,
  ): ArmResource {
    const type = resourceType(typeName);
    if (type === undefined) throw new Error(`Unsupported resource type ${typeName}`);
    const resource = this.#createResource(subscriptionId, type, id, declared, parent);
    this.#resources.set(id.toLowerCase(), resource);
    const { properties, settings, connectionStrings, keyValues } = declared;
    const texts = { properties, settings, connectionStrings, keyValues };
    for (const vault of declared.mayRead ?? vaultsInPlaceholders(texts)) {
      // A resource may refer to a vault that does not exist.
      if (this.#options.resources.vault(vault) !== undefined)
        this.allow(parentWithIdentity(resource, parent), vault, true);
    }
    for (const [collection, children] of Object.entries(declared.children ?? {})) {
      for (const child of children) {
        this.#declare(
          subscriptionId,
          `${type.type}/${collection}`,
          `${id}/${collection}/${child.name}`,
          child,
          resource,
        );
      }
    }
    return resource;
  }

  #createResource(
    subscriptionId: string,
    type: ResourceType,
    id: string,
    declared: CompanyChild,
    parent: ArmResource | undefined,
  ): ArmResource {
    const { name, location = parent?.location ?? "westeurope", kind, tags, sku, denied = false } = declared;
    const { settings = {}, connectionStrings = {}, slotSettings = [] } = declared;
    const placeholderSources = {
      ...this.#options,
      identityId: (user: string) => userIdentityId(subscriptionId, user),
      resourceId: (other: string) => `${id.split("/").slice(0, 6).join("/")}/${other}`,
    };
    const { properties = {}, keyValues = [] } = declared;
    const replaced = replacePlaceholders({ properties, settings, connectionStrings, keyValues }, placeholderSources);
    return {
      id,
      type,
      name,
      subscriptionId,
      location,
      ...(kind !== undefined && { kind }),
      ...(tags !== undefined && { tags }),
      ...(sku !== undefined && { sku }),
      ...(declared.identity && { identity: managedIdentity(id, this.tenantId, declared.identity) }),
      ...replaced,
      properties: { provisioningState: "Succeeded", ...this.#endpoints(type, name), ...replaced.properties },
      denied,
      slotSettings,
      copies: copiesIn(settings, connectionStrings, declared.properties),
      earlierStates: [],
    };
  }

  /** Returns the properties with the address of a resource that has a service in this cloud. */
  #endpoints({ noun }: ResourceType, name: string): Properties {
    const origin = (domain: string) => this.#options.origin(`${name.toLowerCase()}.${domain}`);
    const host = (domain: string) => new URL(origin(domain)).host;
    switch (noun) {
      case "ConfigurationStore":
        return { endpoint: this.#options.origin(configurationHost(name)) };
      case "StorageAccount":
        return { primaryEndpoints: { blob: `${origin("blob.localhost")}/`, queue: `${origin("queue.localhost")}/` } };
      case "AiServicesAccount":
        return { endpoint: `${origin("cognitiveservices.localhost")}/` };
      case "SearchService":
        return { endpoint: origin("search.localhost") };
      case "CosmosAccount":
        return { documentEndpoint: `${origin("documents.localhost")}/` };
      case "ServiceBusNamespace":
      case "EventHubNamespace":
        return { serviceBusEndpoint: `${origin("servicebus.localhost")}/` };
      case "SignalR":
        return { hostName: host("signalr.localhost") };
      case "WebPubSub":
        return { hostName: host("webpubsub.localhost") };
      case "BatchAccount":
        return { accountEndpoint: host("batch.localhost") };
      case "ContainerRegistry":
        return { loginServer: host("azurecr.localhost") };
      default:
        return {};
    }
  }

  #generateSite(subscriptionId: string, index: number): ArmResource {
    const declared = generatedSite(index, [
      ...(this.#options.resources.subscriptions.get(subscriptionId)?.vaults ?? []),
    ]);
    const id = `/subscriptions/${subscriptionId}/resourceGroups/${declared.resourceGroup}/providers/${declared.type}/${declared.name}`;
    return (
      this.#resources.get(id.toLowerCase()) ??
      this.#createResource(subscriptionId, resourceType(declared.type)!, id, declared, undefined)
    );
  }

  #vault(name: string): Vault {
    const vault = this.#options.resources.vault(name);
    if (vault === undefined) throw new Error(`Unknown vault ${name}`);
    return vault;
  }

  #subscriptionNamed(name: string): string {
    for (const { id, declared } of this.#options.resources.subscriptions.values())
      if (declared.name === name) return id;
    // A test removed the subscription in an earlier run with the same data folder.
    return guidFrom(`subscription ${name}`);
  }
}

/** Returns the host name of an App Configuration store. */
export const configurationHost = (store: string): string => `${store.toLowerCase()}.azconfig.localhost`;

/** Types whose encryption keys are wrapped by a vault key, so that they need a role for keys. */
const USES_VAULT_KEY = new Set([
  "StorageAccount",
  "SqlServer",
  "EncryptionProtector",
  "DiskEncryptionSet",
  "ManagedCluster",
]);

const isChild = ({ type, noun }: ResourceType): boolean => type.split("/").length > 2 && noun !== "Slot";

/** Returns the `name` of a resource: `site/slot` for a slot, the last segment for every other child resource. */
export const fullName = ({ id, type, name }: ArmResource): string =>
  type.noun === "Slot" ? `${id.split("/").at(-3)}/${name}` : name;

/** Returns a container app's secrets without their values. */
function withoutValues(properties: Properties): Properties {
  const { configuration } = properties as { configuration?: { secrets?: { value?: string }[] } };
  if (configuration?.secrets === undefined) return properties;
  const secrets = configuration.secrets.map(({ value: _, ...rest }) => rest);
  return { ...properties, configuration: { ...configuration, secrets } };
}

/**
 * Returns the resource whose identity reads vaults: the parent of a child resource, unless the child has an identity of its own
 * as slots do.
 */
const parentWithIdentity = (resource: ArmResource, parent: ArmResource | undefined): ArmResource =>
  resource.identity === undefined && parent !== undefined ? parent : resource;

/** Finds the `{value:…}` placeholders in a declaration: secrets whose value is written in plain text. */
function copiesIn(
  settings: Record<string, string>,
  connectionStrings: Record<string, { value: string }>,
  properties: Properties | undefined,
): ArmResource["copies"] {
  const { secrets = [] } = (properties?.configuration ?? {}) as { secrets?: { name: string; value?: string }[] };
  const texts = [
    ...Object.entries(settings).map(([name, value]) => [`appsettings/${name}`, value] as const),
    ...Object.entries(connectionStrings).map(([name, { value }]) => [`connectionstrings/${name}`, value] as const),
    ...secrets.map(({ name, value = "" }) => [`secrets/${name}`, value] as const),
  ];
  return Object.fromEntries(
    texts.flatMap(([name, text]) => {
      const [, vault, secret] = /\{value:([^/}]+)\/([^}]+)\}/.exec(text) ?? [];
      return vault === undefined || secret === undefined ? [] : [[name, { vault, secret }]];
    }),
  );
}
