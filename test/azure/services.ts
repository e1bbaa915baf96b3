import { expect } from "vitest";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import type { Identity } from "../../shared/platform/azure/identity.ts";
import type { VaultPage, VaultResource } from "../../shared/platform/azure/resource-manager.ts";
import type { Logger } from "../../shared/platform/runtime.ts";

export { SHORT_WAITS, testConfig } from "./config.ts";

/** An identity with fake tokens, for servers that check no tokens. */
export const fakeIdentity: Identity = {
  credential: async () => ({
    getToken: async (scopes) => ({ token: `token for ${[scopes].flat().join(" ")}`, expiresOnTimestamp: Infinity }),
  }),
  describe: () => Promise.reject(new Error("The fake identity has no description.")),
};

/** Returns a logger that records each line as its message and its fields in JSON. */
export function recordingLog(): Logger & { lines: string[] } {
  const lines: string[] = [];
  const write = (message: string, fields?: Record<string, unknown>) => {
    lines.push(`${message} ${JSON.stringify(fields ?? {})}`);
  };
  return { lines, debug: write, info: write, warn: write, error: write };
}

/** Returns the items of all pages. */
export async function collectItems<T>(pages: AsyncIterable<T[]>): Promise<T[]> {
  const items: T[] = [];
  for await (const page of pages) items.push(...page);
  return items;
}

/** Returns the vaults of all pages. Fails the test if a page has an unreadable vault. */
export async function collectVaults(pages: AsyncIterable<VaultPage>): Promise<VaultResource[]> {
  const vaults: VaultResource[] = [];
  for await (const page of pages) {
    expect(page.unreadable).toEqual([]);
    vaults.push(...page.vaults);
  }
  return vaults;
}

/** Returns the `CloudFailure` with which the promise is rejected. Any other result fails the test. */
export async function expectFailure(work: Promise<unknown>): Promise<CloudFailure> {
  const error = await work.then(
    () => new Error("The call succeeded, but must fail with a CloudFailure."),
    (reason: unknown) => reason,
  );
  if (error instanceof CloudFailure) return error;
  throw error;
}
