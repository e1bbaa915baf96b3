import type { CloudClock } from "../clock.ts";
import type { Resources } from "../resources/resources.ts";
import { type Fetched, follow, isReference, placeOf, type ReferenceStatus } from "./references.ts";
import type { ArmResource, ArmStore } from "./store.ts";
import type { Place, WorkingValues } from "./working-values.ts";

const DAY_MS = 86_400_000;

export type SettingsKind = "appsettings" | "connectionstrings";

/** A site or slot as it runs. */
interface Running {
  fetchedAt: number;
  /** What was fetched last, by kind and name. */
  cache: Map<string, Fetched>;
}

interface ForeignChange {
  /** Null removes one. */
  settings: Record<string, string | null>;
  /** How often it happens. */
  times: number;
  /** How many lists or writes go through first. Default 0. */
  after?: number;
}

/** What a test can make one site or slot do. */
export interface SitePlant {
  /** A refresh is answered and fetches nothing. */
  staysOld?: boolean;
  /** The state that a reference has whatever is true, by the setting's name. */
  statuses?: Record<string, ReferenceStatus>;
  /** Somebody else changes these settings right after they were listed. */
  changedAfterList?: ForeignChange;
  /** Somebody else changes these settings right after they were written. */
  changedAfterPut?: ForeignChange;
}

/**
 * How App Service handles references to Key Vault: it fetches them every 24 hours, when it is told to, and with every change
 * of the configuration; a restart alone fetches nothing. The running app has what was fetched when it last started.
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#rotation. That page says that after the 24
 * hours the app begins to use the new version, so here it then starts again; after a refresh it does not.
 */
export class AppService {
  readonly #parts: { resources: Resources; store: ArmStore; clock: CloudClock; working: WorkingValues };
  /** By id in lower case. Of sites that are computed only those that somebody acted on. */
  readonly #running = new Map<string, Running>();
  readonly #plants = new Map<string, SitePlant>();

  constructor(parts: { resources: Resources; store: ArmStore; clock: CloudClock; working: WorkingValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (isSite(resource)) this.#begin(resource);
  }

  plant(id: string, plant: SitePlant | undefined): void {
    if (plant === undefined) this.#plants.delete(id.toLowerCase());
    else this.#plants.set(id.toLowerCase(), structuredClone(plant));
  }

  /** Does what was due until now. Called before anything changes that a fetch depends on. */
  settle(): void {
    const now = this.#parts.clock.now();
    for (const [id, running] of this.#running) {
      const days = Math.floor((now - running.fetchedAt) / DAY_MS);
      if (days < 1) continue;
      const site = this.#parts.store.get(id);
      if (site === undefined) this.#running.delete(id);
      else {
        // Nothing changed in between, so the first of the fetches found what all of them did.
        const at = running.fetchedAt + DAY_MS;
        this.#fetch(site, running);
        running.fetchedAt += days * DAY_MS;
        this.#start(site, running, at);
      }
    }
  }

  /** A site or slot that was declared anew. */
  declared(site: ArmResource): void {
    this.#parts.working.forget(site.id);
    this.#begin(site);
  }

  /** The references among its settings with what was fetched last. */
  references(site: ArmResource, kind: SettingsKind): { name: string; text: string; fetched: Fetched }[] {
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

  /** Replaces all settings of a kind: fetches every reference and starts the app again. */
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

  /** Its settings were listed: whoever is to change them then does. */
  listed(site: ArmResource): void {
    this.#foreign(site, "changedAfterList");
  }

  /** Its settings were written by whoever answers for it: somebody else may change them then. */
  written(site: ArmResource): void {
    this.#foreign(site, "changedAfterPut");
  }

  /** As somebody else changes them; null removes one. */
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
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, Fetched>() };
    this.#running.set(site.id.toLowerCase(), running);
    this.#fetch(site, running);
    this.#start(site, running);
  }

  #of(site: ArmResource): Running {
    const known = this.#running.get(site.id.toLowerCase());
    if (known !== undefined) return known;
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, Fetched>() };
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
        if (isReference(text)) running.cache.set(keyOf(kind, name), follow(this.#parts, site, text));
      }
    }
  }

  /** The app starts with what its settings then are: of a reference that can't be followed, the reference's own text. */
  #start(site: ArmResource, running: Running, at?: number): void {
    const held = new Set<string>();
    for (const kind of ["appsettings", "connectionstrings"] as const) {
      for (const [name, text] of textsOf(site, kind)) {
        const evidence = keyOf(kind, name);
        const place = secretOf(site, evidence, text);
        if (place === undefined) continue;
        held.add(evidence);
        const value = isReference(text) ? running.cache.get(keyOf(kind, name))?.value : text;
        this.#parts.working.holds(site.id, evidence, place, value, at);
      }
    }
    // A setting that is gone leaves the app without it.
    for (const { evidence, vault, secret } of this.#parts.working.values({ resource: site.id })) {
      if (!held.has(evidence)) this.#parts.working.holds(site.id, evidence, { vault, secret }, undefined, at);
    }
  }
}

export const isSite = ({ type }: ArmResource): boolean => type.noun === "Site" || type.noun === "Slot";

/** The secret that a setting is meant to have the value of; undefined for any other setting. */
function secretOf(site: ArmResource, evidence: string, text: string): Place | undefined {
  const place = isReference(text) ? placeOf(text) : site.copies[evidence];
  return place && { vault: place.vault, secret: place.secret };
}

function textsOf(site: ArmResource, kind: SettingsKind): [name: string, text: string][] {
  return kind === "appsettings"
    ? Object.entries(site.settings)
    : Object.entries(site.connectionStrings).map(([name, { value }]) => [name, value]);
}

const keyOf = (kind: SettingsKind, name: string): string => `${kind}/${name}`;
