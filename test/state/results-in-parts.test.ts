import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { NewViolationRows, newViolationsRange } from "../../shared/compliance/compliance-rows.ts";
import { createEvaluator } from "../../shared/compliance/evaluator.ts";
import { unpackNewViolations } from "../../shared/compliance/packed-results.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { asset, START, vault } from "../compliance/compliance-fixture.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { type HeldProxy, startHeldProxy } from "./delaying-proxy.ts";
import { differences, everyRow } from "./inventory-fixture.ts";

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

/** So many failing assets that a vault's results don't fit into one transaction. */
const ASSETS = 17_000;
const of = vault("kv-large");
const assets: AssetRecord[] = Array.from({ length: ASSETS }, (_, at) =>
  asset(of.name, "secret", `s-${String(at).padStart(5, "0")}`, { expiresOn: undefined, contentType: undefined }),
);
const changes = assets.map((after) => ({ type: after.type, name: after.name, before: undefined, after }));
const log = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

let azurite: TestStorage;
const proxies: HeldProxy[] = [];
beforeAll(async () => {
  azurite = await openStorage(["found", "wanted"]);
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

/** Records changes as a scan does, for assets that the inventory has or not. */
async function evaluate(connectionString: string, known: boolean): Promise<void> {
  const evaluator = evaluatorOn(connectionString);
  const write = await evaluator.prepareChange({ vault: of, vaultBefore: known ? of : undefined, vaultGone: false });
  await write(changes, async () => {});
}

test("after a worker crashed between the parts of a vault's results, the next one writes all of them and no violation is lost", {
  timeout: 150_000,
}, async () => {
  const [found, wanted] = [azurite.connectionString("found"), azurite.connectionString("wanted")];
  let batches = 0;
  const crashing = await startHeldProxy(found, ({ path }) => (path === "$batch" && ++batches === 2 ? "hold" : "pass"));
  proxies.push(crashing);
  const dead = evaluate(crashing.connectionString, false).catch(() => {});
  await vi.waitFor(() => expect(crashing.held).toHaveLength(1), { timeout: 150_000 });
  crashing.kill();
  expect(crashing.answered.filter(({ path, applied }) => path === "$batch" && applied)).toHaveLength(1);

  await evaluate(found, true);
  await crashing.held[0]!.release();
  expect(crashing.answered.at(-1)).toMatchObject({ applied: false });
  await evaluate(wanted, false);
  expect(differences(await everyRow(found), await everyRow(wanted))).toEqual([]);

  const reported = new Set<string>();
  for await (const rows of createTables({ connectionString: found }).pages(NewViolationRows, newViolationsRange))
    for (const { items } of rows)
      for (const [code, name] of unpackNewViolations(items)) reported.add(`${code} ${name}`);
  expect(reported.size).toBe(2 * ASSETS);
  await Promise.all([...proxies.splice(0).map((proxy) => proxy.stop()), dead]);
});
