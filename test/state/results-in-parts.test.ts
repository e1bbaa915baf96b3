import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { NewViolationRows, newViolationsRange } from "../../shared/compliance/compliance-rows.ts";
import { createEvaluator } from "../../shared/compliance/evaluator.ts";
import { unpackNewViolations } from "../../shared/compliance/packed-results.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { asset, START, vault } from "../compliance/compliance-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { type DelayingProxy, startDelayingProxy } from "./delaying-proxy.ts";
import { differences, readAllRows } from "./inventory-fixture.ts";

// A vault with so many failing assets that its compliance results are written in several transactions. A worker crashes between
// two of them.

// Shortens the delays between attempts.
vi.mock("../../shared/platform/storage/limits.ts", async (original) => ({
  ...(await original<object>()),
  FIRST_RETRY_MS: 5,
  MAX_RETRY_MS: 20,
}));
afterAll(() => {
  // Otherwise later files of the process would use the modules loaded here.
  vi.doUnmock("../../shared/platform/storage/limits.ts");
  vi.resetModules();
});

/** Number of failing assets whose results don't fit into one transaction. */
const ASSETS = 17_000;
const largeVault = vault("kv-large");
const assets: AssetRecord[] = Array.from({ length: ASSETS }, (_, index) =>
  asset(largeVault.name, "secret", `s-${String(index).padStart(5, "0")}`, {
    expiresOn: undefined,
    contentType: undefined,
  }),
);
const changes = assets.map((after) => ({ type: after.type, name: after.name, before: undefined, after }));
const log = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

let azurite: TestStorage;
const proxies: DelayingProxy[] = [];
beforeAll(async () => {
  azurite = await openStorage(["tested", "expected"]);
});
afterEach(() => Promise.all(proxies.splice(0).map((proxy) => proxy.stop())));
afterAll(() => azurite?.stop());

const evaluatorOn = (connectionString: string) =>
  createEvaluator({
    tables: createTables({ connectionString }),
    settings: { values: async () => settings },
    clock: { now: () => new Date(START) },
    log,
  });

/** Evaluates all assets as new ones, as a scan does. `isVaultKnown` says whether the inventory already has the vault. */
async function evaluate(connectionString: string, isVaultKnown: boolean): Promise<void> {
  const evaluator = evaluatorOn(connectionString);
  const write = await evaluator.prepareChange({
    vault: largeVault,
    vaultBefore: isVaultKnown ? largeVault : undefined,
    vaultGone: false,
  });
  await write(changes, async () => {});
}

test("after a crash between two transactions of a vault's results, the next worker writes all of them", {
  timeout: 150_000,
}, async () => {
  const [tested, expected] = [azurite.connectionString("tested"), azurite.connectionString("expected")];
  let batches = 0;
  // The second transaction is held, and the worker crashes while it waits for the response.
  const crashing = await startDelayingProxy(tested, ({ path }) =>
    path === "$batch" && ++batches === 2 ? "hold" : "pass",
  );
  proxies.push(crashing);
  const crashedWorker = evaluate(crashing.connectionString, false).catch(() => {});
  await vi.waitFor(() => expect(crashing.heldWrites).toHaveLength(1), { timeout: 150_000 });
  crashing.kill();
  expect(crashing.writes.filter(({ path, applied }) => path === "$batch" && applied)).toHaveLength(1);

  await evaluate(tested, true);
  await crashing.heldWrites[0]!.release();
  expect(crashing.writes.at(-1)).toMatchObject({ applied: false });
  await evaluate(expected, false);
  expect(differences(await readAllRows(tested), await readAllRows(expected))).toEqual([]);

  // Each asset violates two checks. No violation is lost, and none is reported twice.
  const reported = new Set<string>();
  for await (const rows of createTables({ connectionString: tested }).pages(NewViolationRows, newViolationsRange))
    for (const { items } of rows)
      for (const [code, name] of unpackNewViolations(items)) reported.add(`${code} ${name}`);
  expect(reported.size).toBe(2 * ASSETS);
  await Promise.all([...proxies.splice(0).map((proxy) => proxy.stop()), crashedWorker]);
});
