import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { systemClock } from "../../../shared/platform/runtime.ts";
import type { Mark, TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerDependencies } from "../../../shared/sync/providers/provider-dependencies.ts";
import { startTestCloud } from "../../azure/live-cloud.ts";
import type { Trouble } from "./suite.ts";

/** Starts the simulated cloud for providers other than Azure. Returns the cloud and the dependencies of the providers' targets. */
export async function providersCloud(): Promise<{ cloud: Cloud; deps: TargetDependencies }> {
  const { cloud, config } = await startTestCloud({ company: { subscriptions: [] } });
  const noVaults = async () => {
    throw new Error("There are no vaults here.");
  };
  return { cloud, deps: { ...providerDependencies(config, systemClock), vaultSecrets: noVaults } };
}

/** The faults of the simulated cloud that cause each trouble with most providers. */
export const FAULTS: Record<Trouble, FaultAction> = {
  throttled: { kind: "throttle", retryAfterSeconds: 120 },
  badCredentials: { kind: "fail", status: 401 },
  denied: { kind: "deny" },
  html: { kind: "garbage", as: "html" },
  lostBefore: { kind: "reset" },
  switched: { kind: "switchProtocols" },
  lostAfterWrite: { kind: "loseAnswer" },
};

/**
 * Returns the mark (record, source and version) that a target stores beside the value. `describe` then returns its `markId` as
 * `currentMarkId`, until another writer changes the value.
 */
export const markOf = (sourceVersion: string, recordId = "01JD0000000000000000000001"): Mark => ({
  recordId,
  sourceVersion,
  source: "kv-payments/db-password",
});

/** Returns the error of failing work. */
export async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return await work.then(
    () => new Error("It succeeded."),
    (error: unknown) => error,
  );
}
