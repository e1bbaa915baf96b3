import { afterAll, beforeAll, expect, test } from "vitest";
import { createEvaluator } from "../../shared/compliance/evaluator.ts";
import { violationChanges, violationPositionAt } from "../../shared/compliance/violation-changes.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, inDays, START, vault } from "./compliance-fixture.ts";

// The violations that evaluations find opened and resolved, in the order in which audit streams send them.

const MINUTE_MS = 60_000;
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage(["changes"]);
});
afterAll(() => azurite?.stop());

test("evaluations record opened and resolved violations, also of assets and vaults that are removed", async () => {
  const tables = createTables({ connectionString: azurite.connectionString("changes") });
  let nowMs = START;
  const settings = Object.fromEntries(SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]));
  const evaluator = createEvaluator({
    tables,
    settings: { values: async () => settings as unknown as SettingValues },
    clock: { now: () => new Date(nowMs) },
    log: { debug() {}, info() {}, warn() {}, error() {} },
  });
  const kv = vault("kv-one");
  const secret = (name: string, days: number) => asset(kv.name, "secret", name, { expiresOn: inDays(days) });
  let isKnown = false;
  async function evaluate(changed: { before?: AssetRecord; after?: AssetRecord }[], vaultGone = false) {
    nowMs += MINUTE_MS;
    const write = await evaluator.prepareChange({ vault: kv, vaultBefore: isKnown ? kv : undefined, vaultGone });
    isKnown = true;
    await write(
      changed.map(({ before, after }) => ({ type: "secret", name: (after ?? before)!.name, before, after })),
      async () => {},
    );
  }
  const expired = { one: secret("one", -1), two: secret("two", -1), three: secret("three", -1) };
  await evaluate(Object.values(expired).map((after) => ({ after })));
  await evaluate([{ before: expired.one, after: secret("one", 90) }]);
  await evaluate([{ before: expired.two }]);
  await evaluate([], true);
  nowMs += 11 * MINUTE_MS;
  const found: string[] = [];
  const positions = [];
  for await (const { change, checkId, resourceId, next } of violationChanges(
    tables,
    violationPositionAt(new Date(START)),
    new Date(nowMs),
  )) {
    positions.push(next);
    if (checkId === "secret-expired") found.push(`${change} ${resourceId.split(".").at(-1)}`);
  }
  expect(found.slice(0, 3).sort()).toEqual(["opened one", "opened three", "opened two"]);
  expect(found.slice(3)).toEqual(["resolved one", "resolved two", "resolved three"]);
  // A reader that stopped anywhere continues with the next change.
  for (const [index, position] of positions.entries()) {
    let rest = 0;
    for await (const _ of violationChanges(tables, position, new Date(nowMs))) rest++;
    expect(rest).toBe(positions.length - index - 1);
  }
});
