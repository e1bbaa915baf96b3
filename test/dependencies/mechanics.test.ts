import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createReferenceNotices } from "../../shared/alerts/reference-notices.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import type { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  app,
  caller,
  Deployment,
  denied,
  everything,
  notSeen,
  resolved,
  SERVICE_VAULT,
  timedOut,
  unresolved,
} from "./discovery-fixture.ts";

let storage: TestStorage;
let account = 0;
let deployment: Deployment;

beforeAll(async () => {
  storage = await openStorage(Array.from({ length: 20 }, (_, index) => `deps${index}`));
});
afterAll(() => storage?.stop());
beforeEach(() => {
  deployment = new Deployment(storage.connectionString(`deps${account++}`));
});

const list = async (filter = {}) => (await deployment.start().fixture.list(filter, everything)).page.items;
const names = async (filter = {}) =>
  (await list(filter)).map(({ edge }) => `${edge.vaultName}/${edge.name} ${edge.resource.name} ${edge.evidence}`);

test("a run reads every unit, and one that found nothing changed writes no edge", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {}, B: { secret: "key" } })], s2: [app("two", { A: { vault: "kv-two" } })] };
  const first = await deployment.run();
  expect(first).toMatchObject({ status: "completed", units: 2, unitsFailed: 0, resources: 2, edges: 3, changed: 2 });
  expect(await names()).toEqual(["kv-one/db one A", "kv-one/key one B", "kv-two/db two A"]);
  const before = await list();
  const again = await deployment.run();
  expect(again).toMatchObject({ status: "completed", changed: 0, edges: 3 });
  const after = await list();
  expect(after.map(({ edge }) => edge.toldAt)).toEqual(before.map(({ edge }) => edge.toldAt));
  // The resource is confirmed again nevertheless.
  expect(after.every(({ seenAt }, index) => seenAt > before[index]!.seenAt)).toBe(true);
});

test("changed dependencies are written, missing ones are deleted, and a removed unit is deleted completely", async () => {
  const { company } = deployment;
  company.units_ = {
    s1: [app("one", { A: {}, B: {} }), app("two", { A: {} })],
    s2: [app("three", { A: {} }), notSeen("/subscriptions/s2/sites/four")],
  };
  await deployment.run();
  company.units_ = { s1: [app("one", { A: { pinned: "v1" }, C: {} })] };
  expect(await deployment.run()).toMatchObject({ status: "completed", units: 2, edges: 2, resources: 1, notSeen: 0 });
  expect(await names()).toEqual(["kv-one/db one A", "kv-one/db one C"]);
  expect(await names({ pinned: true })).toEqual(["kv-one/db one A"]);
  const { page, coverage } = await deployment.start().fixture.list({}, everything);
  expect([page.total, coverage.total]).toEqual([2, 0]);
});

test("changes are asked for since the last reading, and take nothing away that they don't name", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {} }), app("two", { A: {} })] };
  await deployment.run("changes");
  // Never read before: in full.
  expect(company.readings.at(-1)!.since).toBeUndefined();
  company.units_ = { s1: [{ gone: "/subscriptions/s1/sites/one" }, app("three", { A: {} })] };
  await deployment.run("changes");
  const { since } = company.readings.at(-1)!;
  expect(Date.now() - since!.getTime()).toBeGreaterThan(14 * 60_000);
  expect(Date.now() - since!.getTime()).toBeLessThan(20 * 60_000);
  expect((await names()).sort()).toEqual(["kv-one/db three A", "kv-one/db two A"]);
});

test("resources that can't be read stay unchanged, have the time of their last confirmation, and are listed", async () => {
  const { company } = deployment;
  company.units_ = {
    s1: [app("one", { A: {} }), app("two", { A: {}, B: {} }), app("three", { A: {} })],
    s2: [app("four", { A: {} })],
  };
  await deployment.run();
  const before = new Map((await list()).map(({ edge, seenAt }) => [edge.resource.name, seenAt]));
  company.units_ = {
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
  const found = await list();
  const at = (name: string) =>
    found.filter(({ edge }) => edge.resource.name === name).map(({ seenAt }) => seenAt > before.get(name)!);
  expect({ one: at("one"), two: at("two").sort(), three: at("three"), four: at("four") }).toEqual({
    one: [true],
    two: [false, true],
    three: [false],
    four: [false],
  });
  const coverage = await deployment.start().fixture.coverage(everything);
  expect(coverage.items.map(({ scope }) => scope).sort()).toEqual([
    "/subscriptions/s1/sites/TWO",
    "/subscriptions/s1/sites/three",
    "s2",
  ]);
  company.units_ = { s1: [app("one", { A: {} }), app("two", { A: {} })], s2: [app("four", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ status: "completed", notSeen: 0, edges: 3 });
  expect((await names()).sort()).toEqual(["kv-one/db four A", "kv-one/db one A", "kv-one/db two A"]);
});

test("a unit that takes longer than there is time is read in parts, as if it were in one", async () => {
  const id = (name: string) => `/subscriptions/s1/sites/${name}`;
  const at = (place: string) => ({ place });
  const before = ["one", "two", "three", "four", "five", "left"].map((name) => app(name, { A: {}, B: {} }));
  const now = [
    [app("one", { A: {} }), at("1"), notSeen(id("two")), at("2")],
    [app("three", { A: {}, C: {} }), at("3")],
    [app("four", { A: {} }, { partial: true }), notSeen(id("four")), notSeen(id("five"))],
  ];
  const earlier = (...names: string[]) => names.map((name) => ({ earlier: id(name) }));
  const parts: Record<string, (ReadingItem | CloudFailure)[]> = {
    "": [...now[0]!, timedOut()],
    2: [...earlier("one", "two"), ...now[1]!, timedOut()],
    3: [...earlier("one", "two", "three"), ...now[2]!],
  };
  const whole = new Deployment(storage.connectionString(`deps${account++}`));
  for (const { company } of [deployment, whole]) company.units_ = { s1: [...before, notSeen(id("three"))] };
  for (const one of [deployment, whole]) await one.run();
  whole.company.units_ = { s1: now.flat() };
  const expected = await whole.run();
  let started: number | undefined;
  deployment.company.told = (_, after = "") => {
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
  expect(await deployment.standing()).toEqual(await whole.standing());
  await deployment.run("changes");
  expect(deployment.company.readings.at(-1)!.since!.getTime()).toBeLessThanOrEqual(started! - 15 * 60_000);

  // Without a step forward it has failed, and takes nothing away.
  parts[3] = [...earlier("one", "two", "three"), timedOut()];
  const failed = { status: "failed", edges: run.edges, failures: [{ code: "timedOut" }] };
  expect(await deployment.run()).toMatchObject(failed);
});

test("a source whose units can't be listed loses none of them, and says so until they can", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {} })] };
  await deployment.run();
  company.unlistable = denied();
  expect(await deployment.run()).toMatchObject({ status: "failed", units: 0, edges: 1 });
  const { coverage } = await deployment.start().fixture.list({}, everything);
  expect(coverage).toMatchObject({ total: 1, items: [{ scope: "azure", code: "accessDenied" }] });
  company.unlistable = undefined;
  expect(await deployment.run()).toMatchObject({ status: "completed", edges: 1, notSeen: 0 });
});

test("before anything was read the coverage says so", async () => {
  const { coverage, page } = await deployment.start().fixture.list({}, everything);
  expect(page).toMatchObject({ items: [], total: 0 });
  expect(coverage).toMatchObject({ total: 1, items: [{ code: "neverRead" }] });
});

test("an unresolved reference is reported once, and again after it was resolved in between", async () => {
  const { company } = deployment;
  const known = async () => {
    const found: { id: string; still: boolean }[] = [];
    for await (const page of deployment.start().fixture.references.unresolved(new Date(0)))
      for (const one of page) found.push({ id: one.unresolved.id, still: (await one.currentEdge()) !== undefined });
    return found;
  };
  company.units_ = { s1: [app("one", { A: resolved, B: unresolved }), app("two", { A: {} })] };
  await deployment.run();
  expect(await known()).toMatchObject([{ still: true }]);
  expect(deployment.compliance).toEqual([{ vaultName: "kv-one", assets: ["secret.db"] }]);
  await deployment.run();
  expect(await known()).toHaveLength(1);
  expect(deployment.compliance).toHaveLength(1);
  company.units_ = { s1: [app("one", { A: resolved, B: resolved })] };
  await deployment.run();
  expect(await known()).toMatchObject([{ still: false }]);
  company.units_ = { s1: [app("one", { A: resolved, B: unresolved })] };
  await deployment.run();
  const again = await known();
  expect(again.map(({ still }) => still)).toEqual([true, true]);
  expect(new Set(again.map(({ id }) => id)).size).toBe(2);
  expect(deployment.compliance).toHaveLength(3);
  const words = [];
  const source = createReferenceNotices(deployment.start().fixture.references);
  for await (const page of source.notices("referenceUnresolved", new Date(0)))
    for (const one of page) words.push([one.id, one.at !== undefined, await one.notice()]);
  expect(words).toEqual(
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
  const references = await deployment.start().fixture.references.of("KV-one");
  expect(references.map(({ asset, resolved }) => `${asset} ${resolved}`).sort()).toEqual([
    "secret.db false",
    "secret.db true",
  ]);
});

test("a walk by cursor yields everything once, with a filter too, and takes no cursor of other filters", async () => {
  const { company } = deployment;
  const settings = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`S${at}`, {}]));
  company.units_ = { s1: [app("one", settings(7)), app("two", settings(4), { environment: "test" })] };
  await deployment.run();
  const { fixture } = deployment.start();
  const walk = async (filter: object, limit: number) => {
    const found: string[] = [];
    const totals = new Set<number | null>();
    let cursor: string | undefined;
    do {
      const { page } = await fixture.list(filter, { limit, offset: 0, cursor });
      found.push(...page.items.map(({ edge }) => `${edge.resource.name} ${edge.evidence}`));
      totals.add(page.total);
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(new Set(found).size).toBe(found.length);
    return { found: found.length, totals: [...totals] };
  };
  expect(await walk({}, 3)).toEqual({ found: 11, totals: [11] });
  expect(await walk({ vault: "kv-one" }, 20)).toEqual({ found: 11, totals: [11] });
  expect(await walk({ environment: "TEST" }, 3)).toEqual({ found: 4, totals: [4, null] });
  const { page } = await fixture.list({}, { limit: 3, offset: 9, cursor: undefined });
  expect([page.items.length, page.nextCursor, page.total]).toEqual([2, null, 11]);
  const other = await fixture.list({}, { limit: 3, offset: 0, cursor: undefined });
  const wrong = fixture.list({ vault: "kv-one" }, { limit: 3, offset: 0, cursor: other.page.nextCursor! });
  await expect(wrong).rejects.toMatchObject({ code: "invalidCursor" });
});

test("the service's own key vault is no subject", async () => {
  deployment.company.units_ = { s1: [app("one", { A: { vault: SERVICE_VAULT.toUpperCase() }, B: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 1 });
  expect(await names()).toEqual(["kv-one/db one B"]);
});

test("a resource of more edges than a transaction takes is written, changed and taken away", async () => {
  const { company } = deployment;
  const many = (count: number, from = 0) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`S${index + from}`, { secret: `n${index}` }]));
  company.units_ = { s1: [app("big", many(250)), app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 251, changed: 2 });
  company.units_ = { s1: [app("big", many(250, 100)), app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 251, changed: 1 });
  expect((await list()).filter(({ edge }) => edge.evidence === "S0")).toEqual([]);
  company.units_ = { s1: [app("small", { A: {} })] };
  expect(await deployment.run()).toMatchObject({ edges: 1, resources: 1, changed: 1 });
  expect(await names()).toEqual(["kv-one/db small A"]);
});

test("two workers at once: what the slow one still writes after the other is refused", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {} })] };
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
      company.units_ = { s1: [app("one", { A: { pinned: "new" } })] };
      await deployment.run();
    },
  };
  const late = readUnit(source, "s1", { mode: "full", runId: "slow", owner: "slow" }, deps);
  await expect(late).rejects.toMatchObject({ name: "RowChanged" });
  expect((await list()).map(({ edge }) => edge.pinned)).toEqual(["new"]);
});

test("one run at a time; without a licence none begins, and one that began is finished", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {} })] };
  const { fixture } = deployment.start();
  await fixture.handle({ mode: "full" }, caller);
  await fixture.handle({ mode: "changes" }, caller);
  expect(new Set(deployment.messages.map(({ message }) => message.runId)).size).toBe(1);
  deployment.licensed = false;
  await deployment.drain();
  expect(await names()).toHaveLength(1);
  company.units_ = { s1: [] };
  await fixture.handle({ mode: "full" }, caller);
  expect(deployment.messages).toEqual([]);
  expect(await names()).toHaveLength(1);
  expect(deployment.events.at(-1)).toMatchObject({
    type: "dependencies.discovered",
    outcome: "refused",
    details: { reason: "licenseRequired" },
  });
});

test("a request returns the run after its end, and its audit entries name the caller and the result", async () => {
  deployment.company.units_ = { s1: [app("one", { A: {} })], s2: [app("two", { A: {} })] };
  const { fixture } = deployment.start();
  const { run, isNew } = await fixture.discover(caller);
  expect(isNew).toBe(true);
  expect(run).toMatchObject({ status: "completed", units: 2, edges: 2, trigger: "api" });
  expect(deployment.events.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
    "dependencies.discoveryRequested intent",
    "dependencies.discoveryRequested success",
    "dependencies.discovered success",
  ]);
  expect(deployment.ended).toBe(1);
});

test("a message that finds all units taken is sent again later", async () => {
  const { company } = deployment;
  company.units_ = { s1: [app("one", { A: {} })] };
  const again: number[] = [];
  company.before = async () => {
    await deployment.start().fixture.handle({ runId: runId! }, caller);
    again.push(...deployment.messages.splice(0).map(({ delaySeconds }) => delaySeconds));
  };
  await deployment.start().fixture.handle({ mode: "full" }, caller);
  const { runId } = deployment.messages.at(-1)!.message;
  await deployment.drain();
  expect(again).toEqual([60]);
  expect(await names()).toEqual(["kv-one/db one A"]);
});

test("a run whose message failed for good is over, and is entered as failed", async () => {
  const { fixture } = deployment.start();
  await fixture.handle({ mode: "full" }, caller);
  const { runId } = deployment.messages.at(-1)!.message;
  deployment.events.length = 0;
  await fixture.failed({ runId });
  await fixture.failed({ runId });
  expect(await fixture.run(runId!)).toMatchObject({
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
