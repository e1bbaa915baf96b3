import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { Secret, TOTP } from "otpauth";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { requireNoFindings } from "../../functions/commands/sign-store.ts";
import { createServices, type Services } from "../../functions/services.ts";
import { keyVaultRowKeys, ROW_SIGNING } from "../../shared/platform/azure/row-keys.ts";
import { keyVaultSigningStates } from "../../shared/platform/azure/signing-state.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { storageAccount } from "../../shared/platform/storage/connection.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { isListKey } from "../../shared/platform/storage/keys.ts";
import { type Operation, remove } from "../../shared/platform/storage/operations.ts";
import { listIndexOf, listKey } from "../../shared/platform/storage/row-lists.ts";
import { createSignedPartitions } from "../../shared/platform/storage/signed-partitions.ts";
import { createWholeTables, type TypedRow, type WholeTables } from "../../shared/platform/storage/whole-tables.ts";
import { SIGNED_RANGES } from "../../shared/signed-rows/ranges.ts";
import { CONFIGURATION_KEY, Configuration, SSO, UNCONFIGURED } from "../../shared/sso/configuration.ts";
import { useManagedIdentity } from "../azure/live-cloud.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, type Answer, Service } from "../support/service.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";
import { type RawRow, TableWriter } from "./table-writer.ts";

/*
 * Tests of signed rows against an attacker who can write the tables, but not the key vault with the signing keys. For each row that
 * decides something, the attacker changes, removes, copies or puts back the row. The service must not use such a row and must
 * report it with a reason. After the command `npm run store -- sign` at the latest, administrators can sign in again.
 *
 * A signature shows that the service wrote a row, but not that this is the row's current state. So most tables also have 16 signed
 * lists: each names a sixteenth of the rows with the start of their current signatures. A check, which a timer runs each minute,
 * compares rows with their lists, and stores in the key vault how new each list is.
 */

const CALLER = { actor: "test", requestId: "test" };
const SUBSCRIPTION = "99999999-9999-4999-8999-999999999999";
const PASSWORD = "a password of their own";

let service: Service;
let writer: TableWriter;
let wholeTables: WholeTables;
const cases = new Set<string>();
/** Number of sign-ins, each from an address of its own, because their number is limited for each address. */
let signIns = 0;
const newServices = (): Services =>
  createServices(loadConfig({ ...service.environment, AzureWebJobsStorage: service.azurite.connectionString() }));

/** A row that decides something, and a request whose answer shows whether the service uses the row after the attacker's change. */
interface Target {
  table: string;
  rowKey: string;
  /** A column that a writer would change, and its new value. */
  change: Record<string, unknown>;
  read: () => Promise<Answer>;
}
/** The rows by the names that test titles use. */
const targets: Record<string, Target> = {};
/** Rows of every signed table before the last changes, by table and row key. */
const earlier = new Map<string, Map<string, RawRow>>();
/** Rows that were removed since, so that only `earlier` has them. */
const removed: Record<string, Target> = {};
const TABLES = ["Users", "Sso", "Settings", "AlertRules", "AlertOwners", "AlertSnoozes", "Subscriptions"];

const admin = async (method: string, path: string, body?: unknown): Promise<Answer> => {
  const answer = await service.admin(method, path, body);
  if (answer.status >= 400) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.text}`);
  return answer;
};
async function runMinuteTimer(url = service.url): Promise<void> {
  const answer = await fetch(`${url}/__host/timers/watchScans`, { method: "POST" });
  expect(await answer.json()).toMatchObject({ succeeded: true });
}
const keyStarting = async (table: string, prefix: string): Promise<string> =>
  [...(await writer.rows(table)).keys()].find((key) => key.startsWith(prefix))!;

/** Enrolls an authenticator app. Returns the user's token. */
async function enrollApp(username: string): Promise<string> {
  const token = await service.signIn({ username, password: PASSWORD });
  const call = (path: string, body: object) => service.call("POST", `/auth/me/second-factor${path}`, { token, body });
  const started = await call("/totp", { currentPassword: PASSWORD });
  const code = new TOTP({ secret: Secret.fromBase32(started.body.secret) }).generate();
  expect((await call("/totp/confirm", { code })).status).toBe(200);
  return token;
}

/** Creates rows of every signed kind. Each is changed once, so that it has an earlier state. */
beforeAll(async () => {
  service = await Service.start({ tableProxy: true, env: { LICENSE_KEY: await licence(), TRUSTED_PROXY_HOPS: "2" } });
  await useManagedIdentity(service.cloud);
  writer = new TableWriter(service.azurite.connectionString());
  wholeTables = createWholeTables({ connectionString: service.azurite.connectionString() });
  const user = (username: string, more: object = {}) =>
    admin("POST", "/auth/users", { username, password: PASSWORD, ...more });
  await user("mallory", { role: "admin" });
  await user("carol");
  await user("erin");
  await user("frank");
  await user("grace");
  await user("gone", { role: "admin" });
  await user("blocked");
  const { body: token } = await admin("POST", "/auth/tokens", { name: "program", expiresInDays: 30, role: "user" });
  await admin("PUT", "/auth/users/frank", { sso: { issuer: "https://issuer.example", subject: "frank" } });
  await admin("PUT", "/auth/users/blocked", { sso: { issuer: "https://issuer.example", subject: "blocked" } });
  await admin("DELETE", "/auth/users/blocked");
  const rule = { alertType: "expiration", thresholds: [30], recipients: ["attacker@acme.example"] };
  const ruleId = (await admin("POST", "/alerts/rules", { ...rule, name: "Expiring" })).body.id;
  const goneRule = (await admin("POST", "/alerts/rules", { ...rule, name: "Removed" })).body.id;
  await admin("PUT", "/alerts/owners", { owners: [{ owner: "payments", address: "attacker@acme.example" }] });
  await admin("PUT", "/api/settings/features", { watchAll: false });
  const until = new Date(Date.now() + 86_400_000).toISOString();
  await admin("POST", "/alerts/snoozes", { ruleId, filters: { vault: "kv-one" }, reason: "test", until });
  await admin("POST", "/subscriptions", { subscription_id: SUBSCRIPTION, name: "Planted" });
  const services = newServices();
  const configuration = { ...UNCONFIGURED, oidcIssuer: "https://attacker.example", generation: "g1", revision: "r1" };
  await services.tables.put(Configuration, SSO, CONFIGURATION_KEY, configuration);
  for (const table of TABLES) earlier.set(table, await writer.rows(table));

  await admin("PUT", "/auth/users/mallory", { role: "user" });
  await admin("PUT", "/auth/users/carol", { state: "disabled" });
  await admin("PUT", "/auth/users/erin", { email: "erin@acme.example" });
  await admin("PUT", "/auth/users/frank", { email: "frank@acme.example" });
  const graceToken = await enrollApp("grace");
  await admin("DELETE", "/auth/users/gone");
  await admin("PUT", `/alerts/rules/${ruleId}`, { recipients: ["team@acme.example"] });
  await admin("DELETE", `/alerts/rules/${goneRule}`);
  await admin("PUT", "/alerts/owners", { owners: [{ owner: "payments", address: "team@acme.example" }] });
  await admin("PUT", "/api/settings/features", { watchAll: true });
  const saved = { ...configuration, oidcIssuer: "https://issuer.example", generation: "g2", revision: "r2" };
  await services.tables.put(Configuration, SSO, CONFIGURATION_KEY, saved);

  const get = (path: string) => () => service.admin("GET", path);
  const users = (rowKey: string, change: object, path: string): Target => ({
    table: "Users",
    rowKey,
    change: { ...change },
    read: get(path),
  });
  Object.assign(targets, {
    "the role of a user": users("mallory", { role: "admin" }, "/auth/users/mallory"),
    "the state of a user": users("carol", { state: "active" }, "/auth/users/carol"),
    "the password of a user": users("erin", { passwordHash: "scrypt$planted" }, "/auth/users/erin"),
    "the linked identity of a user": users("frank", { sso_json: '{"issuer":"i","subject":"s"}' }, "/auth/users/frank"),
    // Used if the sign-in with the password alone succeeds, or if the list of methods is another one.
    "the second factor of a user": {
      ...users("grace", { secondFactor_json: undefined }, ""),
      read: async () => {
        // The number of sign-ins of a user is limited too.
        for (const row of (await writer.rows("RateLimits")).values()) await writer.remove("RateLimits", row);
        return await service.call("POST", "/auth/login", {
          body: { username: "grace", password: PASSWORD },
          headers: { "X-Forwarded-For": `198.51.100.${++signIns}` },
        });
      },
    },
    "the methods of a second factor": {
      ...users("grace", { secondFactor_json: '{"passkeys":[],"recoveryCodes":["planted"],"usedChallenges":[]}' }, ""),
      read: () => service.call("GET", "/auth/me/second-factor", { token: graceToken }),
    },
    "the list of administrators": users(
      "|directory",
      { administrators_json: '["mallory"]', total: 1.5 },
      "/auth/users",
    ),
    "the first administrator's marker": users("|bootstrap", { username: "mallory" }, "/auth/users"),
    "an API token": {
      ...users(await keyStarting("Users", "|token|"), { role: "admin" }, "/auth/tokens"),
      read: () => service.call("GET", "/auth/me", { token: token.token }),
    },
    "a linked identity": users(await keyStarting("Users", "|sso|"), { user: "mallory" }, "/auth/users/frank"),
    "a blocked identity": users(await keyStarting("Users", "|refused|"), { username: "mallory" }, "/auth/sso/refused"),
    "the single sign-on": {
      table: "Sso",
      rowKey: CONFIGURATION_KEY,
      change: { isEnabled: true },
      read: get("/auth/sso/config"),
    },
    "the settings": {
      table: "Settings",
      rowKey: "overrides",
      change: { overrides_json: "{}" },
      read: get("/api/settings/all"),
    },
    "an alert rule": {
      table: "AlertRules",
      rowKey: `r|${ruleId}`,
      change: { recipients_json: '["attacker@acme.example"]' },
      read: get(`/alerts/rules/${ruleId}`),
    },
    "the owners": {
      table: "AlertOwners",
      rowKey: "0",
      change: { addresses_json: '{"payments":"attacker@acme.example"}' },
      read: get("/alerts/owners"),
    },
    "a snooze": {
      table: "AlertSnoozes",
      rowKey: [...(await writer.rows("AlertSnoozes")).keys()][0]!,
      change: { filters_json: "{}" },
      read: get("/alerts/snoozes"),
    },
    "a subscription": {
      table: "Subscriptions",
      rowKey: SUBSCRIPTION,
      change: { removingSince: "2020-01-01T00:00:00.000Z" },
      read: get("/subscriptions"),
    },
  } satisfies Record<string, Target>);
  Object.assign(removed, {
    "a removed administrator": users("gone", {}, "/auth/users/gone"),
    "a removed rule": {
      table: "AlertRules",
      rowKey: `r|${goneRule}`,
      change: {},
      read: get(`/alerts/rules/${goneRule}`),
    },
  });
  // The first run signs nothing, because this version wrote every row, and stores the state in the key vault.
  await runMinuteTimer();
}, 120_000);
afterAll(() => service?.stop());

/**
 * Why a row is reported. `changed`: its signature is wrong. `unsigned`: it has none. `olderState`: it is not the state that its list
 * names. `notListed`: its list does not name it. `missing`: its list names it, and it does not exist.
 */
type Reason = "changed" | "unsigned" | "olderState" | "notListed" | "missing";
type Act = (target: Target, rows: Map<string, RawRow>) => Promise<string | undefined>;

const listOf = ({ rowKey }: Target) => listKey(listIndexOf(rowKey));
const earlierRow = ({ table }: Target, rowKey: string) => earlier.get(table)!.get(rowKey)!;

/** What the attacker does to a row. `act` returns the row key that must be reported, by default that of the row. */
const ACTS: Record<string, { reason: Reason; act: Act }> = {
  "is changed": {
    reason: "changed",
    act: async ({ table, rowKey, change }, rows) =>
      void (await writer.write(table, { ...rows.get(rowKey)!, ...change } as RawRow)),
  },
  "is changed and loses its signature": {
    reason: "unsigned",
    act: async ({ table, rowKey, change }, rows) => {
      const { _signature: _, ...row } = rows.get(rowKey)!;
      await writer.write(table, { ...row, ...change } as RawRow);
      return undefined;
    },
  },
  // The check compares the row's signature with its list before any key: it is not the listed one.
  "gets the signature of a planted key": {
    reason: "olderState",
    act: async ({ table, rowKey, change }, rows) => {
      const _signature = `${"0".repeat(32)}.${randomBytes(32).toString("base64url")}`;
      await writer.write(table, { ...rows.get(rowKey)!, ...change, _signature } as RawRow);
      return undefined;
    },
  },
  "is copied to another key": {
    reason: "notListed",
    act: async ({ table, rowKey }, rows) => {
      const copy = `${rowKey}0`;
      await writer.write(table, { ...rows.get(rowKey)!, rowKey: copy });
      return copy;
    },
  },
  "is removed": {
    reason: "missing",
    act: async ({ table, rowKey }, rows) => void (await writer.remove(table, rows.get(rowKey)!)),
  },
  "is removed with its list": {
    reason: "missing",
    act: async (target, rows) => {
      await writer.remove(target.table, rows.get(target.rowKey)!);
      await writer.remove(target.table, rows.get(listOf(target))!);
      return listOf(target);
    },
  },
  // Without its list, the row could be an older one, so it is not used.
  "loses its list": {
    reason: "olderState",
    act: async (target, rows) => void (await writer.remove(target.table, rows.get(listOf(target))!)),
  },
  "is put back": {
    reason: "olderState",
    act: async (target) => void (await writer.write(target.table, earlierRow(target, target.rowKey))),
  },
  "is put back with its list": {
    reason: "olderState",
    act: async (target) => {
      await writer.write(target.table, earlierRow(target, target.rowKey));
      await writer.write(target.table, earlierRow(target, listOf(target)));
      return undefined;
    },
  },
};
const LISTED_ACTS = Object.keys(ACTS);
/** Rows that were never changed, so that they have no earlier state to put back. */
const UNCHANGED = ["the first administrator's marker", "an API token", "a linked identity", "a blocked identity"];
/** Rows of tables that have signatures but no lists. */
const NOT_LISTED = ["a snooze", "a subscription"];
const NAMES = [
  "the role of a user",
  "the state of a user",
  "the password of a user",
  "the linked identity of a user",
  "the second factor of a user",
  "the methods of a second factor",
  "the list of administrators",
  "an API token",
  "the first administrator's marker",
  "a linked identity",
  "a blocked identity",
  "the single sign-on",
  "the settings",
  "an alert rule",
  "the owners",
];

/** Returns the rows of a table, without its lists, with their columns and their types. */
async function typedRows(table: string): Promise<Map<string, TypedRow>> {
  const rows = new Map<string, TypedRow>();
  for await (const row of wholeTables.rows(table)) if (!isListKey(row.rowKey)) rows.set(row.rowKey, row);
  return rows;
}

/**
 * Runs one case: changes the tables, and expects the check to report the row, requests not to use it, and the command to let
 * the administrator in again.
 */
async function expectNoGain(
  target: Target,
  act: () => Promise<string | undefined>,
  expected: { reason: Reason; isOnlyReported?: boolean },
) {
  cases.add(expect.getState().currentTestName!);
  const before = await typedRows(target.table);
  const baseline = await target.read();
  const reportedKey = (await act()) ?? target.rowKey;
  const services = newServices();
  await services.signedRows.check();

  const after = await target.read();
  const isUnchanged = after.status !== 200 || after.headers.has("x-unreadable-rows") || after.text === baseline.text;
  // `isOnlyReported`: without the list, nothing names the removed row, so answers change. A sign-in with the identity still fails,
  // because it would write the same list.
  const used = !isUnchanged && !expected.isOnlyReported;
  expect(used, `${after.status} ${after.text}`).toBe(false);
  const findings = await services.signedRows.inspect();
  expect(findings.map(({ table, rowKey, reason }) => [table, rowKey, reason])).toContainEqual([
    target.table,
    reportedKey,
    expected.reason,
  ]);
  // A row with a wrong signature is reported when it is read, and every other one by the check.
  if (expected.reason !== "changed" && targetIsListed(target)) {
    const listed = await services.unreadableRows.list();
    expect(listed).toContainEqual(
      expect.objectContaining({ table: target.table, key: reportedKey, reason: expected.reason }),
    );
  }

  await services.signedRows.accept(findings, { requestId: "test" });
  if ((await service.admin("GET", "/auth/me")).status !== 200) {
    const rescue = { username: `rescue-${cases.size}`, password: PASSWORD, role: "admin" as const };
    await services.access.users.create(rescue, CALLER);
    expect(await services.access.users.get(rescue.username)).toMatchObject({ role: "admin" });
  }
  await writeAsService(services, target.table, before);
  expect((await target.read()).status).toBe(baseline.status);
}
const targetIsListed = ({ table }: Target) => table !== "AlertSnoozes" && table !== "Subscriptions";

/** Makes a table have exactly these rows, as the service writes them: signed and listed. */
async function writeAsService({ tables }: Services, table: string, rows: ReadonlyMap<string, TypedRow>): Promise<void> {
  const { partitionKey, listed } = SIGNED_RANGES.find((range) => range.table === table)!;
  const anyRow = entity(table, z.object({}), { signed: "adopted", listed });
  const current = await typedRows(table);
  const removed = [...current.keys()].filter((rowKey) => !rows.has(rowKey));
  const changed = [...rows.values()].filter(
    ({ rowKey, columns }) => !isDeepStrictEqual(columns, current.get(rowKey)?.columns),
  );
  const operations = [
    ...removed.map((rowKey) => remove(anyRow, rowKey)),
    ...changed.map(({ rowKey, columns }): Operation => ({ kind: "put", entity: anyRow, rowKey, columns })),
  ];
  if (operations.length > 0) await tables.transaction(table, partitionKey, operations);
}

describe.each(NAMES)("%s", (name) => {
  const acts = LISTED_ACTS.filter((act) => !(UNCHANGED.includes(name) && act.startsWith("is put back")));
  test.each(acts)("%s", async (act) => {
    const target = targets[name]!;
    const { reason } = ACTS[act]!;
    const isOnlyReported = name === "a blocked identity" && act === "is removed with its list";
    await expectNoGain(target, async () => await ACTS[act]!.act(target, await writer.rows(target.table)), {
      reason,
      isOnlyReported,
    });
  });
});

describe.each(NOT_LISTED)("%s", (name) => {
  test.each([
    ["is changed", "changed"],
    ["is changed and loses its signature", "unsigned"],
    ["is copied to another key", "changed"],
  ] as const)("%s", async (act, reason) => {
    const target = targets[name]!;
    await expectNoGain(target, async () => await ACTS[act]!.act(target, await writer.rows(target.table)), { reason });
  });
});

test.each(["a removed administrator", "a removed rule"])("%s comes back", async (name) => {
  const target = removed[name]!;
  await expectNoGain(target, async () => void (await writer.write(target.table, earlierRow(target, target.rowKey))), {
    reason: "notListed",
  });
});

test.each(["the role of a user", "the single sign-on", "the settings", "an alert rule", "the owners"])(
  "the whole table with %s is put back",
  async (name) => {
    const target = targets[name]!;
    await expectNoGain(target, async () => void (await writer.restore(target.table, earlier.get(target.table)!)), {
      reason: "olderState",
    });
  },
);

test.each(["the role of a user", "the single sign-on", "the settings", "an alert rule", "the owners"])(
  "the whole table with %s is emptied",
  async (name) => {
    const target = targets[name]!;
    await expectNoGain(
      target,
      async () => {
        await writer.restore(target.table, new Map());
        return listOf(target);
      },
      { reason: "missing" },
    );
  },
);

test("all 145 cases of the tests above have run", () => {
  expect(cases.size).toBe(145);
});

/** Writes a row with columns that the SDK would not send, for example `rowKey`. */
async function writeColumns(table: string, row: TypedRow): Promise<void> {
  const rows = async function* () {
    yield row;
  };
  await wholeTables.write(table, rows());
}

const typedRow = async (table: string, rowKey: string): Promise<TypedRow> => (await typedRows(table)).get(rowKey)!;

/** Compares the rows, and accepts them as they are. */
async function acceptAll(): Promise<void> {
  const services = newServices();
  await services.signedRows.accept(await services.signedRows.inspect(), { requestId: "test" });
}

const isUsed = (answer: Answer, baseline: Answer) =>
  answer.status === 200 && !answer.headers.has("x-unreadable-rows") && answer.text !== baseline.text;

test.each(["the role of a user", "an alert rule", "a snooze", "a subscription"])(
  "%s without a signature does not pass as an older one by a column with an earlier time",
  async (name) => {
    const { table, rowKey, change, read } = targets[name]!;
    const [row, baseline] = [await typedRow(table, rowKey), await read()];
    const { _signature: _, ...columns } = row.columns;
    await writeColumns(table, {
      ...row,
      columns: { ...columns, ...change, timestamp: "2020-01-01T00:00:00Z" } as TypedRow["columns"],
    });
    expect(isUsed(await read(), baseline)).toBe(false);
    await newServices().signedRows.check();
    expect(isUsed(await read(), baseline)).toBe(false);
    await writeColumns(table, row);
    await acceptAll();
  },
);

test("a copy of another user's row does not pass by a column with that user's key", async () => {
  const { table, rowKey, read } = targets["the role of a user"]!;
  const [row, baseline] = [await typedRow(table, rowKey), await read()];
  const { columns } = await typedRow(table, ADMIN.username);
  await writeColumns(table, { ...row, columns: { ...columns, partitionKey: "user", rowKey: ADMIN.username } });
  expect(isUsed(await read(), baseline)).toBe(false);
  await writeColumns(table, row);
  await acceptAll();
});

test("a row that is put back with its list stays found, although the service writes the list again", async () => {
  const services = newServices();
  await admin("POST", "/auth/users", { username: "trent", password: PASSWORD, role: "admin" });
  await services.signedRows.check();
  const before = await writer.rows("Users");
  await admin("PUT", "/auth/users/trent", { role: "user" });
  await services.signedRows.check();
  const after = await writer.rows("Users");
  await writer.write("Users", before.get("trent")!);
  await writer.write("Users", before.get(listKey(listIndexOf("trent")))!);
  // Another instance writes the list as often as it was written before.
  const { users } = newServices().access;
  for (let times = 0; times < 3; times++)
    await users.update("trent", { email: `t${times}@acme.example` }, undefined, CALLER);
  await services.signedRows.check();
  expect((await service.admin("GET", "/auth/users/trent")).body.role).not.toBe("admin");
  expect((await newServices().signedRows.inspect()).map(({ rowKey }) => rowKey)).toContain("trent");
  await writer.restore("Users", after);
  await acceptAll();
});

test("an instance recognizes an earlier state of a list that it wrote before the next comparison, and rejects a write", async () => {
  const services = newServices();
  await services.signedRows.check();
  const before = await writer.rows("Users");
  const user = { username: "victor", password: PASSWORD, role: "admin" as const };
  await services.access.users.create(user, CALLER);
  const key = listKey(listIndexOf("victor"));
  const created = await writer.rows("Users");
  await services.access.users.update("victor", { role: "user" }, undefined, CALLER);
  const after = await writer.rows("Users");
  await writer.write("Users", created.get("victor")!);
  await writer.write("Users", created.get(key)!);
  await expect(services.access.users.update("victor", { email: "v@acme.example" }, undefined, CALLER)).rejects.toThrow(
    "olderState",
  );
  await services.signedRows.check();
  expect((await newServices().signedRows.inspect()).map(({ rowKey }) => rowKey)).toEqual(
    expect.arrayContaining(["victor", key]),
  );
  await writer.restore("Users", after);
  expect(before.has("victor")).toBe(false);
  await acceptAll();
});

test("a row that is planted after the time for unsigned rows is not signed, although an instance still signs rows", async () => {
  const { table, rowKey, change, read } = targets["the role of a user"]!;
  const services = newServices();
  const account = storageAccount(services.connection);
  const states = keyVaultSigningStates(services.serviceKeyVault!, account, services.clock);
  const { signed, sequences } = await states.read();
  const [row, baseline] = [await typedRow(table, rowKey), await read()];
  await states.write({ signed: { ...signed!, complete: false }, sequences });
  const { _signature: _, ...columns } = row.columns;
  await writeColumns(table, { ...row, columns: { ...columns, ...change } as TypedRow["columns"] });
  await newServices().signedRows.check();
  expect(isUsed(await read(), baseline)).toBe(false);
  await writeColumns(table, row);
  await acceptAll();
});

test("the state of a store names the other stores whose rows the same key signs, and the tags of others stay", async () => {
  const services = newServices();
  const vault = services.serviceKeyVault!;
  const account = storageAccount(services.connection);
  await services.signedRows.check();
  expect((await services.signedRows.status()).detail).toBeUndefined();
  const tags = await vault.readTags(ROW_SIGNING);
  await vault.writeTags(ROW_SIGNING, { ...tags, owner: "platform" });

  const other = keyVaultSigningStates(vault, "otheraccount", services.clock);
  expect((await other.registerStore()).others).toEqual([account]);
  expect(await vault.readTags(ROW_SIGNING)).toEqual({ owner: "platform", stores: `${account} otheraccount` });
  const { body } = await service.admin("GET", "/health?deep=true");
  expect(body.signedRows).toMatchObject({ status: "signed", detail: expect.stringContaining(": otheraccount.") });
  await vault.writeTags(ROW_SIGNING, { ...tags });
});

test("a store registers again if another store, which registered at the same time, replaced the tag", async () => {
  const services = newServices();
  const vault = services.serviceKeyVault!;
  const tags = await vault.readTags(ROW_SIGNING);
  for (let check = 1; check <= 2; check++) {
    await vault.writeTags(ROW_SIGNING, { ...tags, stores: "otheraccount" });
    await services.signedRows.check();
    const stores = `otheraccount ${storageAccount(services.connection)}`;
    expect(await vault.readTags(ROW_SIGNING)).toMatchObject({ stores });
  }
  await vault.writeTags(ROW_SIGNING, { ...tags });
});

test("a row that the service wrote since it was found is not set aside", async () => {
  const services = newServices();
  const keys = keyVaultRowKeys(services.serviceKeyVault!, services.randomness);
  const partitions = createSignedPartitions(services.connection, { tables: services.tables, keys });
  const row = await typedRow("Users", "mallory");
  const found = { table: "Users", partitionKey: row.partitionKey, rowKey: "mallory", reason: "olderState" } as const;
  await admin("PUT", "/auth/users/mallory", { email: "since@acme.example" });
  expect(await partitions.setAside({ ...found, signature: row.columns._signature })).toBeUndefined();
  expect(await partitions.setAside({ ...found, reason: "missing" })).toBeUndefined();
  expect((await service.admin("GET", "/auth/users/mallory")).body).toMatchObject({ email: "since@acme.example" });
});

test("hundreds of planted rows are set aside a part at a time, and cost no request each after that", async () => {
  const client = writer.client("Users");
  const keys = Array.from({ length: 600 }, (_, number) => `garbage-${number}`);
  for (let at = 0; at < keys.length; at += 100)
    await client.submitTransaction(
      keys.slice(at, at + 100).map((rowKey) => ["upsert", { partitionKey: "user", rowKey, role: "admin" }, "Replace"]),
    );
  const setAside = async () =>
    [...(await writer.rows("Users")).values()].filter((row) => JSON.stringify(row).includes("rejected.unsigned"))
      .length;
  await newServices().signedRows.check();
  expect(await setAside()).toBe(500);
  await newServices().signedRows.check();
  expect(await setAside()).toBe(600);
  service.clearTableRequests();
  await runMinuteTimer();
  const reads = service.tableRequests().filter(({ path }) => decodeURIComponent(path).includes("RowKey='garbage-"));
  expect(reads.length).toBeLessThanOrEqual(100);
  const planted = (await newServices().signedRows.inspect()).filter(({ rowKey }) => rowKey.startsWith("garbage-"));
  expect(planted).toHaveLength(600);
  await newServices().signedRows.accept(planted, { requestId: "test", remove: planted });
}, 120_000);

test("the administrator signs in at the end, and a reported row is in the audit log, the metrics and the deep health", async () => {
  await service.signIn(ADMIN);
  const target = targets["the role of a user"]!;
  await writer.write(target.table, earlierRow(target, target.rowKey));
  // A new process, because the first one has reported the row within the last hour.
  const { url } = await service.addHost();
  service.hosts.pop();
  await runMinuteTimer(url);
  const { body: health } = await service.admin("GET", `${url}/health?deep=true`);
  expect(health).toMatchObject({ status: "degraded", signedRows: { status: "signed" } });
  expect(health.unreadableRows.listed).toBeGreaterThan(0);
  const { body: audit } = await admin("GET", "/audit/entries?event_type=storage.rowUnreadable&limit=1000");
  expect(audit.items).toContainEqual(
    expect.objectContaining({ details: expect.objectContaining({ rowKey: "mallory", reason: "olderState" }) }),
  );
  const { body: accepted } = await admin("GET", "/audit/entries?event_type=storage.rowsAccepted&limit=1");
  expect(accepted.items[0].details.total).toBeGreaterThanOrEqual(0);
});

test("the command lists the row, and accepts or removes it; a rollback is refused until then", async () => {
  const run = (...args: string[]): Promise<{ code: number; out: string; err: string }> =>
    new Promise((resolve) => {
      const env = { ...process.env, ...service.environment, NODE_COMPILE_CACHE: COMPILE_CACHE };
      execFile(process.execPath, [COMMANDS.store, ...args], { env }, (error, out, err) => {
        resolve({ code: error ? Number(error.code) : 0, out, err });
      });
    });
  const line =
    "Users/user/mallory\tolderState\tan earlier state of the row\tusername mallory, role admin, state active\n";
  expect(await run("sign")).toMatchObject({ code: 0, out: expect.stringContaining(`${line}Rows: 1.`) });
  const refused = await run("prepare-rollback", "--to", "f8ec7568");
  expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("Users/user/mallory") });
  expect(await run("sign", "--accept", "--remove", "Users/user/nobody")).toMatchObject({ code: 2 });
  const accepted = await run("sign", "--accept", "--remove", "Users/user/mallory");
  expect(accepted).toMatchObject({ code: 0, out: expect.stringContaining("Accepted 0 rows, removed 1") });
  expect((await service.admin("GET", "/auth/users/mallory")).status).toBe(404);
  expect(await run("sign")).toMatchObject({ code: 0, out: expect.stringContaining("Rows: 0.") });
});

test("a rollback is refused while a row without a signature is not used, because the earlier build would use it", async () => {
  const services = newServices();
  const row = await typedRow("Users", "carol");
  const { _signature: _, ...columns } = row.columns;
  await writeColumns("Users", { ...row, columns: { ...columns, role: "admin" } });
  await expect(requireNoFindings(services)).rejects.toThrow("Users/user/carol");
  await writeColumns("Users", row);
  await requireNoFindings(services);
});

test("during an outage of the key vault, running processes continue, and a new process says what is missing", async () => {
  await newServices().signedRows.accept([], { requestId: "test" });
  const token = await service.signIn(ADMIN);
  service.cloud.control.addFault({ match: { vault: "kv-lifecycle-service" }, action: { kind: "deny" } });
  try {
    await service.signIn(ADMIN);
    const { body: health } = await service.call("GET", "/health?deep=true", { token });
    expect(health.signedRows).toMatchObject({ status: "unknown", detail: expect.stringContaining("key vault") });
    const { url } = await service.addHost();
    service.hosts.pop();
    const answer = await service.call("GET", `${url}/auth/me`, { token });
    expect([answer.status, answer.body.code]).toEqual([503, "unavailable"]);
    expect(answer.body.detail).toContain("key vault");
    expect((await service.call("GET", `${url}/health`)).status).toBe(200);
  } finally {
    service.cloud.control.clearFaults();
  }
});

test("a write costs one more read and one more operation, a request with a session none, and each minute ten reads", async () => {
  service.clearTableRequests();
  const login = await service.call("POST", "/auth/login", {
    body: { ...ADMIN, session: true },
    headers: { "Sec-Fetch-Site": "same-origin" },
  });
  expect(login.status).toBe(200);
  const cookie = login.headers.getSetCookie()[0]!.split(";")[0]!;
  /** Returns the row keys that a call read in one table. */
  const readRows = (answer: Answer, table: string) =>
    answer
      .tableRequests()
      .filter(({ method, path }) => method === "GET" && path.startsWith(`${table}(PartitionKey`))
      .map(({ path }) => /RowKey='([^']*)'/.exec(path)![1]!);
  const call = await service.call("GET", "/compliance/frameworks", {
    headers: { Cookie: cookie, "Sec-Fetch-Site": "same-origin" },
  });
  const list = expect.stringMatching(/^\|~list\|[0-9a-f]$/);
  expect(readRows(call, "Users")).toEqual(["admin"]);
  expect(readRows(login, "Users")).toEqual(["admin", list]);
  const change = await service.admin("PUT", "/api/settings/features", { watchAll: false });
  expect(readRows(change, "Settings").filter((rowKey) => rowKey !== "overrides")).toEqual([list, list]);

  // The comparison reads the lists and the signatures of each listed partition once.
  service.clearTableRequests();
  await runMinuteTimer();
  const queries = service
    .tableRequests()
    .filter(({ path }) => /^(Users|Sso|Settings|AlertRules|AlertOwners)\(\)/.test(path));
  expect(queries).toHaveLength(10);
});
