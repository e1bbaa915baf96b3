import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues, Place } from "./consumer-values.ts";
import {
  type FetchedReference,
  isReference,
  parseReference,
  type ReferenceStatus,
  resolveReference,
} from "./key-vault-references.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

const DAY_MS = 86_400_000;

export type SettingsKind = "appsettings" | "connectionstrings";

/** A running site or slot. */
interface Running {
  fetchedAt: number;
  /** Results of the last fetch, by kind and name. */
  cache: Map<string, FetchedReference>;
}

interface ConcurrentChange {
  /** Settings to change. Null removes a setting. */
  settings: Record<string, string | null>;
  /** How many times the change happens. */
  times: number;
  /** How many lists or writes pass before the change happens. Default 0. */
  after?: number;
}

/** Misbehavior of one site or slot that a test can set. */
export interface SiteFault {
  /** A refresh returns success and fetches nothing. */
  staysOld?: boolean;
  /** The reported status of references, by setting name, whatever their true status is. */
  statuses?: Record<string, ReferenceStatus>;
  /** Settings that another client changes right after the service listed them. */
  changedAfterList?: ConcurrentChange;
  /** Settings that another client changes right after the service wrote them. */
  changedAfterPut?: ConcurrentChange;
}

/**
 * Simulates App Service's Key Vault references. App Service fetches references every 24 hours, on request and with every
 * configuration change. A restart alone fetches nothing. The running app has the values that were fetched before its last
 * start. https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#rotation says that the app uses the new
 * version after the 24 hours, so the simulated app restarts then. It does not restart after a refresh.
 */
export class AppService {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues };
  /** Running sites by ID in lower case. Generated sites are added when a request changes them. */
  readonly #running = new Map<string, Running>();
  readonly #plants = new Map<string, SiteFault>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (isSite(resource)) this.#begin(resource);
  }

  plant(id: string, plant: SiteFault | undefined): void {
    if (plant === undefined) this.#plants.delete(id.toLowerCase());
    else this.#plants.set(id.toLowerCase(), structuredClone(plant));
  }

  /** Runs the fetches that are due. Called before each change that affects a fetch. */
  settle(): void {
    const now = this.#parts.clock.now();
    for (const [id, running] of this.#running) {
      const days = Math.floor((now - running.fetchedAt) / DAY_MS);
      if (days < 1) continue;
      const site = this.#parts.store.get(id);
      if (site === undefined) this.#running.delete(id);
      else {
        // All due fetches return the result of the first, because settings and vaults did not change in between.
        const at = running.fetchedAt + DAY_MS;
        this.#fetch(site, running);
        running.fetchedAt += days * DAY_MS;
        this.#start(site, running, at);
      }
    }
  }

  /** Resets a site or slot that was declared again. */
  declared(site: ArmResource): void {
    this.#parts.working.remove(site.id);
    this.#begin(site);
  }

  /** Returns the references in the site's settings with the results of the last fetch. */
  references(site: ArmResource, kind: SettingsKind): { name: string; text: string; fetched: FetchedReference }[] {
    const running = this.#of(site);
    const statuses = this.#plants.get(site.id.toLowerCase())?.statuses ?? {};
    return textsOf(site, kind).flatMap(([name, text]) => {
      if (!isReference(text)) return [];
      const planted = statuses[name];
      const fetched = planted === undefined ? running.cache.get(keyOf(kind, name)) : { status: planted };
      return [{ name, text, fetched: fetched ?? { status: "Initialized" as const } }];
    });
  }

  refresh(site: ArmResource): void {
    if (this.#plants.get(site.id.toLowerCase())?.staysOld) return;
    this.#fetch(site, this.#keep(site));
  }

  restart(site: ArmResource): void {
    this.#start(site, this.#keep(site));
  }

  /** Replaces all settings of a kind, fetches every reference and restarts the app. */
  replace(site: ArmResource, settings: Partial<Pick<ArmResource, "settings" | "connectionStrings">>): void {
    this.#keep(site);
    this.#parts.store.change(site, (one) => {
      Object.assign(one, settings);
      one.properties = { ...one.properties, lastModifiedTimeUtc: new Date(this.#parts.clock.now()).toISOString() };
    });
    const running = this.#keep(site);
    this.#fetch(site, running);
    this.#start(site, running);
  }

  /** Called after a list of the settings. Applies the changes that a test planned for this moment. */
  listed(site: ArmResource): void {
    this.#foreign(site, "changedAfterList");
  }

  /** Called after a write of the settings. Applies the changes that a test planned for this moment. */
  written(site: ArmResource): void {
    this.#foreign(site, "changedAfterPut");
  }

  /** Changes settings as another client. Null removes a setting. */
  changeSettings(site: ArmResource, changes: Record<string, string | null>): void {
    const settings: Record<string, string> = { ...site.settings };
    for (const [name, value] of Object.entries(changes)) {
      if (value === null) delete settings[name];
      else settings[name] = value;
    }
    this.replace(site, { settings });
  }

  #foreign(site: ArmResource, when: "changedAfterList" | "changedAfterPut"): void {
    const change = this.#plants.get(site.id.toLowerCase())?.[when];
    if (change === undefined) return;
    const { after = 0 } = change;
    change.after = after - 1;
    if (after > 0 || change.times <= 0) return;
    change.times--;
    this.changeSettings(site, change.settings);
  }

  #begin(site: ArmResource): void {
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, FetchedReference>() };
    this.#running.set(site.id.toLowerCase(), running);
    this.#fetch(site, running);
    this.#start(site, running);
  }

  #of(site: ArmResource): Running {
    const known = this.#running.get(site.id.toLowerCase());
    if (known !== undefined) return known;
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, FetchedReference>() };
    this.#fetch(site, running);
    return running;
  }

  #keep(site: ArmResource): Running {
    if (!this.#running.has(site.id.toLowerCase())) this.#begin(site);
    return this.#running.get(site.id.toLowerCase())!;
  }

  #fetch(site: ArmResource, running: Running): void {
    running.fetchedAt = this.#parts.clock.now();
    running.cache.clear();
    for (const kind of ["appsettings", "connectionstrings"] as const) {
      for (const [name, text] of textsOf(site, kind)) {
        if (isReference(text)) running.cache.set(keyOf(kind, name), resolveReference(this.#parts, site, text));
      }
    }
  }

  /** Restarts the app with its current settings. A reference that can't be resolved becomes the reference's own text. */
  #start(site: ArmResource, running: Running, at?: number): void {
    const held = new Set<string>();
    for (const kind of ["appsettings", "connectionstrings"] as const) {
      for (const [name, text] of textsOf(site, kind)) {
        const evidence = keyOf(kind, name);
        const place = secretOf(site, evidence, text);
        if (place === undefined) continue;
        held.add(evidence);
        const value = isReference(text) ? running.cache.get(keyOf(kind, name))?.value : text;
        this.#parts.working.record(site.id, evidence, place, value, at);
      }
    }
    // The restarted app no longer has a removed setting.
    for (const { evidence, vault, secret } of this.#parts.working.values({ resource: site.id })) {
      if (!held.has(evidence)) this.#parts.working.record(site.id, evidence, { vault, secret }, undefined, at);
    }
  }
}

export const isSite = ({ type }: ArmResource): boolean => type.noun === "Site" || type.noun === "Slot";

/** Returns the secret that a setting should have the value of. Undefined for a setting that refers to no secret. */
function secretOf(site: ArmResource, evidence: string, text: string): Place | undefined {
  const place = isReference(text) ? parseReference(text) : site.copies[evidence];
  return place && { vault: place.vault, secret: place.secret };
}

function textsOf(site: ArmResource, kind: SettingsKind): [name: string, text: string][] {
  return kind === "appsettings"
    ? Object.entries(site.settings)
    : Object.entries(site.connectionStrings).map(([name, { value }]) => [name, value]);
}

const keyOf = (kind: SettingsKind, name: string): string => `${kind}/${name}`;
