import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import type {
  ConsumerCheck,
  ConsumerProblem,
  ConsumersOfSecrets,
  PlannedConsumer,
  RefreshRequest,
} from "../../shared/rotation/consumer.ts";
import { VAULT, type World } from "./world.ts";

/**
 * How a consumer gets a new value. `automatic`: it loads the value by itself. `action`: the service refreshes it. `blind`: the
 * service can neither refresh it nor see its value. `willBreak`: it keeps the old value.
 */
type RefreshMethod = PlannedConsumer["how"];

/**
 * Fault of a consumer during a refresh. "denied", "throttled": the refresh is rejected. "never takes it": the refresh has no
 * effect. "says it can't": the consumer reports that it can't read the vault.
 */
export type RefreshFault = "denied" | "throttled" | "never takes it" | "says it can't";

interface SimulatedConsumer {
  planned: PlannedConsumer;
  refreshFault?: RefreshFault | undefined;
  /** Settings that another writer changes during the refresh. */
  changedMeanwhile: string[];
  /** Why it can't use the secret, before and after the rotation. */
  brokenBefore?: string | undefined;
  /** Value and version of the secret that the consumer uses. */
  value: string;
  version: string;
  /** Time at which the consumer loads the current version automatically, in ms since 1970. */
  reloadsAt?: number | undefined;
}

/**
 * Simulates apps that read secrets of the simulated cloud's vault. Records each call of a rotation and each value that an app
 * used.
 */
export class SimulatedConsumers implements ConsumersOfSecrets {
  /** All consumers by ID. Tests change their faults here. */
  readonly consumersById = new Map<string, SimulatedConsumer>();
  /** IDs of the consumers that a rotation refreshed, in order. */
  readonly refreshed: string[] = [];
  /** Calls of rotations, by the consumer's ID, oldest first. */
  readonly calls: { id: string; call: "refresh" | "check" }[] = [];
  /** Each value that a consumer loaded, oldest first. */
  readonly usedValues: { id: string; value: string }[] = [];
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /**
   * Adds a consumer that uses the current version of a vault secret.
   *
   * @param rest - Members that differ from the defaults. A rotation refreshes the consumers with the lowest `blast` first.
   */
  add(
    id: string,
    secretName: string,
    how: RefreshMethod,
    rest: Partial<PlannedConsumer> & { refreshFault?: RefreshFault; brokenBefore?: string } = {},
  ): void {
    const { refreshFault, brokenBefore, ...others } = rest;
    const planned = { id, kind: "webApp", name: id, vaultName: VAULT, secretName, evidence: "SECRET", how } as const;
    const consumer: SimulatedConsumer = {
      planned: { ...planned, slowestSeconds: how === "automatic" ? 1800 : 0, blast: 1, ...others },
      refreshFault,
      brokenBefore,
      changedMeanwhile: [],
      value: "",
      version: "",
    };
    this.consumersById.set(id, consumer);
    this.#loadCurrentVersion(consumer);
  }

  /** Lets consumers that reload secrets by themselves load the current version if their reload time has come. */
  reloadDueConsumers(): void {
    for (const consumer of this.consumersById.values()) {
      const { how, slowestSeconds } = consumer.planned;
      if (how !== "automatic" && how !== "blind") continue;
      if (this.#currentVersion(consumer).version === consumer.version) continue;
      const now = this.#world.clock.now().getTime();
      // A rotation allows the consumer up to `slowestSeconds`.
      consumer.reloadsAt ??= now + (slowestSeconds * SECOND_MS) / 2;
      if (consumer.reloadsAt <= now) this.#loadCurrentVersion(consumer);
    }
  }

  #currentVersion({ planned: { vaultName, secretName } }: SimulatedConsumer): { version: string; value: string } {
    const { control } = this.#world.cloud;
    const { version } = control.items(vaultName, "secrets").find(({ name }) => name === secretName)!;
    return { version: version!, value: control.secretValue(vaultName, secretName)! };
  }

  #loadCurrentVersion(consumer: SimulatedConsumer): void {
    Object.assign(consumer, this.#currentVersion(consumer), { reloadsAt: undefined });
    this.usedValues.push({ id: consumer.planned.id, value: consumer.value });
  }

  valueOf(id: string): string {
    return this.consumersById.get(id)!.value;
  }

  async findConsumers({ places }: { places: readonly { vaultName: string; secretName: string }[] }) {
    const uses = ({ planned }: SimulatedConsumer) =>
      places.some(({ vaultName, secretName }) => vaultName === planned.vaultName && secretName === planned.secretName);
    return { consumers: [...this.consumersById.values()].filter(uses).map(({ planned }) => planned), coverage: [] };
  }

  async currentProblem({ id }: PlannedConsumer): Promise<ConsumerProblem | undefined> {
    const text = this.consumersById.get(id)!.brokenBefore;
    return text === undefined ? undefined : { text, isTemporary: false };
  }

  async refresh({ id }: PlannedConsumer, wanted: RefreshRequest): Promise<{ changedMeanwhile: string[] }> {
    const consumer = this.consumersById.get(id)!;
    this.calls.push({ id, call: "refresh" });
    if (consumer.brokenBefore !== undefined) throw failure("accessDenied");
    if (consumer.refreshFault === "denied") throw failure("accessDenied");
    if (consumer.refreshFault === "throttled") throw failure("throttled");
    this.refreshed.push(id);
    if (consumer.refreshFault !== undefined) return { changedMeanwhile: [] };
    if (wanted.version !== this.#currentVersion(consumer).version)
      throw new Error("The rotation refreshed a version that is not current.");
    this.#loadCurrentVersion(consumer);
    return { changedMeanwhile: consumer.changedMeanwhile };
  }

  async check({ id }: PlannedConsumer, version: string, _since: Date): Promise<ConsumerCheck> {
    const consumer = this.consumersById.get(id)!;
    this.calls.push({ id, call: "check" });
    this.reloadDueConsumers();
    if (consumer.brokenBefore !== undefined) return { holds: "old", problem: consumer.brokenBefore };
    if (consumer.refreshFault === "says it can't") return { holds: "old", problem: "AccessToKeyVaultDenied" };
    return { holds: consumer.version === version ? "new" : "old" };
  }
}

const failure = (code: "accessDenied" | "throttled") =>
  new CloudFailure(code, "Could not refresh the settings (web app).", {
    remedy: "Grant the role Website Contributor.",
  });
