import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createReferenceNotices } from "../../shared/alerts/reference-notices.ts";
import type { Edge } from "../../shared/dependencies/edge.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { DEPENDENCIES, TABLE } from "../../shared/dependencies/rows.ts";
import type { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  app,
  caller,
  Deployment,
  denied,
  FIRST_1000,
  notSeen,
  resolved,
  SERVICE_VAULT,
  timedOut,
  unresolved,
} from "./discovery-fixture.ts";

// Discovery runs and the stored dependencies, with a simulated source. A run reads each unit of the source (here `s1`, `s2`),
// which reports web apps with their references to secrets.

let storage: TestStorage;
let account = 0;
let deployment: Deployment;

beforeAll(async () => {
  storage = await openStorage(Array.from({ length: 30 }, (_, index) => `deps${index}`));
});
afterAll(() => storage?.stop());
beforeEach(() => {
  deployment = new Deployment(storage.connectionString(`deps${account++}`));
});

const listEdges = async (filter = {}) => (await deployment.start().dependencies.list(filter, FIRST_1000)).page.items;
/** Returns the dependencies as `vault/secret resource setting`. */
const listNames = async (filter = {}) =>
  (await listEdges(filter)).map(({ edge }) => `${edge.vaultName}/${edge.name} ${edge.resource.name} ${edge.evidence}`);

test("a run reads every unit, and writes no edge if nothing changed", async () => {
  const { company } = deployment;
  company.itemsByUnit = {
    s1: [app("one", { A: {}, B: { secret: "key" } })],
    s2: [app("two", { A: { vault: "kv-two" } })],
  };
  const first = await deployment.run();
  expect(first).toMatchObject({ status: "completed", units: 2, unitsFailed: 0, resources: 2, edges: 3, changed: 2 });
  expect(await listNames()).toEqual(["kv-one/db one A", "kv-one/key one B", "kv-two/db two A"]);
  const before = await listEdges();
  const again = await deployment.run();
  expect(again).toMatchObject({ status: "completed", changed: 0, edges: 3 });
  const after = await listEdges();
  // `toldAt` is the time when an edge was last written.
  expect(after.map(({ edge }) => edge.toldAt)).toEqual(before.map(({ edge }) => edge.toldAt));
  // The run still updates the time of the last confirmation.
  expect(after.every(({ seenAt }, index) => seenAt > before[index]!.seenAt)).toBe(true);
});

test("a run writes changed dependencies and deletes missing ones and those of removed units", async () => {
  const { company } = deployment;
  company.itemsByUnit = {
    s1: [app("one", { A: {}, B: {} }), app("two", { A: {} })],
    s2: [app("three", { A: {} }), notSeen("/subscriptions/s2/sites/four")],
  };
  await deployment.run();
  company.itemsByUnit = { s1: [app("one", { A: { pinned: "v1" }, C: {} })] };
  expect(await deployment.run()).toMatchObject({ status: "completed", units: 2, edges: 2, resources: 1, notSeen: 0 });
  expect(await listNames()).toEqual(["kv-one/db one A", "kv-one/db one C"]);
  expect(await listNames({ pinned: true })).toEqual(["kv-one/db one A"]);
  const { page, coverage } = await deployment.start().dependencies.list({}, FIRST_1000);
  expect([page.total, coverage.total]).toEqual([2, 0]);
});

test("a run of changes reads changes since the last run, and deletes only resources that are reported as gone", async () => {
  const { company } = deployment;
  company.itemsByUnit = { s1: [app("one", { A: {} }), app("two", { A: {} })] };
  await deployment.run("changes");
  // A unit that was never read is read in full.
  expect(company.readings.at(-1)!.since).toBeUndefined();
  company.itemsByUnit = { s1: [{ gone: "/subscriptions/s1/sites/one" }, app("three", { A: {} })] };
  await deployment.run("changes");
  // Changes are listed late, so a run overlaps the previous one by 15 minutes.
  const { since } = company.readings.at(-1)!;
  expect(Date.now() - since!.getTime()).toBeGreaterThan(14 * 60_000);
  expect(Date.now() - since!.getTime()).toBeLessThan(20 * 60_000);
  expect((await listNames()).sort()).toEqual(["kv-one/db three A", "kv-one/db two A"]);
});

test("resources that can't be read stay unchanged and are listed in the coverage", async () => {
  const { company } = deployment;
  company.itemsByUnit = {
    s1: [app("one", { A: {} }), app("two", { A: {}, B: {} }), app("three", { A: {} })],
    s2: [app("four", { A: {} })],
  };
  await deployment.run();
  const before = new Map((await listEdges()).map(({ edge, seenAt }) => [edge.resource.name, seenAt]));
  company.itemsByUnit = {
    s1: [
      app("one", { A: {} }),
      notSeen("/subscriptions/s1/sites/TWO"),
      app("two", { A: {} }, { partial: true }),
      notSeen("/subscriptions/s1/sites/three"),
    ],
    s2: denied(),
  };
  const run = await deployment.run();
  expect(run).toMatchObject({ status: "partial", unitsFailed: 1, notSeen: 3 });
  expect(run.failures).toMatchObject([{ source: "azure", unit: "s2", code: "accessDenied" }]);
  const found = await listEdges();
  /** Returns for each dependency of a resource whether the second run has seen it again. */
  const seenAgain = (name: string) =>
    found.filter(({ edge }) => edge.resource.name === name).map(({ seenAt }) => seenAt > before.get(name)!);
  expect({
    one: seenAgain("one"),
    two: seenAgain("two").sort(),
    three: seenAgain("three"),
    four: seenAgain("four"),
  }).toEqual({
    one: [true],
    two: [false, true],
    three: [false],
    four: [false],
  });
  const coverage = await deployment.start().dependencies.coverage(FIRST_1000);
  expect(coverage.items.map(({ scope }) => scope).sort()).toEqual([
    "/subscriptions/s1/sites/TWO",
    "/subscriptions/s1/sites/three",
    "s2",
  ]);
  company.itemsByUnit = { s1: [app("one", { A: {} }), app("two", { A: {} })], s2: [app("four", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ status: "completed", notSeen: 0, edges: 3 });
  expect((await listNames()).sort()).toEqual(["kv-one/db four A", "kv-one/db one A", "kv-one/db two A"]);
});

describe("a stored row that can't be read", () => {
  const table = () =>
    TableClient.fromConnectionString(deployment.connectionString, TABLE, { allowInsecureConnection: true });

  /** Makes the first row with this prefix unreadable. Returns its key. */
  async function corrupt(prefix: string): Promise<string> {
    for await (const { rowKey } of table().listEntities())
      if (rowKey!.startsWith(prefix)) {
        await table().upsertEntity({ partitionKey: DEPENDENCIES, rowKey: rowKey!, edges: true, source: 1 }, "Replace");
        return rowKey!;
      }
    throw new Error(`No row starts with ${prefix}.`);
  }
  /** The secret that the apps use. */
  const SECRET = { vaultName: "kv-one", type: "secret", name: "db" } as const;
  const isIncomplete = async () => (await deployment.start().dependencies.edgesOf(SECRET)).more;

  beforeEach(async () => {
    deployment.company.itemsByUnit = {
      s1: [app("one", { A: unresolved, B: {} }), app("two", { A: {} }), notSeen("/subscriptions/s1/sites/three")],
    };
    await deployment.run();
  });

  test.each([
    ["a dependency", "e|"],
    ["a resource", "r|"],
    ["a unit", "u|"],
    ["an item of the coverage", "c|"],
  ])("of %s is written again by a full run, although the resource is unchanged", async (_, prefix) => {
    const before = await deployment.readState();
    await corrupt(prefix);
    await expect(deployment.readState()).rejects.toThrow("can't be read");
    expect(await isIncomplete()).toBe(prefix === "e|");
    await deployment.run();
    expect(await deployment.readState()).toEqual(before);
    expect(await isIncomplete()).toBe(false);
  });

  test("of a dependency and of its resource are written again together", async () => {
    const before = await deployment.readState();
    for (const prefix of ["e|", "r|"]) await corrupt(prefix);
    await deployment.run();
    // Neither row says that the reference was unresolved before, so it is reported again.
    expect(await deployment.readState()).toEqual({ ...before, unresolved: before.unresolved + 1 });
  });

  test("of a dependency that no resource has is removed by a full run", async () => {
    const before = await deployment.readState();
    const planted = { partitionKey: DEPENDENCIES, rowKey: "e|kv-one|secret|db|planted|planted", vaultName: true };
    await table().createEntity(planted);
    expect(await isIncomplete()).toBe(true);
    await deployment.run("changes");
    expect(await isIncomplete()).toBe(true);
    await deployment.run();
    expect([await isIncomplete(), await deployment.readState()]).toEqual([false, before]);
  });
});

test("a unit that is read in parts has the same result as one that is read at once", async () => {
  const id = (name: string) => `/subscriptions/s1/sites/${name}`;
  // The next message can continue to read after a position.
  const positionAt = (position: string) => ({ position });
  const appsBefore = ["one", "two", "three", "four", "five", "left"].map((name) => app(name, { A: {}, B: {} }));
  const newItems = [
    [app("one", { A: {} }), positionAt("1"), notSeen(id("two")), positionAt("2")],
    [app("three", { A: {}, C: {} }), positionAt("3")],
    [app("four", { A: {} }, { partial: true }), notSeen(id("four")), notSeen(id("five"))],
  ];
  const earlier = (...apps: string[]) => apps.map((name) => ({ earlier: id(name) }));
  // Reports of the source from each position on. The first two parts end because their time is over.
  const parts: Record<string, (ReadingItem | CloudFailure)[]> = {
    "": [...newItems[0]!, timedOut()],
    2: [...earlier("one", "two"), ...newItems[1]!, timedOut()],
    3: [...earlier("one", "two", "three"), ...newItems[2]!],
  };
  const whole = new Deployment(storage.connectionString(`deps${account++}`));
  for (const { company } of [deployment, whole]) company.itemsByUnit = { s1: [...appsBefore, notSeen(id("three"))] };
  for (const one of [deployment, whole]) await one.run();
  whole.company.itemsByUnit = { s1: newItems.flat() };
  const expected = await whole.run();
  let started: number | undefined;
  deployment.company.itemsOf = (_, after = "") => {
    started ??= Date.now();
    return parts[after]!;
  };
  const run = await deployment.run();
  expect(deployment.company.readings.slice(1).map(({ after }) => after)).toEqual([undefined, "2", "3"]);
  const counts = ({ status, changed, resources, edges, notSeen: hidden }: typeof run) => [
    status,
    changed,
    resources,
    edges,
    hidden,
  ];
  expect(counts(run)).toEqual(counts(expected));
  expect(await deployment.readState()).toEqual(await whole.readState());
  // The next read of changes overlaps the first part of this one by 15 minutes.
  await deployment.run("changes");
  expect(deployment.company.readings.at(-1)!.since!.getTime()).toBeLessThanOrEqual(started! - 15 * 60_000);

  // A part that makes no progress fails the run, which then deletes nothing.
  parts[3] = [...earlier("one", "two", "three"), timedOut()];
  const failed = { status: "failed", edges: run.edges, failures: [{ code: "timedOut" }] };
  expect(await deployment.run()).toMatchObject(failed);
});

test("if the units of a source can't be listed, their dependencies stay and the coverage lists the failure", async () => {
  const { company } = deployment;
  company.itemsByUnit = { s1: [app("one", { A: {} })] };
  await deployment.run();
  company.listFailure = denied();
  expect(await deployment.run()).toMatchObject({ status: "failed", units: 0, edges: 1 });
  const { coverage } = await deployment.start().dependencies.list({}, FIRST_1000);
  expect(coverage).toMatchObject({ total: 1, items: [{ scope: "azure", code: "accessDenied" }] });
  company.listFailure = undefined;
  expect(await deployment.run()).toMatchObject({ status: "completed", edges: 1, notSeen: 0 });
});

test("before the first run, the coverage lists that nothing was read", async () => {
  const { coverage, page } = await deployment.start().dependencies.list({}, FIRST_1000);
  expect(page).toMatchObject({ items: [], total: 0 });
  expect(coverage).toMatchObject({ total: 1, items: [{ code: "neverRead" }] });
});

test("an unresolved reference is reported once until it is resolved", async () => {
  const { company } = deployment;
  const readUnresolved = async () => {
    const found: { id: string; isStillUnresolved: boolean }[] = [];
    for await (const page of deployment.start().dependencies.references.unresolved(new Date(0)))
      for (const one of page)
        found.push({ id: one.unresolved.id, isStillUnresolved: (await one.currentEdge()) !== undefined });
    return found;
  };
  company.itemsByUnit = { s1: [app("one", { A: resolved, B: unresolved }), app("two", { A: {} })] };
  await deployment.run();
  expect(await readUnresolved()).toMatchObject([{ isStillUnresolved: true }]);
  expect(deployment.compliance).toEqual([{ vaultName: "kv-one", assets: ["secret.db"] }]);
  await deployment.run();
  expect(await readUnresolved()).toHaveLength(1);
  expect(deployment.compliance).toHaveLength(1);
  company.itemsByUnit = { s1: [app("one", { A: resolved, B: resolved })] };
  await deployment.run();
  expect(await readUnresolved()).toMatchObject([{ isStillUnresolved: false }]);
  company.itemsByUnit = { s1: [app("one", { A: resolved, B: unresolved })] };
  await deployment.run();
  const again = await readUnresolved();
  expect(again.map(({ isStillUnresolved }) => isStillUnresolved)).toEqual([true, true]);
  expect(new Set(again.map(({ id }) => id)).size).toBe(2);
  expect(deployment.compliance).toHaveLength(3);
  const notices = [];
  const source = createReferenceNotices(deployment.start().dependencies.references);
  for await (const page of source.notices("referenceUnresolved", new Date(0)))
    for (const one of page) notices.push([one.id, one.at !== undefined, await one.notice()]);
  expect(notices).toEqual(
    again.map(({ id }) => [
      `reference.${id}`,
      true,
      expect.objectContaining({
        title: "one to kv-one/db",
        vaultName: "kv-one",
        what: "is a Key Vault reference that does not resolve",
        why: "B of one (webApp): AccessToKeyVaultDenied.",
      }),
    ]),
  );
  const references = await deployment.start().dependencies.references.ofVault("KV-one");
  expect(references.map(({ asset, resolved }) => `${asset} ${resolved}`).sort()).toEqual([
    "secret.db false",
    "secret.db true",
  ]);
});

test("reading all pages by cursor returns each dependency once", async () => {
  const { company } = deployment;
  const settings = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`S${index}`, {}]));
  company.itemsByUnit = { s1: [app("one", settings(7)), app("two", settings(4), { environment: "test" })] };
  await deployment.run();
  const { dependencies } = deployment.start();
  const readAllPages = async (filter: object, limit: number) => {
    const found: string[] = [];
    const totals = new Set<number | null>();
    let cursor: string | undefined;
    do {
      const { page } = await dependencies.list(filter, { limit, offset: 0, cursor });
      found.push(...page.items.map(({ edge }) => `${edge.resource.name} ${edge.evidence}`));
      totals.add(page.total);
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(new Set(found).size).toBe(found.length);
    return { found: found.length, totals: [...totals] };
  };
  expect(await readAllPages({}, 3)).toEqual({ found: 11, totals: [11] });
  expect(await readAllPages({ vault: "kv-one" }, 20)).toEqual({ found: 11, totals: [11] });
  expect(await readAllPages({ environment: "TEST" }, 3)).toEqual({ found: 4, totals: [4, null] });
  const { page } = await dependencies.list({}, { limit: 3, offset: 9, cursor: undefined });
  expect([page.items.length, page.nextCursor, page.total]).toEqual([2, null, 11]);
  const other = await dependencies.list({}, { limit: 3, offset: 0, cursor: undefined });
  const wrong = dependencies.list({ vault: "kv-one" }, { limit: 3, offset: 0, cursor: other.page.nextCursor! });
  await expect(wrong).rejects.toMatchObject({ code: "invalidCursor" });
});

test("references to the service's own key vault are stored, but not the resources that may only read it", async () => {
  const reference = app("one", { A: { vault: SERVICE_VAULT.toUpperCase() }, B: {} });
  const reader = app("two", { A: { vault: SERVICE_VAULT.toUpperCase() }, B: {} });
  const entitled = reader.edges.map((edge): Edge => ({ ...edge, strength: "entitled" }));
  deployment.company.itemsByUnit = { s1: [reference, { ...reader, edges: entitled }] };
  expect(await deployment.run()).toMatchObject({ edges: 3 });
  expect((await listNames()).sort()).toEqual([
    `${SERVICE_VAULT.toUpperCase()}/db one A`,
    "kv-one/db one B",
    "kv-one/db two B",
  ]);
});

test("a resource with more edges than fit into a transaction can be written, changed and deleted", async () => {
  const { company } = deployment;
  const many = (count: number, from = 0) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`S${index + from}`, { secret: `n${index}` }]));
  company.itemsByUnit = { s1: [app("big", many(250)), app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 251, changed: 2 });
  company.itemsByUnit = { s1: [app("big", many(250, 100)), app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 251, changed: 1 });
  expect((await listEdges()).filter(({ edge }) => edge.evidence === "S0")).toEqual([]);
  company.itemsByUnit = { s1: [app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 1, resources: 1, changed: 1 });
  expect(await listNames()).toEqual(["kv-one/db small A"]);
});

test("the write of a slow worker fails if another worker has read the unit in the meantime", async () => {
  const { company } = deployment;
  company.itemsByUnit = { s1: [app("one", { A: {} })] };
  await deployment.run();
  const { readUnit } = await import("../../shared/dependencies/read-unit.ts");
  const slow = deployment.start();
  const deps = {
    tables: slow.tables,
    clock: { now: () => new Date() },
    randomness: { number: Math.random, bytes: () => new Uint8Array(), ulid: () => "01ARZ3NDEKTSV4RRFFQ69G5FAV" },
    isServiceVault: () => false,
  };
  const source = {
    name: "azure" as const,
    units: async () => ["s1"],
    async *read() {
      yield app("one", { A: { pinned: "old" } });
      // Another worker reads the unit meanwhile.
      company.itemsByUnit = { s1: [app("one", { A: { pinned: "new" } })] };
      await deployment.run();
    },
  };
  const late = readUnit(source, "s1", { mode: "full", runId: "slow", workerId: "slow" }, deps);
  await expect(late).rejects.toMatchObject({ name: "RowChanged" });
  expect((await listEdges()).map(({ edge }) => edge.pinned)).toEqual(["new"]);
});

test("only one run is active at a time, and no run starts without a license", async () => {
  const { company } = deployment;
  company.itemsByUnit = { s1: [app("one", { A: {} })] };
  const { dependencies } = deployment.start();
  await dependencies.handle({ mode: "full" }, caller);
  await dependencies.handle({ mode: "changes" }, caller);
  expect(new Set(deployment.messages.map(({ message }) => message.runId)).size).toBe(1);
  deployment.licensed = false;
  await deployment.drain();
  expect(await listNames()).toHaveLength(1);
  company.itemsByUnit = { s1: [] };
  await dependencies.handle({ mode: "full" }, caller);
  expect(deployment.messages).toEqual([]);
  expect(await listNames()).toHaveLength(1);
  expect(deployment.events.at(-1)).toMatchObject({
    type: "dependencies.discovered",
    outcome: "refused",
    details: { reason: "licenseRequired" },
  });
});

test("a request returns the run after its end, and the audit log has the request and the result", async () => {
  deployment.company.itemsByUnit = { s1: [app("one", { A: {} })], s2: [app("two", { A: {} })] };
  const { dependencies } = deployment.start();
  const { run, isNew } = await dependencies.discover(caller);
  expect(isNew).toBe(true);
  expect(run).toMatchObject({ status: "completed", units: 2, edges: 2, trigger: "api" });
  expect(deployment.events.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
    "dependencies.discoveryRequested intent",
    "dependencies.discoveryRequested success",
    "dependencies.discovered success",
  ]);
  expect(deployment.ended).toBe(1);
});

test("a message is requeued if other workers have claimed all units", async () => {
  const { company } = deployment;
  company.itemsByUnit = { s1: [app("one", { A: {} })] };
  const requeueDelays: number[] = [];
  // While the first worker reads the only unit, a second worker gets a message of the same run.
  company.beforeItem = async () => {
    await deployment.start().dependencies.handle({ runId: runId! }, caller);
    requeueDelays.push(...deployment.messages.splice(0).map(({ delaySeconds }) => delaySeconds));
  };
  await deployment.start().dependencies.handle({ mode: "full" }, caller);
  const { runId } = deployment.messages.at(-1)!.message;
  await deployment.drain();
  expect(requeueDelays).toEqual([60]);
  expect(await listNames()).toEqual(["kv-one/db one A"]);
});

test("a run whose message was moved to the poison queue ends as failed", async () => {
  const { dependencies } = deployment.start();
  await dependencies.handle({ mode: "full" }, caller);
  const { runId } = deployment.messages.at(-1)!.message;
  deployment.events.length = 0;
  // The second call finds the run ended, so it adds no audit entry.
  await dependencies.failed({ runId });
  await dependencies.failed({ runId });
  expect(await dependencies.run(runId!)).toMatchObject({
    status: "failed",
    failures: [{ source: "service", code: "internal" }],
  });
  expect(deployment.events).toEqual([
    {
      type: "dependencies.discovered",
      caller: { actor: "system", requestId: expect.any(String) },
      outcome: "failure",
      target: { type: "dependencyRun", id: runId },
      details: { mode: "full", status: "failed", failures: ["service: internal"] },
    },
  ]);
});
