import type { CloudClock } from "../clock.ts";
import type { Company } from "../company/company.ts";
import type { CompanyChild, CompanyResource } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { RequestLog } from "../request-log.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import { ApiManagement, readsVault } from "./api-management.ts";
import { AppService, isSite, type SiteFault } from "./app-service.ts";
import { ConsumerValues, type SecretLocation, type UsedValues, type WorkingGap } from "./consumer-values.ts";
import { ContainerApps, isContainerApp } from "./container-apps.ts";
import { EncryptionKeys } from "./encryption-keys.ts";
import { GRAPH_DEFAULTS, type GraphSettings } from "./graph-settings.ts";
import type { KeyValue, ResourceKeys } from "./resource-keys.ts";
import type { ArmResource, ArmStore, StorageTransactions } from "./resource-store.ts";
import { ScheduledReaders } from "./scheduled-readers.ts";

interface Parts {
  resources: VaultStore;
  store: ArmStore;
  directory: Directory;
  clock: CloudClock;
}

/**
 * Simulates the company's running resources that use vault secrets ("consumers"): when each reads a new secret version, and the
 * misbehavior that a test sets.
 */
export class Consumers {
  readonly appService: AppService;
  readonly containerApps: ContainerApps;
  readonly apiManagement: ApiManagement;
  readonly timedReaders: ScheduledReaders;
  readonly encryptionKeys: EncryptionKeys;
  readonly consumerValues: ConsumerValues;
  readonly #parts: Parts;
  graphSettings: GraphSettings = GRAPH_DEFAULTS;

  constructor(company: Company, parts: Parts) {
    this.#parts = parts;
    this.consumerValues = new ConsumerValues(parts, company.issuers ?? []);
    const allParts = { ...parts, consumerValues: this.consumerValues };
    this.appService = new AppService(allParts);
    this.containerApps = new ContainerApps(allParts);
    this.apiManagement = new ApiManagement(allParts);
    this.timedReaders = new ScheduledReaders(allParts);
    this.encryptionKeys = new EncryptionKeys(parts);
  }

  /** Unix milliseconds of the simulated clock. */
  now(): number {
    return this.#parts.clock.now();
  }

  /** Runs the reads of all resources that are due by the simulated clock. */
  runDueWork(): void {
    this.appService.runDueWork();
    this.containerApps.runDueWork();
    this.apiManagement.runDueWork();
    this.timedReaders.runDueReads();
    this.encryptionKeys.runDueWork();
  }

  /** Starts a resource that was added or replaced, with its child resources. */
  startDeclared(id: string): void {
    for (const resource of this.#parts.store.all()) {
      const key = resource.id.toLowerCase();
      if (key !== id.toLowerCase() && !key.startsWith(`${id.toLowerCase()}/`)) continue;
      if (isSite(resource)) this.appService.startDeclared(resource);
      else if (isContainerApp(resource)) this.containerApps.startDeclared(resource);
      else if (readsVault(resource)) this.apiManagement.refresh(resource);
      else this.timedReaders.add(resource);
    }
  }
}

interface ControlParts {
  store: ArmStore;
  resources: VaultStore;
  requestLog: RequestLog;
  keys: ResourceKeys;
}

/**
 * Control operations for the company's resources: tests read and change what no client of Azure Resource Manager can. The
 * parameter `id` is a resource ID.
 */
export class ConsumersControl {
  readonly #consumers: Consumers;
  readonly #parts: ControlParts;

  constructor(consumers: Consumers, parts: ControlParts) {
    this.#consumers = consumers;
    this.#parts = parts;
  }

  /** Records requests that a storage account answered, for its metric. */
  addTransactions(id: string, transactions: Omit<StorageTransactions, "id">): void {
    this.#parts.store.transactions.push({ id: id.toLowerCase(), ...transactions });
  }

  /** Lists all stored resources. Generated sites are not included. */
  resources(): { id: string; type: string; subscriptionId: string }[] {
    return [...this.#parts.store.all()].map(({ id, type, subscriptionId }) => ({
      id,
      type: type.type,
      subscriptionId,
    }));
  }

  /**
   * Returns the ID of the only resource with this name and, if given, type.
   * @throws {Error} if there is none or more than one.
   */
  idOf(name: string, type?: string): string {
    const matching = this.resources().filter(
      (one) => one.id.split("/").at(-1) === name && (type === undefined || one.type === type),
    );
    if (matching.length !== 1) throw new Error(`${matching.length} resources have the name ${name}`);
    return matching[0]!.id;
  }

  /**
   * Adds a resource, or replaces it with its child resources.
   * @returns its ID
   */
  put(subscriptionId: string, resource: CompanyResource): string {
    this.#consumers.runDueWork();
    const id = this.#parts.store.put(subscriptionId, resource);
    this.#consumers.startDeclared(id);
    return id;
  }

  /** Deletes a resource and its child resources. Returns false if there is no such resource. */
  remove(id: string): boolean {
    this.#consumers.runDueWork();
    this.#consumers.consumerValues.remove(id);
    return this.#parts.store.remove(id);
  }

  /**
   * Changes members of a resource, except settings, as another client of Azure could.
   * @throws {Error} if there is no such resource.
   */
  change(id: string, change: Pick<CompanyChild, "tags" | "properties" | "denied">): void {
    this.#consumers.runDueWork();
    this.#parts.store.change(this.#resource(id), (one) => {
      if (change.tags !== undefined) one.tags = change.tags;
      if (change.denied !== undefined) one.denied = change.denied;
      if (change.properties !== undefined) one.properties = { ...one.properties, ...change.properties };
    });
  }

  /** Returns the `properties` of a resource, as responses contain them. */
  properties(id: string): Record<string, unknown> {
    return structuredClone(this.#resource(id).properties);
  }

  /** Changes app settings as another client. Null removes a setting. */
  changeSettings(id: string, settings: Record<string, string | null>): void {
    this.#consumers.runDueWork();
    this.#consumers.appService.changeSettings(this.#resource(id), settings);
  }

  settings(id: string): Record<string, string> {
    return { ...this.#resource(id).settings };
  }

  /** Grants or revokes a resource's identities read access to a vault. */
  allow(id: string, vault: string, allowed: boolean): void {
    this.#consumers.runDueWork();
    this.#parts.store.allow(this.#resource(id), vault, allowed);
  }

  /** Sets the misbehavior of a site or slot. Undefined resets it. */
  setSiteFault(id: string, fault: SiteFault | undefined): void {
    this.#consumers.runDueWork();
    this.#consumers.appService.setFault(this.#resource(id).id, fault);
  }

  /** Turns the updates of a named value off (`staysOld`) or on again. */
  setNamedValueStaysOld(id: string, staysOld: boolean): void {
    this.#consumers.runDueWork();
    this.#consumers.apiManagement.setStaysOld(this.#resource(id).id, staysOld);
  }

  /** Returns the values that each running consumer had over time. */
  values(filter: { resource?: string } & Partial<SecretLocation> = {}): UsedValues[] {
    this.#consumers.runDueWork();
    return this.#consumers.consumerValues.values(filter);
  }

  /** Returns the intervals until now in which a consumer had no working value. */
  gaps(filter: { resource?: string } & Partial<SecretLocation> = {}): WorkingGap[] {
    this.#consumers.runDueWork();
    return this.#consumers.consumerValues.gaps(filter);
  }

  /** Registers an issuer for a secret. From now on a value works only while the issuer accepts it. */
  setIssuer(location: SecretLocation): void {
    this.#consumers.consumerValues.setIssuer(location);
  }

  /** Makes the issuer accept or reject a value. */
  accept(location: SecretLocation, value: string, accepted: boolean): void {
    if (accepted) this.#consumers.consumerValues.accept(location, value);
    else this.#consumers.consumerValues.reject(location, value);
  }

  /**
   * Returns every value that the keys of a resource had, oldest first: from when to when it was valid, and the request that made
   * it. Empty for a resource without keys.
   */
  keys(id: string): KeyValue[] {
    return this.#parts.keys.history(this.#resource(id));
  }

  /** Regenerates a key as another client of Azure. The old value is invalid at once. */
  regenerateKey(id: string, key: string): void {
    const resource = this.#resource(id);
    if (this.#parts.keys.current(resource)[key] === undefined) throw new Error(`The resource has no key ${key}`);
    // Ends a regeneration of the service first, because one resource can have only one, and then this one, without its delay.
    this.#parts.keys.finish(resource);
    this.#parts.keys.regenerate(resource, key, { by: "another client", requestId: "control API" });
    this.#parts.keys.finish(resource);
  }

  /** Makes the service behind a resource's keys accept a new value only after some time. Infinity: never. */
  delayNewKeys(id: string, milliseconds: number): void {
    this.#parts.keys.setDelay(this.#resource(id), milliseconds);
  }

  /** Sets the milliseconds after which a resource uses a new version of its encryption key. Infinity: never. */
  delayNewKeyVersions(id: string, milliseconds: number | undefined): void {
    this.#consumers.encryptionKeys.setDelay(this.#resource(id).id, milliseconds);
  }

  /** Returns the behavior of Resource Graph. */
  graph(): GraphSettings {
    return this.#consumers.graphSettings;
  }

  /** Changes the behavior of Resource Graph. Omitted members stay. */
  setGraph(settings: Partial<GraphSettings>): void {
    this.#consumers.graphSettings = { ...this.#consumers.graphSettings, ...settings };
  }

  /** Returns the number of requests by resource ID in lower case. Slots and other child resources are counted separately. */
  calls(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { resource } of this.#parts.requestLog.requests()) {
      if (resource !== undefined) counts[resource.toLowerCase()] = (counts[resource.toLowerCase()] ?? 0) + 1;
    }
    return counts;
  }

  #resource(id: string): ArmResource {
    const resource = this.#parts.store.get(id);
    if (resource === undefined) throw new Error(`Unknown resource ${id}`);
    return resource;
  }
}
