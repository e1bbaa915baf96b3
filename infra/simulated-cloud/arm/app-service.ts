import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues, SecretLocation } from "./consumer-values.ts";
import {
  type FetchedReference,
  isReference,
  parseReference,
  type ReferenceStatus,
  resolveReference,
} from "./key-vault-references.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/** Interval at which App Service fetches references again. */
const DAY_MS = 86_400_000;

export type SettingsKind = "appsettings" | "connectionstrings";

/** A running site or slot. */
interface RunningSite {
  /** Time of the last fetch, Unix milliseconds of the simulated clock. */
  fetchedAt: number;
  /** Results of the last fetch, by kind and name. */
  cache: Map<string, FetchedReference>;
}

/** A change of settings by another client, which a test plans. */
interface ConcurrentChange {
  /** Settings to change. Null removes a setting. */
  settings: Record<string, string | null>;
  /** Number of times that the change happens. */
  times: number;
  /** Number of lists or writes before the change happens. Default 0. */
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
 * Simulates the Key Vault references of App Service: settings that refer to a vault secret. App Service fetches the secrets
 * every 24 hours, on request (a refresh) and with every configuration change. A restart alone fetches nothing. The running app
 * has the values that were fetched before its last start.
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#rotation says that the app uses the new
 * version after the 24 hours, so the simulated app restarts then. It does not restart after a refresh.
 */
export class AppService {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues };
  /** Running sites by ID in lower case. Generated sites are added when a request changes them. */
  readonly #running = new Map<string, RunningSite>();
  readonly #faults = new Map<string, SiteFault>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (isSite(resource)) this.#startSite(resource);
  }

  /** Sets the misbehavior of a site or slot. Undefined removes it. */
  setFault(id: string, fault: SiteFault | undefined): void {
    if (fault === undefined) this.#faults.delete(id.toLowerCase());
    else this.#faults.set(id.toLowerCase(), structuredClone(fault));
  }

  /** Runs the fetches that are due by the simulated clock. Must run before each change that affects a fetch. */
  runDueWork(): void {
    const now = this.#parts.clock.now();
    for (const [id, running] of this.#running) {
      const days = Math.floor((now - running.fetchedAt) / DAY_MS);
      if (days < 1) continue;
      const site = this.#parts.store.get(id);
      if (site === undefined) this.#running.delete(id);
      else {
        // All due fetches return the result of the first, because settings and vaults did not change in between.
        const { fetchedAt } = running;
        this.#fetch(site, running);
        // The following fetches count from the last one that was due, not from now.
        running.fetchedAt = fetchedAt + days * DAY_MS;
        this.#start(site, running, fetchedAt + DAY_MS);
      }
    }
  }

  /** Starts a site or slot that was added, or replaced by a new declaration. */
  startDeclared(site: ArmResource): void {
    this.#parts.consumerValues.remove(site.id);
    this.#startSite(site);
  }

  /** Returns the references in the site's settings with the results of the last fetch. */
  references(site: ArmResource, kind: SettingsKind): { name: string; text: string; fetched: FetchedReference }[] {
    const running = this.#runningOrFetched(site);
    const statuses = this.#faults.get(site.id.toLowerCase())?.statuses ?? {};
    return textsOf(site, kind).flatMap(([name, text]) => {
      if (!isReference(text)) return [];
      const fixedStatus = statuses[name];
      const fetched = fixedStatus === undefined ? running.cache.get(keyOf(kind, name)) : { status: fixedStatus };
      return [{ name, text, fetched: fetched ?? { status: "Initialized" as const } }];
    });
  }

  /** Fetches the references again. The running app gets the new values only at its next restart. */
  refresh(site: ArmResource): void {
    if (this.#faults.get(site.id.toLowerCase())?.staysOld) return;
    this.#fetch(site, this.#ensureRunning(site));
  }

  /** Restarts the app with the values of the last fetch. */
  restart(site: ArmResource): void {
    this.#start(site, this.#ensureRunning(site));
  }

  /** Replaces all settings of a kind, fetches every reference and restarts the app. */
  replace(site: ArmResource, settings: Partial<Pick<ArmResource, "settings" | "connectionStrings">>): void {
    this.#ensureRunning(site);
    this.#parts.store.change(site, (one) => {
      Object.assign(one, settings);
      one.properties = { ...one.properties, lastModifiedTimeUtc: new Date(this.#parts.clock.now()).toISOString() };
    });
    const running = this.#ensureRunning(site);
    this.#fetch(site, running);
    this.#start(site, running);
  }

  /** Applies the concurrent change that a test planned for the moment after a list of the settings. */
  applyChangeAfterList(site: ArmResource): void {
    this.#applyConcurrentChange(site, "changedAfterList");
  }

  /** Applies the concurrent change that a test planned for the moment after a write of the settings. */
  applyChangeAfterPut(site: ArmResource): void {
    this.#applyConcurrentChange(site, "changedAfterPut");
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

  #applyConcurrentChange(site: ArmResource, when: "changedAfterList" | "changedAfterPut"): void {
    const change = this.#faults.get(site.id.toLowerCase())?.[when];
    if (change === undefined) return;
    const { after = 0 } = change;
    change.after = after - 1;
    if (after > 0 || change.times <= 0) return;
    change.times--;
    this.changeSettings(site, change.settings);
  }

  #startSite(site: ArmResource): void {
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, FetchedReference>() };
    this.#running.set(site.id.toLowerCase(), running);
    this.#fetch(site, running);
    this.#start(site, running);
  }

  /** Returns the state of a site for reading. A generated site is fetched for this call only. */
  #runningOrFetched(site: ArmResource): RunningSite {
    const storedSite = this.#running.get(site.id.toLowerCase());
    if (storedSite !== undefined) return storedSite;
    const running = { fetchedAt: this.#parts.clock.now(), cache: new Map<string, FetchedReference>() };
    this.#fetch(site, running);
    return running;
  }

  /** Returns the state of a site, which is stored from now on. */
  #ensureRunning(site: ArmResource): RunningSite {
    if (!this.#running.has(site.id.toLowerCase())) this.#startSite(site);
    return this.#running.get(site.id.toLowerCase())!;
  }

  #fetch(site: ArmResource, running: RunningSite): void {
    running.fetchedAt = this.#parts.clock.now();
    running.cache.clear();
    for (const kind of ["appsettings", "connectionstrings"] as const) {
      for (const [name, text] of textsOf(site, kind)) {
        if (isReference(text)) running.cache.set(keyOf(kind, name), resolveReference(this.#parts, site, text));
      }
    }
  }

  /**
   * Restarts the app with its current settings and records the value that each setting then has, under its name (`evidence`).
   * A reference that can't be resolved is recorded as no value: the app would get the text of the reference.
   */
  #start(site: ArmResource, running: RunningSite, at?: number): void {
    const currentSettings = new Set<string>();
    for (const kind of ["appsettings", "connectionstrings"] as const) {
      for (const [name, text] of textsOf(site, kind)) {
        const evidence = keyOf(kind, name);
        const location = secretOf(site, evidence, text);
        if (location === undefined) continue;
        currentSettings.add(evidence);
        const value = isReference(text) ? running.cache.get(keyOf(kind, name))?.value : text;
        this.#parts.consumerValues.record(site.id, evidence, location, value, at);
      }
    }
    // Settings that were removed have no value after the restart.
    for (const { evidence, vault, secret } of this.#parts.consumerValues.values({ resource: site.id })) {
      if (!currentSettings.has(evidence))
        this.#parts.consumerValues.record(site.id, evidence, { vault, secret }, undefined, at);
    }
  }
}

export const isSite = ({ type }: ArmResource): boolean => type.noun === "Site" || type.noun === "Slot";

/** Returns the vault secret whose value a setting should have. Undefined for a setting that refers to no secret. */
function secretOf(site: ArmResource, evidence: string, text: string): SecretLocation | undefined {
  const location = isReference(text) ? parseReference(text) : site.copies[evidence];
  return location && { vault: location.vault, secret: location.secret };
}

/** Returns the names and texts of the settings of a kind. */
function textsOf(site: ArmResource, kind: SettingsKind): [name: string, text: string][] {
  return kind === "appsettings"
    ? Object.entries(site.settings)
    : Object.entries(site.connectionStrings).map(([name, { value }]) => [name, value]);
}

/** Name of a setting in records, such as `appsettings/NAME`. */
const keyOf = (kind: SettingsKind, name: string): string => `${kind}/${name}`;
