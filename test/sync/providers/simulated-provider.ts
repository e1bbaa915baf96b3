import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { systemClock } from "../../../shared/platform/runtime.ts";
import type { Mark, TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { providerDependencies } from "../../../shared/sync/providers/provider-dependencies.ts";
import { liveIn } from "../../azure/live-cloud.ts";
import type { Trouble } from "./suite.ts";

/** A stand-in cloud for providers other than Azure, and what they are given in it. */
export async function providersCloud(): Promise<{ cloud: Cloud; deps: TargetDependencies }> {
  const { cloud, config } = await liveIn({ company: { subscriptions: [] } });
  const noVaults = async () => {
    throw new Error("There are no vaults here.");
  };
  return { cloud, deps: { ...providerDependencies(config, systemClock), vaultSecrets: noVaults } };
}

/** How most troubles are made; what a provider says otherwise is its own. */
export const FAULTS: Record<Trouble, FaultAction> = {
  throttled: { kind: "throttle", retryAfterSeconds: 120 },
  badCredentials: { kind: "fail", status: 401 },
  denied: { kind: "deny" },
  html: { kind: "garbage", as: "html" },
  lostBefore: { kind: "reset" },
  switched: { kind: "switchProtocols" },
  lostAfterWrite: { kind: "loseAnswer" },
};

export const markOf = (sourceVersion: string, recordId = "01JD0000000000000000000001"): Mark => ({
  recordId,
  sourceVersion,
  source: "kv-payments/db-password",
});

/** The error that work must end in. */
export async function failureOf(work: Promise<unknown>): Promise<unknown> {
  return await work.then(
    () => new Error("It succeeded."),
    (error: unknown) => error,
  );
}
