import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import type {
  ConsumerCheck,
  ConsumersOfSecrets,
  PlannedConsumer,
  RefreshRequest,
} from "../../shared/rotation/consumer.ts";
import { VAULT, type World } from "./world.ts";

type How = PlannedConsumer["how"];

/** Faults of a consumer during a refresh. */
export type Trouble = "denied" | "throttled" | "never takes it" | "says it can't";

interface Reader {
  planned: PlannedConsumer;
  trouble?: Trouble | undefined;
  /** Change that another writer makes during the refresh. */
  changedMeanwhile: string[];
  /** The value and version that it works with. */
  value: string;
  version: string;
  /** When it takes the current version without help. */
  takesAt?: number | undefined;
}

/**
 * Apps that read secrets of the stand-in cloud's vault as each kind does, with a log of every call and of every value that one
 * of them ever worked with.
 */
export class Company implements ConsumersOfSecrets {
  readonly readers = new Map<string, Reader>();
  /** Ids of those that were acted on, in order. */
  readonly acted: string[] = [];
  readonly calls: { id: string; call: "act" | "look" }[] = [];
  /** Every value that one of them worked with. */
  readonly worked: { id: string; value: string }[] = [];
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** Creates a consumer of a vault secret, with its current version. */
  add(id: string, secretName: string, how: How, rest: Partial<PlannedConsumer> & { trouble?: Trouble } = {}): void {
    const { trouble, ...others } = rest;
    const planned = { id, kind: "webApp", name: id, vaultName: VAULT, secretName, evidence: "SECRET", how } as const;
    const reader: Reader = {
      planned: { ...planned, slowestSeconds: how === "automatic" ? 1800 : 0, blast: 1, ...others },
      trouble,
      changedMeanwhile: [],
      value: "",
      version: "",
    };
    this.readers.set(id, reader);
    this.#take(reader);
  }

  /** Time has passed: those that take the current version by themselves do so in their own time. */
  tick(): void {
    for (const reader of this.readers.values()) {
      const { how, slowestSeconds } = reader.planned;
      if (how !== "automatic" && how !== "blind") continue;
      if (this.#current(reader).version === reader.version) continue;
      const now = this.#world.clock.now().getTime();
      reader.takesAt ??= now + (slowestSeconds * SECOND_MS) / 2;
      if (reader.takesAt <= now) this.#take(reader);
    }
  }

  #current({ planned: { vaultName, secretName } }: Reader): { version: string; value: string } {
    const { control } = this.#world.cloud;
    const { version } = control.items(vaultName, "secrets").find(({ name }) => name === secretName)!;
    return { version: version!, value: control.secretValue(vaultName, secretName)! };
  }

  #take(reader: Reader): void {
    Object.assign(reader, this.#current(reader), { takesAt: undefined });
    this.worked.push({ id: reader.planned.id, value: reader.value });
  }

  valueOf(id: string): string {
    return this.readers.get(id)!.value;
  }

  async of({ places }: { places: readonly { vaultName: string; secretName: string }[] }) {
    const uses = ({ planned }: Reader) =>
      places.some(({ vaultName, secretName }) => vaultName === planned.vaultName && secretName === planned.secretName);
    return { consumers: [...this.readers.values()].filter(uses).map(({ planned }) => planned), coverage: [] };
  }

  async refresh({ id }: PlannedConsumer, wanted: RefreshRequest): Promise<{ changedMeanwhile: string[] }> {
    const reader = this.readers.get(id)!;
    this.calls.push({ id, call: "act" });
    if (reader.trouble === "denied") throw failure("accessDenied");
    if (reader.trouble === "throttled") throw failure("throttled");
    this.acted.push(id);
    if (reader.trouble !== undefined) return { changedMeanwhile: [] };
    if (wanted.version !== this.#current(reader).version) throw new Error("asked for a version that is not current");
    this.#take(reader);
    return { changedMeanwhile: reader.changedMeanwhile };
  }

  async check({ id }: PlannedConsumer, version: string, _since: Date): Promise<ConsumerCheck> {
    const reader = this.readers.get(id)!;
    this.calls.push({ id, call: "look" });
    this.tick();
    if (reader.trouble === "says it can't") return { holds: "old", problem: "AccessToKeyVaultDenied" };
    return { holds: reader.version === version ? "new" : "old" };
  }
}

const failure = (code: "accessDenied" | "throttled") =>
  new CloudFailure(code, "Could not refresh the settings (web app).", {
    remedy: "Grant the role Website Contributor.",
  });
