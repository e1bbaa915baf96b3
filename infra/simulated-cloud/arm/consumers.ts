import type { CloudClock } from "../clock.ts";
import type { Company } from "../company/company.ts";
import type { CompanyChild, CompanyResource } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { RequestLog } from "../request-log.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import { ApiManagement, readsVault } from "./api-management.ts";
import { AppService, isSite, type SiteFault } from "./app-service.ts";
import { ConsumerValues, type HeldValues, type Place, type WorkingGap } from "./consumer-values.ts";
import { type ContainerAppFault, ContainerApps, isContainerApp } from "./container-apps.ts";
import { GRAPH_DEFAULTS, type GraphSettings } from "./graph-settings.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";
import { ScheduledReaders } from "./scheduled-readers.ts";

interface Parts {
  resources: VaultStore;
  store: ArmStore;
  directory: Directory;
  clock: CloudClock;
}

/** Simulates the company's running resources: when each reads a new secret version, and the faults that a test sets. */
export class Consumers {
  readonly appService: AppService;
  readonly containerApps: ContainerApps;
  readonly apiManagement: ApiManagement;
  readonly timedReaders: ScheduledReaders;
  readonly working: ConsumerValues;
  readonly #parts: Parts;
  graphSettings: GraphSettings = GRAPH_DEFAULTS;

  constructor(company: Company, parts: Parts) {
    this.#parts = parts;
    this.working = new ConsumerValues(parts, company.issuers ?? []);
    const all = { ...parts, working: this.working };
    this.appService = new AppService(all);
    this.containerApps = new ContainerApps(all);
    this.apiManagement = new ApiManagement(all);
    this.timedReaders = new ScheduledReaders(all);
  }

  /** Unix milliseconds of the simulated clock. */
  now(): number {
    return this.#parts.clock.now();
  }

  /** Runs everything that is due by the simulated clock. */
  settle(): void {
    this.appService.settle();
    this.containerApps.settle();
    this.apiManagement.settle();
    this.timedReaders.runDueReads();
  }

  /** Resets a resource that was declared again, and its child resources. */
  declared(id: string): void {
    for (const resource of this.#parts.store.all()) {
      const key = resource.id.toLowerCase();
      if (key !== id.toLowerCase() && !key.startsWith(`${id.toLowerCase()}/`)) continue;
      if (isSite(resource)) this.appService.declared(resource);
      else if (isContainerApp(resource)) this.containerApps.declared(resource);
      else if (readsVault(resource)) this.apiManagement.refresh(resource);
      else this.timedReaders.add(resource);
    }
  }
}

/**
 * Control operations for the company's resources: read and change what no client of Azure Resource Manager can. Resources are
 * named by their IDs.
 */
export class ConsumersControl {
  readonly #consumers: Consumers;
  readonly #parts: { store: ArmStore; resources: VaultStore; ledger: RequestLog };

  constructor(consumers: Consumers, parts: { store: ArmStore; resources: VaultStore; ledger: RequestLog }) {
    this.#consumers = consumers;
    this.#parts = parts;
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
    const found = this.resources().filter(
      (one) => one.id.split("/").at(-1) === name && (type === undefined || one.type === type),
    );
    if (found.length !== 1) throw new Error(`${found.length} resources have the name ${name}`);
    return found[0]!.id;
  }

  /**
   * Adds a resource, or replaces it with its child resources.
   * @returns its ID
   */
  put(subscriptionId: string, resource: CompanyResource): string {
    this.#consumers.settle();
    const id = this.#parts.store.put(subscriptionId, resource);
    this.#consumers.declared(id);
    return id;
  }

  /** Deletes a resource and its child resources. Returns false if there is no such resource. */
  remove(id: string): boolean {
    this.#consumers.settle();
    this.#consumers.working.remove(id);
    return this.#parts.store.remove(id);
  }

  /**
   * Changes members of a resource, except settings, as another client.
   * @throws {Error} if there is no such resource.
   */
  change(id: string, change: Pick<CompanyChild, "tags" | "properties" | "denied">): void {
    this.#consumers.settle();
    this.#parts.store.change(this.#resource(id), (one) => {
      if (change.tags !== undefined) one.tags = change.tags;
      if (change.denied !== undefined) one.denied = change.denied;
      if (change.properties !== undefined) one.properties = { ...one.properties, ...change.properties };
    });
  }

  /** Changes app settings as another client. Null removes a setting. */
  changeSettings(id: string, settings: Record<string, string | null>): void {
    this.#consumers.settle();
    this.#consumers.appService.changeSettings(this.#resource(id), settings);
  }

  settings(id: string): Record<string, string> {
    return { ...this.#resource(id).settings };
  }

  /** Grants or revokes a resource's identities read access to a vault. */
  allow(id: string, vault: string, allowed: boolean): void {
    this.#consumers.settle();
    this.#parts.store.allow(this.#resource(id), vault, allowed);
  }

  /** Sets the misbehavior of a site or slot. Undefined resets it. */
  plantSite(id: string, plant: SiteFault | undefined): void {
    this.#consumers.settle();
    this.#consumers.appService.plant(this.#resource(id).id, plant);
  }

  /** Sets the misbehavior of a container app. Undefined resets it. */
  plantContainerApp(id: string, plant: ContainerAppFault | undefined): void {
    this.#consumers.settle();
    this.#consumers.containerApps.plant(this.#resource(id).id, plant);
  }

  /** Turns the updates of a named value off or on again. */
  plantNamedValue(id: string, staysOld: boolean): void {
    this.#consumers.settle();
    this.#consumers.apiManagement.plant(this.#resource(id).id, staysOld);
  }

  /** Returns the values that each running consumer held over time. */
  values(filter: { resource?: string } & Partial<Place> = {}): HeldValues[] {
    this.#consumers.settle();
    return this.#consumers.working.values(filter);
  }

  /** Returns all intervals until now in which a consumer held no working value. */
  gaps(filter: { resource?: string } & Partial<Place> = {}): WorkingGap[] {
    this.#consumers.settle();
    return this.#consumers.working.gaps(filter);
  }

  /** Registers an issuer for a secret. From now on a value works only while the issuer accepts it. */
  setIssuer(place: Place): void {
    this.#consumers.working.setIssuer(place);
  }

  /** Makes the issuer accept or reject a value. */
  accept(place: Place, value: string, accepted: boolean): void {
    if (accepted) this.#consumers.working.accept(place, value);
    else this.#consumers.working.reject(place, value);
  }

  graph(): GraphSettings {
    return this.#consumers.graphSettings;
  }

  /** Changes the behavior of Resource Graph. Omitted members stay. */
  setGraph(settings: Partial<GraphSettings>): void {
    this.#consumers.graphSettings = { ...this.#consumers.graphSettings, ...settings };
  }

  /** Returns the number of calls by resource ID in lower case. Slots and other child resources are counted separately. */
  calls(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { resource } of this.#parts.ledger.requests()) {
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
