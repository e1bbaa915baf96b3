import { SECOND_MS } from "../platform/time.ts";
import type { OpenedProvider, ProviderConfigurations } from "./configurations.ts";
import { decide, type Planned, type SyncState } from "./decide.ts";
import { markId } from "./providers/ownership-mark.ts";
import { type ProviderDependencies, SyncFailure } from "./providers/provider.ts";
import { type SyncRecord, sourceOf, type VaultIdentity } from "./record.ts";
import type { SyncVaults } from "./record-vaults.ts";
import { failOnSide, RunFailed } from "./run-failure.ts";
import type { Sources } from "./sources.ts";

/** Timeout for reading the states of source and target. */
export const INSPECT_MS = 90 * SECOND_MS;

/** The states of source and target, with the opened provider. */
export interface InspectedRecord extends SyncState {
  opened: OpenedProvider;
  /** Where the provider's configuration locates targets: its `locationMembers` as JSON. Stored in the record as `place`. */
  location: string;
  /** Key vault of the target. Undefined for other targets. */
  targetVault: VaultIdentity | undefined;
}

/** Reads the states of a record's source and target, without reading or writing a value. */
export interface Plans {
  /** @throws {RunFailed} */
  inspect(record: SyncRecord, signal: AbortSignal): Promise<InspectedRecord>;
  /** Reads only the target. @throws {RunFailed} */
  inspectTarget(
    record: SyncRecord,
    signal: AbortSignal,
  ): Promise<Pick<InspectedRecord, "opened" | "service" | "target" | "state" | "location" | "targetVault">>;
  /**
   * Runs a call to the target. If the provider rejects the credentials, they are marked as rejected for all records. @throws
   * {RunFailed}
   */
  onTarget<T>(record: SyncRecord, inspected: Pick<InspectedRecord, "opened">, work: () => Promise<T>): Promise<T>;
  /** Returns what a run would do now, for users. */
  plan(record: SyncRecord): Promise<Planned>;
}

export function createPlans(deps: {
  configurations: ProviderConfigurations;
  sources: Sources;
  vaults: SyncVaults;
  providers: ProviderDependencies;
}): Plans {
  const { configurations, sources, vaults, providers } = deps;

  async function onTarget<T>(
    { recordId }: SyncRecord,
    { opened }: Pick<InspectedRecord, "opened">,
    work: () => Promise<T>,
  ): Promise<T> {
    try {
      return await failOnSide("target", work);
    } catch (error) {
      if (error instanceof RunFailed && error.failure.code === "badCredentials") {
        await configurations.recordRejection(opened, { providerCode: error.failure.providerCode, recordId });
      }
      throw error;
    }
  }

  const inspectTarget: Plans["inspectTarget"] = async (record, signal) => {
    const opened = await failOnSide("service", () => configurations.open(record.targetProvider));
    const { provider, settings, secrets } = opened;
    const service = provider.services[record.targetService];
    if (!service) throw new Error(`${provider.id} has no service ${record.targetService}.`);
    // Set by the provider `azure`, the only one that opens a key vault.
    let targetVault: VaultIdentity | undefined;
    const vaultSecrets = async (readsValue: boolean) => {
      const vault = await vaults.open(record, "target", readsValue);
      targetVault = vault.identity;
      return vault.secrets;
    };
    const to = { service: record.targetService, region: record.targetRegion };
    const target = provider.open(to, settings, secrets, { ...providers, vaultSecrets });
    const location = locationOf(opened);
    const hasLocationChanged = record.place !== undefined && record.place !== location;
    const locationFailure = () => new RunFailed("service", locationChangedFailure(opened, record.place!));
    // If the configuration names another location now, a failure of the target that was reached there follows from that change,
    // so the change is reported instead.
    const state = await onTarget(record, { opened }, () => target.describe(record.targetName, signal)).catch(
      (error) => {
        throw hasLocationChanged && error instanceof RunFailed && wasTargetReached(error) ? locationFailure() : error;
      },
    );
    // A target that names this record as its owner is the same target, even if its address changed.
    if (hasLocationChanged && state.ownedBy !== record.recordId) throw locationFailure();
    return { opened, service, target, state, location, targetVault };
  };

  async function inspect(record: SyncRecord, signal: AbortSignal): Promise<InspectedRecord> {
    const source = await failOnSide("source", () => sources.inspect(record, signal));
    const inspected = await inspectTarget(record, signal);
    const mark = { recordId: record.recordId, sourceVersion: source.version, source: sourceOf(record) };
    return { ...inspected, source, mark };
  }

  return {
    inspect,
    inspectTarget,
    onTarget,

    async plan(record) {
      let inspected: SyncState | undefined;
      try {
        inspected = await inspect(record, AbortSignal.timeout(INSPECT_MS));
        const decision = decide(record, inspected);
        return { ...planState(inspected), decision };
      } catch (error) {
        if (error instanceof RunFailed) return { failure: error.failure };
        if (error instanceof SyncFailure)
          return { ...(inspected && planState(inspected)), failure: new RunFailed("target", error).failure };
        throw error;
      }
    },
  };
}

/** Returns whether the target was reached with valid credentials. */
const wasTargetReached = ({ isTransient, failure }: RunFailed): boolean =>
  !isTransient && failure.code !== "badCredentials";

/** Returns the settings that, together with the record, locate the target, as JSON. */
const locationOf = ({ provider, settings }: OpenedProvider): string =>
  JSON.stringify(Object.fromEntries(provider.locationMembers.map((member) => [member, settings[member] ?? null])));

function locationChangedFailure({ provider, settings }: OpenedProvider, before: string): SyncFailure {
  const previous = JSON.parse(before) as Record<string, unknown>;
  const changedMembers = provider.locationMembers.filter((member) => (settings[member] ?? null) !== previous[member]);
  const previousSettings = changedMembers
    .map((member) => `${member} was ${JSON.stringify(previous[member])}`)
    .join(", ");
  return new SyncFailure(
    "otherPlace",
    `${provider.title} is now configured for another place, which does not have this target.`,
    {
      remedy: `Configure it as before (${previousSettings}), or delete this record (its target stays) and create it again.`,
    },
  );
}

const planState = ({ service, source, state, mark }: SyncState) => ({
  source: source.version,
  state,
  holdsSourceVersion: service.storesMark && state.exists ? state.currentMarkId === markId(mark) : undefined,
});
