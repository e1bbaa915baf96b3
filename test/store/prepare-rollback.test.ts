import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { gunzipSync } from "node:zlib";
import { Ajv2020 } from "ajv/dist/2020.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DELIVERY_ROW, Deliveries } from "../../shared/alerts/delivery.ts";
import { createHistory } from "../../shared/alerts/history.ts";
import { RULE_PREFIX } from "../../shared/alerts/rule.ts";
import { RuleStates, STATES } from "../../shared/alerts/rule-state.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { replace } from "../../shared/platform/storage/tables.ts";
import { createWholeTables } from "../../shared/platform/storage/whole-tables.ts";
import { BEFORE, NEWEST, noFaults, WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { ROTATIONS, type RotationRecord, Rotations } from "../../shared/rotation/rotation.ts";
import { recordKey } from "../../shared/rotation/rows.ts";
import { prepareRollback } from "../../shared/store/prepare-rollback.ts";
import { caller, type Fixture, openFixture, START } from "../alerts/alerts-setup.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { BOSS, VAULT, World } from "../rotation/world.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COMPILE_CACHE } from "../support/test-app.ts";

// The preparation of a store for an earlier build, once by the command itself. The fixture rows-8bbd57d7.json.gz contains the
// JSON Schemas of the rows that this build can read, as `z.toJSONSchema` made them from its entities. rollback.test.ts runs the
// builds themselves.

const BUILD = "8bbd57d7";
const JWT_SIGNING_KEYS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;

let azurite: TestStorage;
let cloud: Awaited<ReturnType<typeof startTestCloud>>;

beforeAll(async () => {
  azurite = await openStorage(["rows", "ignored", "command"]);
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  cloud = await startTestCloud({ company: { subscriptions } });
});
afterAll(async () => {
  await cloud.cloud.stop();
  await azurite.stop();
});

const wholeTables = (account: string) => createWholeTables({ connectionString: azurite.connectionString(account) });

/** Returns the keys of all rows that a build can't read, in the tables whose rows have changed since. */
async function unreadableRows(account: string): Promise<string[]> {
  const file = path.resolve(import.meta.dirname, `../fixtures/rows-${BUILD}.json.gz`);
  const schemas = JSON.parse(gunzipSync(readFileSync(file)).toString()) as Record<string, { properties: object }>;
  const found: string[] = [];
  for (const [table, schema] of Object.entries(schemas)) {
    const isReadable = new Ajv2020({ strict: false, logger: false }).compile(schema);
    for await (const { partitionKey, rowKey, columns } of wholeTables(account).rows(table)) {
      if (table === "AlertRules" && !rowKey.startsWith(RULE_PREFIX)) continue;
      if (table === "Rotations" && !rowKey.startsWith(recordKey(""))) continue;
      if (table === "AlertStates" && partitionKey !== STATES) continue;
      const value: Record<string, unknown> = {};
      for (const name of Object.keys(schema.properties)) {
        const json = columns[`${name}_json`];
        value[name] = json === undefined ? columns[name] : JSON.parse(String(json));
        if (value[name] === undefined) delete value[name];
      }
      if (!isReadable(value)) found.push(`${table} ${partitionKey} ${rowKey}`);
    }
  }
  return found;
}

/** Returns every row with its columns, apart from the audit log. */
async function readAllRows(account: string): Promise<string[]> {
  const rows: string[] = [];
  for (const table of ["AlertRules", "AlertStates", "AlertDeliveries", "AlertHistory", "Reconciliation", "Rotations"])
    for await (const { etag: _, ...row } of wholeTables(account).rows(table)) rows.push(JSON.stringify([table, row]));
  return rows;
}

/** Writes a rule, its pending message, its message in the history and an alert of another rule, which is returned. */
async function writeAlerts(fixture: Fixture): Promise<string> {
  const { rule: kept } = await fixture.mailRule();
  await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 8 }]);
  await fixture.instance().evaluate();
  const history = createHistory(fixture.tables);
  const [pending] = await history.list({}, { limit: 1, offset: 0, cursor: undefined }).then(({ items }) => items);
  const deliveryId = pending!.deliveryId;
  const { rule } = await fixture.mailRule({ alertType: "rowUnreadable", name: "Unreadable rows" });
  const escalation = { afterDays: 1, ruleId: rule.ruleId };
  await fixture.instance().rules.change(kept.ruleId, { escalation }, caller, undefined);
  const { news, ...delivery } = withoutKeys((await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!);
  const { ruleId, name: ruleName, alertType } = rule;
  const sentId = systemRandomness().ulid(fixture.clock.now());
  await history.record({ ...delivery, deliveryId: sentId, ruleId, ruleName, alertType, news });
  const state = (await fixture.tables.get(RuleStates, STATES, kept.ruleId))!;
  const next = { deliveryId: systemRandomness().ulid(fixture.clock.now()), createdAt: START, rule: withoutKeys(rule) };
  await fixture.tables.put(RuleStates, STATES, ruleId, { ...withoutKeys(state), pending: next, pendingNews: news });
  return deliveryId;
}

async function writeWalks(fixture: Fixture): Promise<void> {
  const walk = { walkId: "w1", startedAt: START, stage: "records" as const, at: "", after: "", vaults: 1, rows: 9 };
  const counts = { mended: noFaults(), awaiting: 0, left: [], leftTotal: 0, unverified: 1 };
  await fixture.tables.put(Walks, WALKS, NEWEST, { ...walk, ...counts });
  await fixture.tables.put(Walks, WALKS, BEFORE, { ...walk, ...counts, walkId: "w0", finishedAt: START });
}

async function changeRotation(world: World, rotationId: string, change: Partial<RotationRecord>): Promise<void> {
  const row = (await world.tables().get(Rotations, ROTATIONS, recordKey(rotationId)))!;
  const value = { ...withoutKeys(row), ...change };
  await world.tables().transaction("Rotations", ROTATIONS, [replace(Rotations, row.rowKey, value, row.etag)]);
}

async function writeRotation(world: World, name: string): Promise<string> {
  const { rotationId } = await world.start().begin(world.addApplication(name).request, BOSS);
  const place = { vaultName: "kv-b", secretName: "copy", confidence: "certain", reason: "unanswered" } as const;
  await changeRotation(world, rotationId, { notUpdated: [place] });
  return rotationId;
}

const CHANGED_TABLES = ["AlertRules", "AlertDeliveries", "AlertHistory", "AlertStates", "Reconciliation", "Rotations"];

describe("the store is prepared for 8bbd57d7", () => {
  let fixture: Fixture;
  let world: World;
  let heldId: string;
  let rotationId: string;
  const events: AuditEvent[] = [];

  beforeAll(async () => {
    const connectionString = azurite.connectionString("rows");
    fixture = openFixture({ connectionString, cloud: cloud.cloud });
    world = new World(cloud.cloud, cloud.config, connectionString);
    heldId = await writeAlerts(fixture);
    await fixture.instance().held.hold(heldId);
    await writeWalks(fixture);
    rotationId = await writeRotation(world, "app");
  });

  /** Prepares the store, and returns the reported lines. */
  async function prepare({ dryRun = false, steps = { taken: 0 } as Steps, to = BUILD as string } = {}) {
    const lines: string[] = [];
    const isWrite = (name: string) => name !== "pages" && name !== "get";
    const deps = {
      wholeTables: wholeTables("rows"),
      tables: crashable(world.tables(), steps, isWrite),
      rules: fixture.instance(steps).rules,
      audit: { append: async (event: AuditEvent) => void events.push(event) },
      clock: world.clock,
      randomness: systemRandomness(),
    };
    await prepareRollback(deps, { to, dryRun, caller, startedBy: "maria" }, (line) => lines.push(line));
    return lines;
  }

  test("a store with held alerts is refused, and so is another commit", async () => {
    const before = await readAllRows("rows");
    await expect(prepare()).rejects.toThrow(`Held alerts: ${heldId}. Send or drop them first`);
    await expect(prepare({ to: "0123456789" })).rejects.toThrow("for 3fd3c8ae and 8bbd57d7 only");
    expect(await readAllRows("rows")).toEqual(before);
    await fixture.instance().held.drop(heldId, caller);
  });

  test("an alert that an interrupted evaluation would hold is not forgotten: the store is refused", async () => {
    const [row] = await fixture.tables
      .pages(RuleStates, { partitionKey: STATES })
      .next()
      .then(({ value }) => value!);
    const pending = { deliveryId: heldId, createdAt: START, rule: (await fixture.instance().rules.all())[0]! };
    const held = { ...pending, rule: { ...pending.rule, alertType: "expiration" as const }, held: true };
    await fixture.tables.put(RuleStates, STATES, "other", { ...withoutKeys(row!), pending: held });
    await expect(prepare()).rejects.toThrow("was interrupted. Start this version");
    await fixture.tables.remove(RuleStates, STATES, "other");
  });

  test("a dry run reports the same as the preparation, and writes nothing", async () => {
    const before = await readAllRows("rows");
    const tablesOf = (rows: string[]) => [...new Set(rows.map((row) => row.split(" ")[0]))];
    expect(tablesOf(await unreadableRows("rows"))).toEqual(expect.arrayContaining(CHANGED_TABLES));
    const lines = await prepare({ dryRun: true });
    expect(await readAllRows("rows")).toEqual(before);
    expect(lines.join("\n")).toContain('Removes the alert rule "Unreadable rows" of the type rowUnreadable.');
    expect(lines.join("\n")).toContain('escalates through "Unreadable rows". Choose another escalation.');
    expect(lines.join("\n")).toContain("from the alert history: 1. Not sent: 1.");
    expect(lines.filter((line) => line.includes("record of the reconciliation"))).toHaveLength(2);
    expect(lines.some((line) => line.includes(`Rotation ${rotationId}`))).toBe(true);
    expect(events).toEqual([]);
  });

  test("3fd3c8ae can read every row, so nothing is changed", async () => {
    const before = await readAllRows("rows");
    expect(await prepare({ to: "3fd3c8ae" })).toEqual([]);
    expect(await readAllRows("rows")).toEqual(before);
    events.length = 0;
  });

  test("the build can read every row after a preparation that crashed at each of its writes", async () => {
    let crashes = 0;
    for (let crashAt = 1; ; crashAt++) {
      try {
        await prepare({ steps: { taken: 0, crashAt, when: crashAt % 2 === 0 ? "before" : "after" } });
        break;
      } catch (error) {
        if (!(error instanceof SimulatedCrash)) throw error;
        crashes++;
      }
    }
    expect(crashes).toBeGreaterThan(3);
    expect(await unreadableRows("rows")).toEqual([]);
    expect(await prepare()).toEqual([]);
    // The other rule, its delivery and the rotation stay. The rotation's signature is valid.
    expect(await fixture.instance().rules.all()).toHaveLength(1);
    expect(await fixture.tables.get(Deliveries, heldId, DELIVERY_ROW)).toMatchObject({ status: "cancelled" });
    const { notUpdated } = await world.start().get(rotationId);
    expect(notUpdated[0]).toMatchObject({ reason: "uncertain" });
    const audited = events.filter(({ type }) => type === "store.preparedForRollback");
    expect(audited.at(-1)).toMatchObject({ outcome: "success", caller, details: { to: BUILD, startedBy: "maria" } });
    expect(audited[0]).toMatchObject({
      outcome: "intent",
      details: { changes: expect.arrayContaining([expect.any(String)]) },
    });
  });
});

/** Rows with content that the build ignores, and the beginning of the reported line. */
const IGNORED: [table: string, columns: Record<string, string>, line: string][] = [
  ["AlertStates", { restoredAt: START, copiedAt: START }, "The store was restored, and no full scan has ended since"],
  ["UnreadableRows", { auditId: "1" }, "Unreadable rows: 1."],
  ["Users", { unusedPasswordSince: START }, "Passwords that were never used: 1."],
  ["Users", { sessions_json: '[{"provider":{"issuer":"x"}}]' }, "Users who signed in with SSO: 1."],
  ["Users", { secondFactor_json: "{}" }, "Users who enrolled a second factor: 1."],
  ["Sso", { samlLogoutUrl: "https://idp.example" }, "The SAML logout URL is dropped"],
  ["Settings", { overrides_json: '{"unusedPasswordDays":{}}' }, "The override of unusedPasswordDays has no effect."],
  [
    "Rotations",
    { status: "publishing", consumers_json: '[{"unclearBefore":true}]' },
    "Rotations in progress with consumers",
  ],
  ["RotationMatches", { rejected_json: "{}" }, "Places that users rejected: 1."],
];

test("the report counts the rows whose content the build ignores", async () => {
  for (const [index, [table, columns]] of IGNORED.entries()) {
    async function* rows() {
      yield { partitionKey: "ignored", rowKey: String(index), etag: "", columns };
    }
    await wholeTables("ignored").write(table, rows());
  }
  const connectionString = azurite.connectionString("ignored");
  const fixture = openFixture({ connectionString, cloud: cloud.cloud });
  const { tables, clock } = fixture;
  const audit = { append: async () => {} };
  const deps = { wholeTables: wholeTables("ignored"), tables, audit, clock, randomness: systemRandomness() };
  const lines: string[] = [];
  const report = (line: string) => lines.push(line);
  await prepareRollback({ ...deps, rules: fixture.instance().rules }, { to: BUILD, dryRun: false, caller }, report);
  expect(lines).toEqual(IGNORED.map(([, , line]) => expect.stringContaining(line)));
});

test("the command lists the changes in a dry run, makes them, and then has nothing left to do", async () => {
  const connectionString = azurite.connectionString("command");
  const fixture = openFixture({ connectionString, cloud: cloud.cloud });
  await writeWalks(fixture);
  const run = (...args: string[]): Promise<{ code: number; out: string; err: string }> =>
    new Promise((resolve) => {
      const command = path.resolve(import.meta.dirname, "../../functions/commands/store.ts");
      const env = {
        PATH: process.env.PATH,
        NODE_COMPILE_CACHE: COMPILE_CACHE,
        AzureWebJobsStorage: connectionString,
        JWT_SIGNING_KEYS,
      };
      execFile(process.execPath, [command, "prepare-rollback", ...args], { env }, (error, out, err) =>
        resolve({ code: error ? Number(error.code) : 0, out, err }),
      );
    });
  const before = await readAllRows("command");
  const lineOf = (key: string) =>
    `Removes the ${key} record of the reconciliation. A new run starts at the beginning.\n`;
  const lines = lineOf(BEFORE) + lineOf(NEWEST);
  const dryRun = await run("--to", "8bbd57d7", "--dry-run");
  expect(dryRun).toMatchObject({ code: 0, err: "", out: expect.stringContaining(`${lines}Nothing was written.`) });
  expect(await readAllRows("command")).toEqual(before);
  expect(await run("--to", "8bbd57d7")).toMatchObject({ code: 0, out: expect.stringContaining(lines) });
  expect(await readAllRows("command")).toEqual([]);
  expect((await run("--to", "8bbd57d7")).out).toMatch(/^The store is prepared for 8bbd57d7\./);
  expect(await run("--to", "d7e4a4b")).toMatchObject({
    code: 1,
    err: expect.stringContaining("3fd3c8ae and 8bbd57d7"),
  });
  expect(await run()).toMatchObject({ code: 2, err: expect.stringContaining("--to is missing") });
});
