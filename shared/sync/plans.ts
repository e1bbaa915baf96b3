import { SECOND_MS } from "../time.ts";
import type { OpenedProvider, ProviderConfigurations } from "./configurations.ts";
import { on, RunFailed } from "./failure.ts";
import { decide, type Look, type Planned } from "./plan.ts";
import { markId } from "./providers/mark.ts";
import { type ProviderDependencies, SyncFailure } from "./providers/provider.ts";
import { type SyncRecord, sourceOf } from "./record.ts";
import type { Sources } from "./source.ts";

/** A look that is not over by then is given up. */
export const LOOK_MS = 90 * SECOND_MS;

/** A look, and what the target was opened with. */
export interface Seen extends Look {
  opened: OpenedProvider;
}

/** Looks at both ends of a record, without reading or writing a value. */
export interface Plans {
  /** @throws {RunFailed} */
  look(record: SyncRecord, signal: AbortSignal): Promise<Seen>;
  /** A call to the target. Credentials that the provider refuses are refused for all records. @throws {RunFailed} */
  onTarget<T>(seen: Pick<Seen, "opened">, work: () => Promise<T>): Promise<T>;
  /** What a run would do, for people. */
  plan(record: SyncRecord): Promise<Planned>;
}

export function createPlans(deps: {
  configurations: ProviderConfigurations;
  sources: Sources;
  providers: ProviderDependencies;
}): Plans {
  const { configurations, sources, providers } = deps;

  async function onTarget<T>({ opened }: Pick<Seen, "opened">, work: () => Promise<T>): Promise<T> {
    try {
      return await on("target", work);
    } catch (error) {
      if (error instanceof RunFailed && error.failure.code === "badCredentials") {
        await configurations.refused(opened, error.failure.providerCode);
      }
      throw error;
    }
  }

  async function look(record: SyncRecord, signal: AbortSignal): Promise<Seen> {
    const source = await on("source", () => sources.look(record, signal));
    const opened = await on("service", () => configurations.open(record.targetProvider));
    const { provider, settings, secrets } = opened;
    const service = provider.services[record.targetService];
    if (!service) throw new Error(`${provider.id} has no service ${record.targetService}.`);
    const target = provider.open(
      { service: record.targetService, region: record.targetRegion },
      settings,
      secrets,
      providers,
    );
    const state = await onTarget({ opened }, () => target.describe(record.targetName, signal));
    const mark = { recordId: record.recordId, sourceVersion: source.version, source: sourceOf(record) };
    return { opened, service, target, state, source, mark };
  }

  return {
    look,
    onTarget,

    async plan(record) {
      let seen: Look | undefined;
      try {
        seen = await look(record, AbortSignal.timeout(LOOK_MS));
        const decision = decide(record, seen);
        return { ...shown(seen), decision };
      } catch (error) {
        if (error instanceof RunFailed) return { failure: error.failure };
        if (error instanceof SyncFailure)
          return { ...(seen && shown(seen)), failure: new RunFailed("target", error).failure };
        throw error;
      }
    },
  };
}

const shown = ({ service, source, state, mark }: Look) => ({
  source: source.version,
  state,
  holds: service.marks && state.exists ? state.holds === markId(mark) : undefined,
});
