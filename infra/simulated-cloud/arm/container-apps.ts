import type { CloudClock } from "../clock.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ConsumerValues } from "./consumer-values.ts";
import { principalsOf } from "./identities.ts";
import { parseSecretUri } from "./key-vault-references.ts";
import { type ReadResult, readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/** A secret of a container app: a value, or a vault secret that one of the app's identities reads. */
export interface AppSecret {
  name: string;
  value?: string;
  /** Address of the vault secret: `https://VAULT.…/secrets/NAME[/VERSION]` */
  keyVaultUrl?: string;
  /** `system`, or the resource ID of a user-assigned identity. */
  identity?: string;
}

export interface Revision {
  name: string;
  active: boolean;
  /** Unix milliseconds of the simulated clock. */
  createdAt: number;
  startedAt: number;
  healthy: boolean;
  /** Values by the name of the app's secret. */
  holds: Map<string, string | undefined>;
}

interface Running {
  /** Number of the last processed tick. */
  tick: number;
  /** Values that were last read from vaults, by the name of the app's secret. */
  synced: Map<string, { version: string; value: string }>;
  /** Active revisions. Empty for a job. */
  revisions: Revision[];
}

/** Misbehavior of one container app that a test can set. */
export interface ContainerAppFault {
  /** This many of the next restarts end with an unhealthy revision, whose previous replicas keep running. */
  unhealthyRestarts?: number;
  /** A restart does not read the vaults. */
  staysOld?: boolean;
}

const TICK_MS = 30 * 60_000;
/** Azure's ticks were observed at 13:53 past each half hour. The platform sets them, not the app. */
const TICK_OFFSET_MS = (13 * 60 + 53) * 1000;

/**
 * Simulates Container Apps and jobs. Every 30 minutes the platform reads the secrets without a version from their vaults. If a
 * value changed, the platform restarts all active revisions: https://learn.microsoft.com/azure/container-apps/manage-secrets. A
 * requested restart also reads the secrets. If a secret can't be read, the app keeps its previous value.
 */
export class ContainerApps {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues };
  /** Running apps by ID in lower case. */
  readonly #running = new Map<string, Running>();
  readonly #plants = new Map<string, ContainerAppFault>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; working: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (isContainerApp(resource)) this.#begin(resource);
  }

  plant(id: string, plant: ContainerAppFault | undefined): void {
    if (plant === undefined) this.#plants.delete(id.toLowerCase());
    else this.#plants.set(id.toLowerCase(), { ...plant });
  }

  settle(): void {
    const now = this.#parts.clock.now();
    const latest = lastTick(now);
    for (const [id, running] of this.#running) {
      if (running.tick >= latest) continue;
      const app = this.#parts.store.get(id);
      if (app === undefined) this.#running.delete(id);
      else {
        // All due ticks read the same values, because vaults did not change in between.
        const at = running.tick + TICK_MS;
        running.tick = latest;
        if (this.#sync(app, running)) this.#restartAll(app, running, at);
      }
    }
  }

  declared(app: ArmResource): void {
    this.#parts.working.remove(app.id);
    this.#begin(app);
  }

  revisions(app: ArmResource): Revision[] {
    return this.#running.get(app.id.toLowerCase())?.revisions ?? [];
  }

  /** Restarts a revision. Returns false if the app has no such revision. */
  restart(app: ArmResource, name: string): boolean {
    const running = this.#running.get(app.id.toLowerCase())!;
    const revision = running.revisions.find((one) => one.name.toLowerCase() === name.toLowerCase());
    if (revision === undefined) return false;
    const plant = this.#plants.get(app.id.toLowerCase());
    if (!plant?.staysOld) this.#sync(app, running);
    if (plant?.unhealthyRestarts) {
      plant.unhealthyRestarts--;
      revision.healthy = false;
    } else this.#start(app, running, revision);
    return true;
  }

  /**
   * Replaces the app's secrets and, if given, its template, which creates a new revision.
   * @returns the error message; undefined on success
   */
  replace(app: ArmResource, secrets: AppSecret[], template: unknown): string | undefined {
    const problem = this.#problemOf(app, secrets);
    if (problem !== undefined) return problem;
    const running = this.#running.get(app.id.toLowerCase())!;
    const dropped = secretsOf(app).filter(({ name }) => !secrets.some((one) => one.name === name));
    for (const { name } of dropped) {
      running.synced.delete(name);
      for (const { evidence, ...place } of this.#parts.working.values({ resource: app.id })) {
        if (evidence === `secrets/${name}` || evidence.startsWith(`secrets/${name} of `))
          this.#parts.working.record(app.id, evidence, place, undefined);
      }
    }
    this.#parts.store.change(app, (one) => {
      const { configuration = {} } = one.properties as { configuration?: object };
      one.properties = {
        ...one.properties,
        configuration: { ...configuration, secrets },
        ...(template !== undefined && { template }),
      };
    });
    this.#sync(app, running);
    if (template !== undefined && running.revisions.length > 0) {
      for (const revision of running.revisions) revision.active = false;
      const revision = this.#revision(app, running.revisions.length);
      running.revisions.push(revision);
      this.#start(app, running, revision);
    }
    if (app.type.noun === "ContainerAppJob") this.#hold(app, running, undefined, this.#parts.clock.now());
    return undefined;
  }

  /** Returns a secret's value as the platform stores it. */
  valueOf(app: ArmResource, { name, value }: AppSecret): string | undefined {
    return value ?? this.#running.get(app.id.toLowerCase())?.synced.get(name)?.value;
  }

  #begin(app: ArmResource): void {
    const tick = lastTick(this.#parts.clock.now());
    const running: Running = { tick, synced: new Map(), revisions: [] };
    this.#running.set(app.id.toLowerCase(), running);
    this.#sync(app, running);
    if (app.type.noun === "ContainerApp") {
      const { activeRevisionsMode } = (app.properties.configuration ?? {}) as { activeRevisionsMode?: string };
      const count = activeRevisionsMode === "Multiple" ? 2 : 1;
      for (let index = 0; index < count; index++) running.revisions.push(this.#revision(app, index));
    }
    this.#restartAll(app, running, this.#parts.clock.now());
  }

  #revision({ name }: ArmResource, index: number): Revision {
    const at = this.#parts.clock.now();
    const suffix = String(index + 1).padStart(7, "0");
    return { name: `${name}--${suffix}`, active: true, createdAt: at, startedAt: at, healthy: true, holds: new Map() };
  }

  /**
   * Reads the secrets without a version and the secrets that were never read.
   * @returns whether a value changed
   */
  #sync(app: ArmResource, running: Running): boolean {
    let changed = false;
    for (const secret of secretsOf(app)) {
      const before = running.synced.get(secret.name);
      const place = secret.keyVaultUrl === undefined ? undefined : parseSecretUri(secret.keyVaultUrl);
      if (place === undefined) continue;
      const reading = this.#read(app, secret);
      if ("problem" in reading || reading.version === before?.version) continue;
      running.synced.set(secret.name, reading);
      changed = true;
    }
    return changed;
  }

  #read(app: ArmResource, { identity = "system", keyVaultUrl = "" }: AppSecret): ReadResult {
    const place = parseSecretUri(keyVaultUrl);
    if (place === undefined) return { problem: "noVault" };
    const principals = principalsOf(app.identity, identity.toLowerCase() === "system" ? undefined : identity);
    return readSecret(this.#parts, principals, place);
  }

  #problemOf(app: ArmResource, secrets: readonly AppSecret[]): string | undefined {
    for (const secret of secrets) {
      if (secret.keyVaultUrl === undefined) continue;
      const reading = this.#read(app, secret);
      if (!("problem" in reading)) continue;
      const identity = secret.identity ?? "system";
      return `Failed to provision revision. Unable to get value using Managed identity ${identity} for secret ${secret.name}.`;
    }
    return undefined;
  }

  #restartAll(app: ArmResource, running: Running, at: number): void {
    for (const revision of running.revisions) if (revision.active) this.#start(app, running, revision, at);
    if (app.type.noun === "ContainerAppJob") this.#hold(app, running, undefined, at);
  }

  #start(app: ArmResource, running: Running, revision: Revision, at = this.#parts.clock.now()): void {
    revision.startedAt = at;
    revision.healthy = true;
    revision.holds = new Map(secretsOf(app).map((secret) => [secret.name, this.valueOf(app, secret)]));
    this.#hold(app, running, revision, at);
  }

  /** Records the values of the running replicas. The next execution of a job uses the platform's stored values. */
  #hold(app: ArmResource, running: Running, revision: Revision | undefined, at: number): void {
    const several = running.revisions.filter(({ active }) => active).length > 1;
    for (const secret of secretsOf(app)) {
      const place = parseSecretUri(secret.keyVaultUrl ?? "") ?? app.copies[`secrets/${secret.name}`];
      if (place === undefined) continue;
      const evidence = `secrets/${secret.name}${several && revision !== undefined ? ` of ${revision.name}` : ""}`;
      this.#parts.working.record(app.id, evidence, place, this.valueOf(app, secret), at);
    }
  }
}

export const isContainerApp = ({ type }: ArmResource): boolean =>
  type.noun === "ContainerApp" || type.noun === "ContainerAppJob";

export function secretsOf({ properties }: ArmResource): AppSecret[] {
  const { secrets } = (properties.configuration ?? {}) as { secrets?: AppSecret[] };
  return secrets ?? [];
}

const lastTick = (now: number): number => Math.floor((now - TICK_OFFSET_MS) / TICK_MS) * TICK_MS + TICK_OFFSET_MS;
