// Stores the subscriptions and vaults of the company, and their changes.

import { randomBytes } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import type {
  AssetKind,
  Company,
  CompanyCertificate,
  CompanyKey,
  CompanySecret,
  CompanySubscription,
  CompanyVault,
} from "../company/company.ts";
import { guidFrom } from "./identifiers.ts";
import {
  type Certificate,
  certificateFrom,
  current,
  type Key,
  keyFrom,
  type Secret,
  secretFrom,
  type Version,
} from "./items.ts";
import type { ItemOf } from "./vault.ts";
import { Vault } from "./vault.ts";

/** Age of a declared item without `createdDaysAgo`. */
const DEFAULT_AGE_DAYS = 30;

export interface Subscription {
  id: string;
  declared: CompanySubscription;
  /** Vaults by name in lower case, in creation order. */
  vaults: Set<string>;
}

/** Declaration of an item by its kind. */
export type DeclarationOf = { secrets: CompanySecret; keys: CompanyKey; certificates: CompanyCertificate };

/**
 * A change of the initial company. The data folder stores changes in this form, so its members must not be renamed. A name with
 * `no` is a deletion. `noItem` with `deletedAt` (Unix seconds) is a recoverable deletion, without it a permanent one.
 */
export type Change =
  | { what: "subscription"; declared: CompanySubscription }
  | { what: "noSubscription"; id: string }
  | { what: "vault"; subscriptionId: string; declared: CompanyVault; at: number }
  | { what: "settings"; vault: string; settings: Partial<CompanyVault> }
  | { what: "noVault"; vault: string }
  | { what: "item"; vault: string; kind: AssetKind; item: Secret | Key | Certificate }
  | { what: "noItem"; vault: string; kind: AssetKind; name: string; deletedAt?: number }
  | { what: "recovered" | "purged"; vault: string; name: string };

/** A change as other parts of the cloud, such as Event Grid, are notified of it. */
export type ResourceChange =
  | { what: "version"; vault: Vault; kind: AssetKind; item: Secret | Key | Certificate }
  /** `policy`: whether the vault's access policies were also written. */
  | { what: "written"; vault: Vault; policy: boolean }
  | { what: "deleted"; vault: Vault };

/**
 * Stores the current state of the company's subscriptions and vaults. All changes go through `#change`, which also writes the
 * change to the journal, so that a restart with the same data folder restores it. An item is a secret, key or certificate.
 */
export class VaultStore {
  readonly subscriptions = new Map<string, Subscription>();
  /** Vaults by name in lower case. Names are unique over all subscriptions. */
  readonly vaults = new Map<string, Vault>();
  /** Unix seconds from which the days in the company's declaration count. */
  readonly #base: number;
  readonly #clock: CloudClock;
  /** Writes a change to the data folder. Undefined until the changes of earlier runs are applied. */
  #journal: ((change: Change) => void) | undefined;
  /** Called before each change. */
  beforeChange: () => void = () => {};
  /** Called for each secret whose current value may have changed. */
  secretChanged: (vault: string, name: string) => void = () => {};
  /** Called for each secret version that an identity of the company read, with its object ID. */
  secretRead: (vault: Vault, name: string, version: string, objectId: string) => void = () => {};
  /** Called for each new version and for each written or deleted vault. */
  changed: (change: ResourceChange) => void = () => {};

  /** @param base Unix seconds from which the company's days count. */
  constructor(company: Company, base: number, clock: CloudClock) {
    this.#base = base;
    this.#clock = clock;
    for (const declared of company.subscriptions) this.#apply({ what: "subscription", declared });
  }

  /** Applies the changes of earlier runs, then reports each new change. */
  restore(changes: readonly Change[], journal: (change: Change) => void): void {
    for (const change of changes) this.#apply(change);
    this.#journal = journal;
  }

  /** Adds a vault in a subscription that no list contains. The cloud adds it at every start, so it is not in the journal. */
  addUnlisted(declared: CompanyVault): void {
    this.#applyVault(declared, guidFrom("unlisted"), this.#base);
  }

  /** Unix seconds. */
  now(): number {
    return this.#clock.seconds();
  }

  vault(name: string): Vault | undefined {
    return this.vaults.get(name.toLowerCase());
  }

  putSubscription(declared: CompanySubscription): string {
    this.#change({ what: "subscription", declared });
    return subscriptionId(declared);
  }

  /** Removes a subscription with its vaults. */
  removeSubscription(id: string): boolean {
    if (!this.subscriptions.has(id.toLowerCase())) return false;
    this.#change({ what: "noSubscription", id });
    return true;
  }

  /**
   * Adds a vault or replaces it with its contents. Days count from now; by default, the vault is new.
   */
  putVault(subscription: string, declared: CompanyVault): void {
    if (!this.subscriptions.has(subscription.toLowerCase())) throw new Error(`Unknown subscription ${subscription}`);
    const newVault = { createdDaysAgo: 0, ...declared };
    this.#change({ what: "vault", subscriptionId: subscription, declared: newVault, at: this.now() });
  }

  changeVault(name: string, settings: Partial<CompanyVault>): boolean {
    if (this.vault(name) === undefined) return false;
    this.#change({ what: "settings", vault: name, settings });
    return true;
  }

  removeVault(name: string): boolean {
    if (this.vault(name) === undefined) return false;
    this.#change({ what: "noVault", vault: name });
    return true;
  }

  /**
   * Adds an item, or a new version of an existing item. Days count from now; by default, the version is new.
   */
  put<K extends AssetKind>(vault: string, kind: K, declared: DeclarationOf[K]): void {
    const owner = this.#existingVault(vault);
    const newItem = itemFrom(kind, declared, owner.name, this.now());
    const version = newItem.versions.at(-1)!;
    // `itemFrom` derives the ID from the name and the second, so two versions of one second would share it.
    version.id = randomBytes(16).toString("hex");
    const existing = owner.collections[kind].get(declared.name);
    this.putItem(vault, kind, {
      ...newItem,
      name: existing?.name ?? newItem.name,
      versions: [...(existing?.versions ?? []), version],
    } as ItemOf[K]);
  }

  /**
   * Changes the current version without creating a new one. Declared members replace earlier ones, and null removes a date, the
   * tags or the content type. Returns false if there is no such item.
   */
  change<K extends AssetKind>(vault: string, kind: K, name: string, change: ItemChange): boolean {
    const item = this.#existingVault(vault).collections[kind].get(name);
    if (item === undefined) return false;
    const version = { ...current<ItemOf[K]["versions"][number]>(item as never), updated: this.now() };
    if (change.enabled !== undefined) version.enabled = change.enabled;
    if (change.expiresInDays === null) delete version.expires;
    else if (change.expiresInDays !== undefined) version.expires = this.#inDays(change.expiresInDays);
    if (change.activeInDays === null) delete version.notBefore;
    else if (change.activeInDays !== undefined) version.notBefore = this.#inDays(change.activeInDays);
    if (change.tags === null) delete version.tags;
    else if (change.tags !== undefined) version.tags = change.tags;
    if ("value" in version) {
      if (change.value !== undefined) version.value = change.value;
      if (change.contentType === null) delete version.contentType;
      else if (change.contentType !== undefined) version.contentType = change.contentType;
    }
    this.putItem(vault, kind, { ...item, versions: [...item.versions.slice(0, -1), version] } as ItemOf[K]);
    return true;
  }

  setRotation(vault: string, key: string, rotation: Key["rotation"]): boolean {
    const item = this.#existingVault(vault).collections.keys.get(key);
    if (item === undefined) return false;
    const { rotation: _, policy: _policy, ...rest } = item;
    this.putItem(vault, "keys", { ...rest, ...(rotation && { rotation }) });
    return true;
  }

  setRenewal(vault: string, certificate: string, renewal: Certificate["renewal"]): boolean {
    const item = this.#existingVault(vault).collections.certificates.get(certificate);
    if (item === undefined) return false;
    const { policy: _, ...rest } = item;
    this.putItem(vault, "certificates", { ...rest, renewal });
    return true;
  }

  putItem<K extends AssetKind>(vault: string, kind: K, item: ItemOf[K]): void {
    this.#change({ what: "item", vault, kind, item });
  }

  /** Deletes an item permanently, so that it cannot be recovered. */
  remove(vault: string, kind: AssetKind, name: string): boolean {
    if (this.#existingVault(vault).collections[kind].get(name) === undefined) return false;
    this.#change({ what: "noItem", vault, kind, name });
    return true;
  }

  deleteSecret(vault: string, name: string): void {
    this.#change({ what: "noItem", vault, kind: "secrets", name, deletedAt: this.now() });
  }

  recoverSecret(vault: string, name: string): void {
    this.#change({ what: "recovered", vault, name });
  }

  purgeSecret(vault: string, name: string): void {
    this.#change({ what: "purged", vault, name });
  }

  #inDays(days: number): number {
    return Math.round(this.now() + days * 86_400);
  }

  /** Returns a vault. Throws if there is none. */
  #existingVault(name: string): Vault {
    const vault = this.vault(name);
    if (vault === undefined) throw new Error(`Unknown vault ${name}`);
    return vault;
  }

  #change(change: Change): void {
    this.beforeChange();
    const createNotification = this.#notificationOf(change);
    this.#apply(change);
    this.#journal?.(change);
    if (createNotification !== undefined) this.changed(createNotification());
    const secret = secretOf(change);
    if (secret !== undefined) this.secretChanged(secret.vault, secret.name);
  }

  /**
   * Returns a function that creates the notification of a change. Must be called before the change is applied, the function
   * after it.
   */
  #notificationOf(change: Change): (() => ResourceChange) | undefined {
    switch (change.what) {
      case "item": {
        const { kind, item } = change;
        const vault = this.#existingVault(change.vault);
        const previousItem = vault.collections[kind].get(item.name);
        const isNew = previousItem === undefined || current<Version>(previousItem).id !== current<Version>(item).id;
        return isNew ? () => ({ what: "version", vault, kind, item }) : undefined;
      }
      case "vault":
        return () => ({ what: "written", vault: this.#existingVault(change.declared.name), policy: false });
      case "settings":
        return () => ({
          what: "written",
          vault: this.#existingVault(change.vault),
          // Azure also sends VaultAccessPolicyChanged when the permission model changes.
          policy: change.settings.rbac !== undefined,
        });
      case "noVault": {
        const vault = this.#existingVault(change.vault);
        return () => ({ what: "deleted", vault });
      }
      default:
        return undefined;
    }
  }

  #apply(change: Change): void {
    switch (change.what) {
      case "subscription":
        this.#applySubscription(change.declared);
        return;
      case "noSubscription": {
        const id = change.id.toLowerCase();
        for (const vault of this.subscriptions.get(id)?.vaults ?? []) this.vaults.delete(vault);
        this.subscriptions.delete(id);
        return;
      }
      case "vault":
        this.#applyVault(change.declared, change.subscriptionId, change.at);
        return;
      case "settings": {
        const vault = this.#existingVault(change.vault);
        vault.settings = { ...vault.settings, ...change.settings, name: vault.settings.name };
        return;
      }
      case "noVault": {
        const vault = this.#existingVault(change.vault);
        this.subscriptions.get(vault.subscriptionId)?.vaults.delete(vault.name.toLowerCase());
        this.vaults.delete(vault.name.toLowerCase());
        return;
      }
      case "item":
        // Kind and item come from the same journal entry, so they match.
        this.#existingVault(change.vault).collections[change.kind].put(change.item as never);
        return;
      case "noItem": {
        const vault = this.#existingVault(change.vault);
        const secret = change.deletedAt === undefined ? undefined : vault.collections.secrets.get(change.name);
        vault.collections[change.kind].remove(change.name);
        if (secret !== undefined && change.deletedAt !== undefined) {
          vault.deletedSecrets.set(change.name.toLowerCase(), { secret, deletedAt: change.deletedAt });
        }
        return;
      }
      case "recovered":
      case "purged": {
        const vault = this.#existingVault(change.vault);
        const deleted = vault.deletedSecrets.get(change.name.toLowerCase());
        vault.deletedSecrets.delete(change.name.toLowerCase());
        if (change.what === "recovered" && deleted !== undefined) vault.collections.secrets.put(deleted.secret);
      }
    }
  }

  #applySubscription(declared: CompanySubscription): void {
    const id = subscriptionId(declared);
    // Resources, role assignments and generated resources are in other stores (arm/resource-store.ts).
    const { vaults = [], resources: _, roleAssignments: __, generate: ___, dnsZones: ____, ...settings } = declared;
    const previousSubscription = this.subscriptions.get(id);
    this.subscriptions.set(id, { id, declared: settings, vaults: previousSubscription?.vaults ?? new Set() });
    for (const vault of vaults) this.#applyVault(vault, id, this.#base);
  }

  #applyVault(declared: CompanyVault, subscription: string, at: number): void {
    const name = declared.name.toLowerCase();
    const previousVault = this.vaults.get(name);
    if (previousVault !== undefined) this.subscriptions.get(previousVault.subscriptionId)?.vaults.delete(name);
    const id = subscription.toLowerCase();
    this.vaults.set(name, new Vault(declared, id, { at, ageDays: DEFAULT_AGE_DAYS }));
    this.subscriptions.get(id)?.vaults.add(name);
  }
}

/** Members of an item that can be changed. Days count from now. */
export interface ItemChange {
  enabled?: boolean;
  expiresInDays?: number | null;
  activeInDays?: number | null;
  tags?: Record<string, string> | null;
  value?: string;
  contentType?: string | null;
}

/**
 * Creates an item with one version from its declaration.
 * @param at Unix seconds from which its days count
 */
function itemFrom<K extends AssetKind>(
  kind: K,
  declared: DeclarationOf[K],
  vault: string,
  at: number,
): Secret | Key | Certificate {
  const age = { at, ageDays: 0 };
  if (kind === "secrets") return secretFrom(declared, vault, age);
  return kind === "keys" ? keyFrom(declared, vault, age) : certificateFrom(declared, vault, age);
}

/** Returns the ID of a declared subscription, in lower case. */
export function subscriptionId(declared: CompanySubscription): string {
  return (declared.id ?? guidFrom(`subscription ${declared.name}`)).toLowerCase();
}

/** Returns the secret whose current value may differ after a change. A purge changes none: a deleted secret has no value. */
function secretOf(change: Change): { vault: string; name: string } | undefined {
  switch (change.what) {
    case "item":
      return change.kind === "secrets" ? { vault: change.vault, name: change.item.name } : undefined;
    case "noItem":
      return change.kind === "secrets" ? change : undefined;
    case "recovered":
      return change;
    default:
      return undefined;
  }
}
