import type { CloudClock } from "../clock.ts";
import type { Company } from "../company/company.ts";
import { type CompanyChild, type CompanyResource, ROLES, type RoleName } from "../company/resources.ts";
import { guidFrom } from "../resources/identifiers.ts";
import type { Resources } from "../resources/resources.ts";
import type { Vault } from "../resources/vault.ts";
import { generatedSite, generatedSiteIndex, SITES_IDENTITY } from "./generated-sites.ts";
import { filled, vaultsIn } from "./texts.ts";
import { type ResourceType, resourceType } from "./types.ts";

export type Properties = Record<string, unknown>;

/** A resource of the company as it is now. */
export interface ArmResource {
  /** In the spelling in which it was declared. */
  id: string;
  type: ResourceType;
  /** Its own name; in answers those it is below stand before it. */
  name: string;
  subscriptionId: string;
  location: string;
  kind?: string;
  tags?: Record<string, string>;
  sku?: Record<string, unknown>;
  /** As it is answered. */
  identity?: {
    type: string;
    principalId?: string;
    tenantId?: string;
    userAssignedIdentities?: Record<string, UserIdentity>;
  };
  properties: Properties;
  denied: boolean;
  settings: Record<string, string>;
  connectionStrings: Record<string, { value: string; type: string }>;
  slotSettings: string[];
  /** Of an App Configuration store. */
  keyValues: NonNullable<CompanyChild["keyValues"]>;
  /** What is a vault secret's value written out, by `appsettings/NAME`, `connectionstrings/NAME` or `secrets/NAME`. */
  copies: Record<string, { vault: string; secret: string }>;
  /** What it was before each change, oldest first. */
  before: { until: number; row: Properties }[];
}

interface UserIdentity {
  principalId: string;
  clientId: string;
}

/** That somebody has a role; `scope` is a subscription's or a resource's id. */
export interface RoleAssignment {
  id: string;
  name: string;
  scope: string;
  principalId: string;
  principalType: string;
  roleDefinitionId: string;
}

export interface ArmChange {
  id: string;
  type: string;
  subscriptionId: string;
  changeType: "Create" | "Update" | "Delete";
  /** Unix milliseconds of the cloud's clock. */
  at: number;
}

interface StoreOptions {
  resources: Resources;
  clock: CloudClock;
  tenantId: string;
  vaultUri(vault: Vault): string;
  /** The address of a host of this cloud. */
  origin(host: string): string;
}

/** The company's resources beside its vaults, and who may read which vault. They last as long as the process. */
export class ArmStore {
  readonly #options: StoreOptions;
  /** By id in lower case. */
  readonly #resources = new Map<string, ArmResource>();
  /** How many sites are computed rather than kept, by subscription. */
  readonly #generated = new Map<string, number>();
  readonly assignments: RoleAssignment[] = [];
  /** Object ids that a vault with access policies lets read secrets, by its name in lower case. */
  readonly readers = new Map<string, Set<string>>();
  readonly changes: ArmChange[] = [];
  readonly tenantId: string;

  constructor(company: Company, options: StoreOptions) {
    this.#options = options;
    this.tenantId = options.tenantId;
    for (const { name, resources = [], roleAssignments = [], generate } of company.subscriptions) {
      const subscriptionId = this.#subscriptionNamed(name);
      for (const declared of resources) this.#add(subscriptionId, declared);
      for (const { principal, principalType = "ServicePrincipal", role, vault } of roleAssignments) {
        const scope = vault === undefined ? `/subscriptions/${subscriptionId}` : this.#vault(vault).id;
        this.#assign(guidFrom(`principal ${principal}`), principalType, role, scope);
      }
      if (generate?.sites) {
        this.#generated.set(subscriptionId, generate.sites);
        const scope = `/subscriptions/${subscriptionId}`;
        this.#assign(userIdentity(SITES_IDENTITY).principalId, "ServicePrincipal", "Key Vault Secrets User", scope);
      }
    }
  }

  /** A resource by its id in any spelling; undefined when there is none. */
  get(id: string): ArmResource | undefined {
    const known = this.#resources.get(id.toLowerCase());
    if (known !== undefined) return known;
    const [, , subscription = ""] = id.toLowerCase().split("/");
    const index = generatedSiteIndex(id, this.#generated.get(subscription) ?? 0);
    return index === undefined ? undefined : this.#generate(subscription, index);
  }

  /** All resources of a subscription in a fixed order, each computed only when it is read. */
  *in(subscriptionId: string): Generator<{ type: ResourceType; read(): ArmResource }> {
    const subscription = subscriptionId.toLowerCase();
    const kept = [...this.#resources.values()].filter((one) => one.subscriptionId === subscription);
    const generated = this.#generated.get(subscription) ?? 0;
    for (const one of kept) {
      const index = generatedSiteIndex(one.id, generated);
      if (index === undefined) yield { type: one.type, read: () => one };
    }
    const type = resourceType("Microsoft.Web/sites")!;
    for (let index = 0; index < generated; index++) yield { type, read: () => this.#generate(subscription, index) };
  }

  /** All that is kept, so without the sites that are computed. */
  all(): IterableIterator<ArmResource> {
    return this.#resources.values();
  }

  /** What is directly below a resource. */
  below(parent: ArmResource, type: ResourceType): ArmResource[] {
    const start = `${parent.id.toLowerCase()}/`;
    return [...this.#resources.values()].filter((one) => one.type === type && one.id.toLowerCase().startsWith(start));
  }

  /** Changes a resource; from now on it is kept, even if it was computed before. */
  change(resource: ArmResource, change: (resource: ArmResource) => void): void {
    const at = this.#options.clock.now();
    resource.before.push({ until: at, row: this.row(resource) });
    change(resource);
    this.#resources.set(resource.id.toLowerCase(), resource);
    this.#changed(resource, "Update", at);
  }

  /** Adds a resource, or replaces it. @returns its id */
  put(subscriptionId: string, declared: CompanyResource): string {
    const { resource, replaced } = this.#add(subscriptionId.toLowerCase(), declared);
    const at = this.#options.clock.now();
    if (!replaced) resource.before.push({ until: at, row: {} });
    this.#changed(resource, replaced ? "Update" : "Create", at);
    return resource.id;
  }

  /** With everything below it. */
  remove(id: string): boolean {
    const resource = this.get(id);
    if (resource === undefined) return false;
    for (const key of this.#resources.keys()) {
      if (key === id.toLowerCase() || key.startsWith(`${id.toLowerCase()}/`)) this.#resources.delete(key);
    }
    this.#changed(resource, "Delete", this.#options.clock.now());
    return true;
  }

  /** Object ids of a resource's identities; of one user-assigned identity when it is named by its resource id. */
  principals({ identity }: ArmResource, named?: string): string[] {
    const users = Object.entries(identity?.userAssignedIdentities ?? {});
    if (named !== undefined) {
      return users.filter(([id]) => id.toLowerCase() === named.toLowerCase()).map(([, { principalId }]) => principalId);
    }
    return identity?.principalId === undefined ? [] : [identity.principalId];
  }

  /** Whether one of these object ids may read a vault's secrets. */
  mayReadSecrets(principals: readonly string[], vault: Vault): boolean {
    if (vault.settings.rbac === false) {
      const readers = this.readers.get(vault.name.toLowerCase());
      return principals.some((one) => readers?.has(one) ?? false);
    }
    const id = vault.id.toLowerCase();
    return this.assignments.some(
      ({ principalId, roleDefinitionId, scope }) =>
        principals.includes(principalId) &&
        READ_SECRETS.some((role) => roleDefinitionId.endsWith(ROLES[role])) &&
        (id === scope.toLowerCase() || id.startsWith(`${scope.toLowerCase()}/`)),
    );
  }

  /** Lets a resource's identities read a vault. */
  grant(resource: ArmResource, vaultName: string): void {
    const vault = this.#vault(vaultName);
    for (const principal of this.#allPrincipals(resource)) {
      if (vault.settings.rbac === false) {
        const key = vault.name.toLowerCase();
        this.readers.set(key, (this.readers.get(key) ?? new Set()).add(principal));
      } else {
        this.#assign(principal, "ServicePrincipal", roleFor(resource), vault.id);
      }
    }
  }

  /** From now on none of a resource's identities may read the vault by a role on it, or by an access policy. */
  revoke(resource: ArmResource, vaultName: string): void {
    const vault = this.#vault(vaultName);
    for (const principal of this.#allPrincipals(resource)) {
      this.readers.get(vault.name.toLowerCase())?.delete(principal);
      const kept = this.assignments.filter((one) => one.principalId !== principal || one.scope !== vault.id);
      this.assignments.splice(0, this.assignments.length, ...kept);
    }
  }

  /** A resource as the resource manager answers it. */
  body(resource: ArmResource): Properties {
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

  /** A resource as Resource Graph answers it when nothing is projected. */
  row(resource: ArmResource): Properties {
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

  #changed({ id, type, subscriptionId }: ArmResource, changeType: ArmChange["changeType"], at: number): void {
    this.changes.push({ id, type: type.type.toLowerCase(), subscriptionId, changeType, at });
  }

  #add(subscriptionId: string, declared: CompanyResource): { resource: ArmResource; replaced: boolean } {
    const group = declared.resourceGroup ?? "rg-apps";
    const place = `/subscriptions/${subscriptionId}/resourceGroups/${group}/providers`;
    const id = `${place}/${declared.type}/${declared.name}`;
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
    if (type === undefined) throw new Error(`There is no type of resource ${typeName} here`);
    const resource = this.#made(subscriptionId, type, id, declared, parent);
    this.#resources.set(id.toLowerCase(), resource);
    const { properties, settings, connectionStrings, keyValues } = declared;
    const own = { properties, settings, connectionStrings, keyValues };
    for (const vault of declared.mayRead ?? vaultsIn(own)) {
      // A resource may refer to a vault that does not exist.
      if (this.#options.resources.vault(vault) !== undefined) this.grant(parentWithIdentity(resource, parent), vault);
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

  #made(
    subscriptionId: string,
    type: ResourceType,
    id: string,
    declared: CompanyChild,
    parent: ArmResource | undefined,
  ): ArmResource {
    const { name, location = parent?.location ?? "westeurope", kind, tags, sku, denied = false } = declared;
    const { settings = {}, connectionStrings = {}, slotSettings = [] } = declared;
    const known = {
      ...this.#options,
      identityId: (user: string) => userIdentityId(subscriptionId, user),
      resourceId: (other: string) => `${id.split("/").slice(0, 6).join("/")}/${other}`,
    };
    const { properties = {}, keyValues = [] } = declared;
    const given = filled({ properties, settings, connectionStrings, keyValues }, known);
    const endpoint = type.noun === "ConfigurationStore" && this.#options.origin(configurationHost(name));
    return {
      id,
      type,
      name,
      subscriptionId,
      location,
      ...(kind !== undefined && { kind }),
      ...(tags !== undefined && { tags }),
      ...(sku !== undefined && { sku }),
      ...(declared.identity && { identity: this.#identity(subscriptionId, id, declared.identity) }),
      ...given,
      properties: { provisioningState: "Succeeded", ...(endpoint && { endpoint }), ...given.properties },
      denied,
      slotSettings,
      copies: copiesIn(settings, connectionStrings, declared.properties),
      before: [],
    };
  }

  #identity(
    subscriptionId: string,
    id: string,
    { system = false, user = [] }: NonNullable<CompanyChild["identity"]>,
  ): NonNullable<ArmResource["identity"]> {
    const types = [...(system ? ["SystemAssigned"] : []), ...(user.length > 0 ? ["UserAssigned"] : [])];
    const users = user.map((name) => [userIdentityId(subscriptionId, name), userIdentity(name)] as const);
    return {
      type: types.join(", ") || "None",
      ...(system && { principalId: guidFrom(`principal ${id.toLowerCase()}`), tenantId: this.tenantId }),
      ...(users.length > 0 && { userAssignedIdentities: Object.fromEntries(users) }),
    };
  }

  #generate(subscriptionId: string, index: number): ArmResource {
    const declared = generatedSite(index, [
      ...(this.#options.resources.subscriptions.get(subscriptionId)?.vaults ?? []),
    ]);
    const id = `/subscriptions/${subscriptionId}/resourceGroups/${declared.resourceGroup}/providers/${declared.type}/${declared.name}`;
    return (
      this.#resources.get(id.toLowerCase()) ??
      this.#made(subscriptionId, resourceType(declared.type)!, id, declared, undefined)
    );
  }

  #assign(principalId: string, principalType: string, role: RoleName, scope: string): void {
    const name = guidFrom(`role ${role} of ${principalId} at ${scope.toLowerCase()}`);
    if (this.assignments.some((one) => one.name === name)) return;
    const [, , subscription] = scope.split("/");
    this.assignments.push({
      id: `${scope}/providers/Microsoft.Authorization/roleAssignments/${name}`,
      name,
      scope,
      principalId,
      principalType,
      roleDefinitionId: `/subscriptions/${subscription}/providers/Microsoft.Authorization/roleDefinitions/${ROLES[role]}`,
    });
  }

  #allPrincipals(resource: ArmResource): string[] {
    const users = Object.values(resource.identity?.userAssignedIdentities ?? {});
    return [...this.principals(resource), ...users.map(({ principalId }) => principalId)];
  }

  #vault(name: string): Vault {
    const vault = this.#options.resources.vault(name);
    if (vault === undefined) throw new Error(`No vault ${name}`);
    return vault;
  }

  #subscriptionNamed(name: string): string {
    for (const { id, declared } of this.#options.resources.subscriptions.values())
      if (declared.name === name) return id;
    // It was removed since the company was made.
    return guidFrom(`subscription ${name}`);
  }
}

/** Where a store's key-values are. */
export const configurationHost = (store: string): string => `${store.toLowerCase()}.azconfig.localhost`;

const READ_SECRETS: RoleName[] = ["Key Vault Administrator", "Key Vault Secrets User", "Key Vault Secrets Officer"];

/** Types that have keys of their own wrapped by a vault's. */
const USE_KEYS = new Set(["StorageAccount", "SqlServer", "EncryptionProtector", "DiskEncryptionSet", "ManagedCluster"]);

const roleFor = ({ type }: ArmResource): RoleName =>
  USE_KEYS.has(type.noun) ? "Key Vault Crypto Service Encryption User" : "Key Vault Secrets User";

const isChild = ({ type, noun }: ResourceType): boolean => type.split("/").length > 2 && noun !== "Slot";

/** `site/slot` of a slot. */
export function fullName({ id }: ArmResource): string {
  return id
    .split("/")
    .slice(8)
    .filter((_, index) => index % 2 === 0)
    .join("/");
}

/** A container app's secrets are answered without their values. */
function withoutValues(properties: Properties): Properties {
  const { configuration } = properties as { configuration?: { secrets?: { value?: string }[] } };
  if (configuration?.secrets === undefined) return properties;
  const secrets = configuration.secrets.map(({ value: _, ...rest }) => rest);
  return { ...properties, configuration: { ...configuration, secrets } };
}

/** What is below a resource reads vaults with that resource's identity, unless it has its own as slots do. */
const parentWithIdentity = (resource: ArmResource, parent: ArmResource | undefined): ArmResource =>
  resource.identity === undefined && parent !== undefined ? parent : resource;

export const userIdentityId = (subscriptionId: string, name: string): string =>
  `/subscriptions/${subscriptionId}/resourceGroups/rg-identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities/${name}`;

const userIdentity = (name: string): UserIdentity => ({
  principalId: guidFrom(`principal of identity ${name}`),
  clientId: guidFrom(`client of identity ${name}`),
});

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
