import type { CloudClock } from "../clock.ts";
import type { Company } from "../company/company.ts";
import type { CompanyChild, CompanyResource } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { Ledger } from "../ledger.ts";
import type { Resources } from "../resources/resources.ts";
import { ApiManagement, readsVault } from "./api-management.ts";
import { AppService, isSite, type SitePlant } from "./app-service.ts";
import { type ContainerAppPlant, ContainerApps, isContainerApp } from "./container-apps.ts";
import { GRAPH_DEFAULTS, type GraphSettings } from "./graph-settings.ts";
import type { ArmResource, ArmStore } from "./store.ts";
import { TimedReaders } from "./timed-readers.ts";
import { type HeldValues, type Place, type WorkingGap, WorkingValues } from "./working-values.ts";

interface Parts {
  resources: Resources;
  store: ArmStore;
  directory: Directory;
  clock: CloudClock;
}

/** The company's resources as they run: when each takes a secret's new version, and what a test does to them. */
export class Consumers {
  readonly appService: AppService;
  readonly containerApps: ContainerApps;
  readonly apiManagement: ApiManagement;
  readonly timedReaders: TimedReaders;
  readonly working: WorkingValues;
  readonly #parts: Parts;
  graphSettings: GraphSettings = GRAPH_DEFAULTS;

  constructor(company: Company, parts: Parts) {
    this.#parts = parts;
    this.working = new WorkingValues(parts, company.issuers ?? []);
    const all = { ...parts, working: this.working };
    this.appService = new AppService(all);
    this.containerApps = new ContainerApps(all);
    this.apiManagement = new ApiManagement(all);
    this.timedReaders = new TimedReaders(all);
  }

  /** Unix milliseconds of the cloud's clock. */
  now(): number {
    return this.#parts.clock.now();
  }

  /** Does all that was due until now by the cloud's clock. */
  settle(): void {
    this.appService.settle();
    this.containerApps.settle();
    this.apiManagement.settle();
    this.timedReaders.settle();
  }

  /** A resource was declared anew, with all below it. */
  declared(id: string): void {
    for (const resource of this.#parts.store.all()) {
      const key = resource.id.toLowerCase();
      if (key !== id.toLowerCase() && !key.startsWith(`${id.toLowerCase()}/`)) continue;
      if (isSite(resource)) this.appService.declared(resource);
      else if (isContainerApp(resource)) this.containerApps.declared(resource);
      else if (readsVault(resource)) this.apiManagement.refresh(resource);
      else this.timedReaders.declared(resource);
    }
  }
}

/** What a test can see and do behind the back of the resource manager. Resources are named by their ids. */
export class ConsumersControl {
  readonly #consumers: Consumers;
  readonly #parts: { store: ArmStore; resources: Resources; ledger: Ledger };

  constructor(consumers: Consumers, parts: { store: ArmStore; resources: Resources; ledger: Ledger }) {
    this.#consumers = consumers;
    this.#parts = parts;
  }

  /** All that are kept, so without the sites that are computed. */
  resources(): { id: string; type: string; subscriptionId: string }[] {
    return [...this.#parts.store.all()].map(({ id, type, subscriptionId }) => ({
      id,
      type: type.type,
      subscriptionId,
    }));
  }

  /** The id of the only resource that is called so; its type tells several apart. @throws {Error} without exactly one. */
  idOf(name: string, type?: string): string {
    const found = this.resources().filter(
      (one) => one.id.split("/").at(-1) === name && (type === undefined || one.type === type),
    );
    if (found.length !== 1) throw new Error(`${found.length} resources are called ${name}`);
    return found[0]!.id;
  }

  /** Adds a resource, or replaces it with all below it. @returns its id */
  put(subscriptionId: string, resource: CompanyResource): string {
    this.#consumers.settle();
    const id = this.#parts.store.put(subscriptionId, resource);
    this.#consumers.declared(id);
    return id;
  }

  /** With everything below it; false when there is none. */
  remove(id: string): boolean {
    this.#consumers.settle();
    this.#consumers.working.forget(id);
    return this.#parts.store.remove(id);
  }

  /** Changes members as somebody else does, all but settings. @throws {Error} when there is no such resource. */
  change(id: string, change: Pick<CompanyChild, "tags" | "properties" | "denied">): void {
    this.#consumers.settle();
    this.#parts.store.change(this.#resource(id), (one) => {
      if (change.tags !== undefined) one.tags = change.tags;
      if (change.denied !== undefined) one.denied = change.denied;
      if (change.properties !== undefined) one.properties = { ...one.properties, ...change.properties };
    });
  }

  /** Changes app settings as somebody else does; null removes one. */
  changeSettings(id: string, settings: Record<string, string | null>): void {
    this.#consumers.settle();
    this.#consumers.appService.changeSettings(this.#resource(id), settings);
  }

  settings(id: string): Record<string, string> {
    return { ...this.#resource(id).settings };
  }

  /** Lets a resource's identities read a vault, or no more. */
  allow(id: string, vault: string, allowed: boolean): void {
    this.#consumers.settle();
    this.#parts.store.allow(this.#resource(id), vault, allowed);
  }

  /** What a site or slot does from now on; undefined: what it should. */
  plantSite(id: string, plant: SitePlant | undefined): void {
    this.#consumers.settle();
    this.#consumers.appService.plant(this.#resource(id).id, plant);
  }

  /** What a container app does from now on; undefined: what it should. */
  plantContainerApp(id: string, plant: ContainerAppPlant | undefined): void {
    this.#consumers.settle();
    this.#consumers.containerApps.plant(this.#resource(id).id, plant);
  }

  /** From now on a refresh of a named value does nothing, or what it should. */
  plantNamedValue(id: string, staysOld: boolean): void {
    this.#consumers.settle();
    this.#consumers.apiManagement.plant(this.#resource(id).id, staysOld);
  }

  /** What each running consumer held over time. */
  values(filter: { resource?: string } & Partial<Place> = {}): HeldValues[] {
    this.#consumers.settle();
    return this.#consumers.working.values(filter);
  }

  /** All times until now in which a consumer held no value that works. */
  gaps(filter: { resource?: string } & Partial<Place> = {}): WorkingGap[] {
    this.#consumers.settle();
    return this.#consumers.working.gaps(filter);
  }

  /** From now on a value works only while this secret's issuer takes it. */
  setIssuer(place: Place): void {
    this.#consumers.working.setIssuer(place);
  }

  /** The issuer takes a value from now on, or no more. */
  accept(place: Place, value: string, accepted: boolean): void {
    if (accepted) this.#consumers.working.accept(place, value);
    else this.#consumers.working.withdraw(place, value);
  }

  graph(): GraphSettings {
    return this.#consumers.graphSettings;
  }

  /** How Resource Graph behaves from now on; what is left out stays. */
  setGraph(settings: Partial<GraphSettings>): void {
    this.#consumers.graphSettings = { ...this.#consumers.graphSettings, ...settings };
  }

  /** How often each resource was called, by its id in lower case; a site's slots and what is below others count by themselves. */
  calls(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { resource } of this.#parts.ledger.requests()) {
      if (resource !== undefined) counts[resource.toLowerCase()] = (counts[resource.toLowerCase()] ?? 0) + 1;
    }
    return counts;
  }

  #resource(id: string): ArmResource {
    const resource = this.#parts.store.get(id);
    if (resource === undefined) throw new Error(`No resource ${id}`);
    return resource;
  }
}
