import { expect } from "vitest";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Identity } from "../../shared/platform/azure/identity.ts";
import type { VaultPage, VaultResource } from "../../shared/platform/azure/resource-manager.ts";
import type { Logger } from "../../shared/platform/runtime.ts";

export { IMPATIENT, testConfig } from "./config.ts";

/** An identity with fake tokens. The odd server checks no tokens. */
export const plainIdentity: Identity = {
  credential: async () => ({
    getToken: async (scopes) => ({ token: `token for ${[scopes].flat().join(" ")}`, expiresOnTimestamp: Infinity }),
  }),
  describe: () => Promise.reject(new Error("Not asked for here.")),
};

/** Returns a logger that keeps its lines. */
export function recordingLog(): Logger & { lines: string[] } {
  const lines: string[] = [];
  const write = (message: string, fields?: Record<string, unknown>) => {
    lines.push(`${message} ${JSON.stringify(fields ?? {})}`);
  };
  return { lines, debug: write, info: write, warn: write, error: write };
}

export async function all<T>(pages: AsyncIterable<T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const page of pages) items.push(...page);
  return items;
}

/** Returns the vaults of a subscription, all of which must be readable. */
export async function allVaults(pages: AsyncIterable<VaultPage>): Promise<VaultResource[]> {
  const vaults: VaultResource[] = [];
  for await (const page of pages) {
    expect(page.unreadable).toEqual([]);
    vaults.push(...page.vaults);
  }
  return vaults;
}

/** Returns the failure of the work. Any other result fails the test. */
export async function failureOf(work: Promise<unknown>): Promise<CloudFailure> {
  const error = await work.then(
    () => new Error("It succeeded."),
    (reason: unknown) => reason,
  );
  if (error instanceof CloudFailure) return error;
  throw error;
}
