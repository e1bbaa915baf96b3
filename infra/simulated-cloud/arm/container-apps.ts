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

/** A revision of a container app: an immutable version of its template, with its running replicas. */
export interface Revision {
  name: string;
  active: boolean;
  /** Unix milliseconds of the simulated clock. */
  createdAt: number;
  startedAt: number;
  /** Values that the running replicas have, by the name of the app's secret. */
  secretValues: Map<string, string | undefined>;
}

interface RunningApp {
  /** Time of the last processed tick, Unix milliseconds of the simulated clock. */
  tick: number;
  /** Values that were last read from vaults, by the name of the app's secret. */
  vaultValues: Map<string, { version: string; value: string }>;
  /** Revisions, also inactive ones. Empty for a job. */
  revisions: Revision[];
}

/** Interval of the platform's ticks, at which it reads secrets from vaults again. */
const TICK_MS = 30 * 60_000;
/** Azure's ticks were observed at 13:53 (minutes and seconds) past each half hour, for all apps. */
const TICK_OFFSET_MS = (13 * 60 + 53) * 1000;

/**
 * Simulates Container Apps and jobs. Every 30 minutes the platform reads the secrets without a version from their vaults. If a
 * value changed, the platform restarts all active revisions: https://learn.microsoft.com/azure/container-apps/manage-secrets. If
 * a secret can't be read, the app keeps its previous value.
 */
export class ContainerApps {
  readonly #parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues };
  /** Running apps by ID in lower case. */
  readonly #running = new Map<string, RunningApp>();

  constructor(parts: { resources: VaultStore; store: ArmStore; clock: CloudClock; consumerValues: ConsumerValues }) {
    this.#parts = parts;
    for (const resource of parts.store.all()) if (isContainerApp(resource)) this.#startApp(resource);
  }

  /** Runs the ticks that are due by the simulated clock. */
  runDueWork(): void {
    const now = this.#parts.clock.now();
    const latest = lastTick(now);
    for (const [id, running] of this.#running) {
      if (running.tick >= latest) continue;
      const app = this.#parts.store.get(id);
      if (app === undefined) this.#running.delete(id);
      else {
        // All due ticks read the same values, because vaults did not change in between.
        const nextTickAt = running.tick + TICK_MS;
        running.tick = latest;
        if (this.#readVaults(app, running)) this.#restartAll(app, running, nextTickAt);
      }
    }
  }

  /** Starts an app that was added, or replaced by a new declaration. */
  startDeclared(app: ArmResource): void {
    this.#parts.consumerValues.remove(app.id);
    this.#startApp(app);
  }

  revisions(app: ArmResource): Revision[] {
    return this.#running.get(app.id.toLowerCase())?.revisions ?? [];
  }

  /**
   * Replaces the app's secrets and, if given, its template, which creates a new revision.
   * @returns the error message. Undefined on success.
   */
  replace(app: ArmResource, secrets: AppSecret[], template: unknown): string | undefined {
    const problem = this.#unreadableSecret(app, secrets);
    if (problem !== undefined) return problem;
    const running = this.#running.get(app.id.toLowerCase())!;
    const removedSecrets = secretsOf(app).filter(({ name }) => !secrets.some((one) => one.name === name));
    for (const { name } of removedSecrets) {
      running.vaultValues.delete(name);
      for (const { evidence, ...location } of this.#parts.consumerValues.values({ resource: app.id })) {
        if (evidence === `secrets/${name}` || evidence.startsWith(`secrets/${name} of `))
          this.#parts.consumerValues.record(app.id, evidence, location, undefined);
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
    this.#readVaults(app, running);
    if (template !== undefined && running.revisions.length > 0) {
      for (const revision of running.revisions) revision.active = false;
      const revision = this.#createRevision(app, running.revisions.length);
      running.revisions.push(revision);
      this.#start(app, running, revision);
    }
    if (app.type.noun === "ContainerAppJob") this.#recordValues(app, running, undefined, this.#parts.clock.now());
    return undefined;
  }

  /** Returns a secret's value as the platform stores it. */
  valueOf(app: ArmResource, { name, value }: AppSecret): string | undefined {
    return value ?? this.#running.get(app.id.toLowerCase())?.vaultValues.get(name)?.value;
  }

  #startApp(app: ArmResource): void {
    const tick = lastTick(this.#parts.clock.now());
    const running: RunningApp = { tick, vaultValues: new Map(), revisions: [] };
    this.#running.set(app.id.toLowerCase(), running);
    this.#readVaults(app, running);
    if (app.type.noun === "ContainerApp") {
      const { activeRevisionsMode } = (app.properties.configuration ?? {}) as { activeRevisionsMode?: string };
      const count = activeRevisionsMode === "Multiple" ? 2 : 1;
      for (let index = 0; index < count; index++) running.revisions.push(this.#createRevision(app, index));
    }
    this.#restartAll(app, running, this.#parts.clock.now());
  }

  #createRevision({ name }: ArmResource, index: number): Revision {
    const at = this.#parts.clock.now();
    const suffix = String(index + 1).padStart(7, "0");
    return {
      name: `${name}--${suffix}`,
      active: true,
      createdAt: at,
      startedAt: at,
      secretValues: new Map(),
    };
  }

  /**
   * Reads the app's secrets from their vaults. The value of a secret with a fixed version never changes.
   * @returns whether a value changed
   */
  #readVaults(app: ArmResource, running: RunningApp): boolean {
    let changed = false;
    for (const secret of secretsOf(app)) {
      const previous = running.vaultValues.get(secret.name);
      const location = secret.keyVaultUrl === undefined ? undefined : parseSecretUri(secret.keyVaultUrl);
      if (location === undefined) continue;
      const reading = this.#read(app, secret);
      if ("problem" in reading || reading.version === previous?.version) continue;
      running.vaultValues.set(secret.name, reading);
      changed = true;
    }
    return changed;
  }

  #read(app: ArmResource, { identity = "system", keyVaultUrl = "" }: AppSecret): ReadResult {
    const location = parseSecretUri(keyVaultUrl);
    if (location === undefined) return { problem: "noVault" };
    const principals = principalsOf(app.identity, identity.toLowerCase() === "system" ? undefined : identity);
    return readSecret(this.#parts, principals, location);
  }

  /** Returns an error message if the app cannot read one of the secrets. */
  #unreadableSecret(app: ArmResource, secrets: readonly AppSecret[]): string | undefined {
    for (const secret of secrets) {
      if (secret.keyVaultUrl === undefined) continue;
      const reading = this.#read(app, secret);
      if (!("problem" in reading)) continue;
      const identity = secret.identity ?? "system";
      return `Failed to provision revision. Unable to get value using Managed identity ${identity} for secret ${secret.name}.`;
    }
    return undefined;
  }

  #restartAll(app: ArmResource, running: RunningApp, at: number): void {
    for (const revision of running.revisions) if (revision.active) this.#start(app, running, revision, at);
    if (app.type.noun === "ContainerAppJob") this.#recordValues(app, running, undefined, at);
  }

  #start(app: ArmResource, running: RunningApp, revision: Revision, at = this.#parts.clock.now()): void {
    revision.startedAt = at;
    revision.secretValues = new Map(secretsOf(app).map((secret) => [secret.name, this.valueOf(app, secret)]));
    this.#recordValues(app, running, revision, at);
  }

  /** Records the values of the running replicas. The next execution of a job uses the platform's stored values. */
  #recordValues(app: ArmResource, running: RunningApp, revision: Revision | undefined, at: number): void {
    const hasSeveralRevisions = running.revisions.filter(({ active }) => active).length > 1;
    for (const secret of secretsOf(app)) {
      const location = parseSecretUri(secret.keyVaultUrl ?? "") ?? app.copies[`secrets/${secret.name}`];
      if (location === undefined) continue;
      // The name under which the value is recorded. Several active revisions have separate records.
      const evidence = `secrets/${secret.name}${hasSeveralRevisions && revision !== undefined ? ` of ${revision.name}` : ""}`;
      this.#parts.consumerValues.record(app.id, evidence, location, this.valueOf(app, secret), at);
    }
  }
}

export const isContainerApp = ({ type }: ArmResource): boolean =>
  type.noun === "ContainerApp" || type.noun === "ContainerAppJob";

/** Returns the declared secrets of an app. */
export function secretsOf({ properties }: ArmResource): AppSecret[] {
  const { secrets } = (properties.configuration ?? {}) as { secrets?: AppSecret[] };
  return secrets ?? [];
}

/** Returns the time of the last tick. */
const lastTick = (now: number): number => Math.floor((now - TICK_OFFSET_MS) / TICK_MS) * TICK_MS + TICK_OFFSET_MS;
