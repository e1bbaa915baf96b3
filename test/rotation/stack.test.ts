import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { type PlannedConsumer, unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Company, type Trouble } from "./consumers.ts";
import { keepsSecrets } from "./invariants.ts";
import { BOSS, type Death, VAULT, World } from "./world.ts";

/** In a campaign workers die at 30 moments of each scenario, and each consumer fails. */
const OWN = "kv-lifecycle-service";
const OLD = "value-before-everything";
const NEW = "value-that-is-new";

let world: World;
let azurite: TestStorage;
let company: Company;
let names = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
beforeEach(() => anew());

function anew(): void {
  world.tier = "pro";
  world.targets = [];
  world.messages.length = 0;
  company = new Company(world);
  world.consumers = company;
}

const control = () => world.cloud.control;
const secret = () => world.vaultSecret(`db-password-${++names}`, OLD, NEW);
type Asked = ReturnType<typeof secret>;
const valueAt = ({ secret: { secretName } }: Asked) => control().secretValue(VAULT, secretName);
const stateOf = (row: RotationRecord, id: string) => row.consumers!.find((one) => one.id === id)!.state;
const refused = (code: string, detail?: RegExp) =>
  expect.objectContaining({ code, ...(detail && { message: expect.stringMatching(detail) }) });

/** Consumers by kind, 40 in all. */
const KINDS: { how: PlannedConsumer["how"]; number: number }[] = [
  { how: "action", number: 20 },
  { how: "automatic", number: 12 },
  { how: "blind", number: 8 },
];

function forty(secretName: string, troubled?: { id: string; trouble: Trouble }): void {
  for (const { how, number } of KINDS) {
    for (let index = 0; index < number; index++) {
      const id = `${how}-${index}`;
      // The last one added has the smallest blast.
      const rest = { blast: number - index, ...(id === troubled?.id && { trouble: troubled.trouble }) };
      company.add(id, secretName, how, rest);
    }
  }
}

/** Checks the invariants of all consumers, however a rotation ended. */
function nobodyWentWithout(request: Asked, row: RotationRecord): void {
  for (const { id, value } of company.worked) expect([OLD, NEW], id).toContain(value);
  const held = control()
    .items(OWN, "secrets")
    .filter(({ name }) => name.includes(row.rotationId));
  expect(held).toEqual([]);
  const put = row.status === "completed" ? NEW : OLD;
  expect(valueAt(request)).toBe(put);
  for (const { id, state, how } of row.consumers!) {
    if (how === "action" && state !== "waiting") expect(company.valueOf(id), `${id} is ${state}`).toBe(put);
  }
}

const begin = async (request: Asked) => (await world.start().begin(request, BOSS)).rotationId;

test("a secret that 40 use gets a new value, and each ends as its kind says", async () => {
  const request = secret();
  forty(request.secret.secretName);
  const rotationId = await begin(request);
  const waits = (await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation })).row;
  for (const { id, how, state } of waits.consumers!) {
    expect(state, id).toBe(how === "blind" ? "unverified" : "verified");
  }
  expect(waits.reasons).toHaveLength(8);
  expect(waits.reasons[0]).toMatch(/The service can't see which value webApp blind-\d has/);
  // Smallest blast first, one after the other, each once.
  expect(company.acted).toEqual(Array.from({ length: 20 }, (_, index) => `action-${19 - index}`));
  expect(company.calls.filter(({ id }) => id.startsWith("blind"))).toEqual([]);
  await world.start().finish(rotationId, false, BOSS);
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "completed", needsConfirmation: false });
  expect(row.steps.map(({ name }) => name)).toEqual(["publish", "verify", "overlap", "cleanUp"]);
  const { tags, expires } = control()
    .items(VAULT, "secrets")
    .find(({ name }) => name === request.secret.secretName)!;
  expect(tags).toMatchObject({ owner: "shop@acme.example", "rotation-id": rotationId });
  expect(Date.parse(expires!)).toBe(Math.floor(Date.parse(row.newExpiresAt!) / 1000) * 1000);
  nobodyWentWithout(request, row);
  const began = world.events.filter(({ type, target }) => type === "rotation.begun" && target?.id === rotationId);
  const places = [`${VAULT}/${request.secret.secretName}`];
  expect(began.map(({ details }) => details)).toEqual(
    [1, 2].map(() => ({
      assetId: `${VAULT}.secret.${request.secret.secretName}`,
      expiryDays: 180,
      places,
      automatic: false,
    })),
  );
});

const TROUBLES: Trouble[] = ["denied", "never takes it", "says it can't", "throttled"];
const FAILING = Array.from({ length: 20 }, (_, index) => ({
  id: `action-${index}`,
  trouble: TROUBLES[index % TROUBLES.length]!,
})).filter((_, index) => IS_CAMPAIGN || index === 16 || index === 18);

test.each(FAILING)(
  "where $id fails ($trouble), everybody who was acted on is back on the old value",
  async (troubled) => {
    const request = secret();
    forty(request.secret.secretName, troubled);
    const { row } = await world.run(await begin(request));
    expect(row).toMatchObject({ status: "rolledBack", failure: { code: "consumerFailed" } });
    expect(row.failure!.message).toContain(troubled.id);
    // The consumers before it in the order, and the consumer itself unless it rejected the refresh.
    const refusing = troubled.trouble === "denied" || troubled.trouble === "throttled";
    const touched = (refusing ? 19 : 20) - Number(troubled.id.split("-")[1]);
    expect(row.consumers!.filter(({ touchedAt }) => touchedAt !== undefined)).toHaveLength(touched);
    for (const one of row.consumers!) {
      const untouched = one.id === troubled.id ? "failed" : one.how === "blind" ? "unverified" : "waiting";
      const expected = one.touchedAt !== undefined ? "restored" : untouched;
      expect(one.state, one.id).toBe(expected);
    }
    nobodyWentWithout(request, row);
  },
);

test("only those that are included are touched, and what they would break is refused before anything is written", async () => {
  const request = secret();
  const { secretName } = request.secret;
  company.add("in-1", secretName, "action");
  company.add("in-2", secretName, "automatic");
  company.add("out-1", secretName, "action");
  company.add("out-2", secretName, "blind");
  company.add("pinned", secretName, "willBreak");
  control().resetCounts();
  await expect(begin(request)).rejects.toEqual(refused("willBreak", /pinned.*includeResources/));
  await expect(begin({ ...request, includeResources: ["in-1", "no-one"] })).rejects.toEqual(
    refused("invalidRequest", /no-one/),
  );
  expect(Object.keys(control().counts()).filter((call) => /setSecret/.test(call))).toEqual([]);
  const { row } = await world.run(await begin({ ...request, includeResources: ["IN-1", "in-2"] }));
  expect(row.status).toBe("completed");
  expect(new Set(company.calls.map(({ id }) => id))).toEqual(new Set(["in-1", "in-2"]));
  expect(row.consumers!.map(({ id, included, state }) => [id, included, state])).toEqual([
    ["in-1", true, "verified"],
    ["in-2", true, "verified"],
    ["out-1", false, "unverified"],
    ["out-2", false, "unverified"],
    ["pinned", false, "unverified"],
  ]);
});

test("without verification each consumer is refreshed once and none is restored", async () => {
  const request = { ...secret(), skipVerification: true };
  company.add("good", request.secret.secretName, "action", { blast: 1 });
  company.add("slow", request.secret.secretName, "action", { blast: 2, trouble: "never takes it" });
  const rotationId = await begin(request);
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons).toEqual(["webApp slow still holds the old value."]);
  expect(company.acted).toEqual(["good", "slow"]);
  company.readers.get("slow")!.trouble = undefined;
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(refused("notFinishable"));
  await company.refresh(row.consumers![1]!, {
    ...request.secret,
    version: row.publications[0]!.writtenVersion!,
    restart: false,
    value: async () => NEW,
  });
  await world.start().finish(rotationId, false, BOSS);
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("one that can't be brought back is shown to a person, after all others were", async () => {
  const request = secret();
  const { secretName } = request.secret;
  for (const [index, id] of ["first", "second", "last"].entries()) {
    company.add(id, secretName, "action", { blast: index, ...(id === "last" && { trouble: "never takes it" }) });
  }
  const rotationId = await begin(request);
  await world.run(rotationId, { until: (row) => stateOf(row, "last") === "acted" });
  company.readers.get("first")!.trouble = "denied";
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "consumerNotRestored" } });
  expect(row.attention!.done).toMatch(
    /Refreshed to take it: webApp first\..*Consumers with the previous value again: webApp second, webApp last/,
  );
  expect(company.valueOf("first")).toBe(NEW);
  company.readers.get("first")!.trouble = undefined;
  await world.start().retry(rotationId, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("rolledBack");
  nobodyWentWithout(request, ended);
});

test("more consumers than a rotation's row can hold are refused before anything is written", async () => {
  const request = secret();
  const { vaultName, secretName } = request.secret;
  const many = Array.from({ length: 1000 }, (_, index): PlannedConsumer => {
    const id = `/subscriptions/${"1".repeat(36)}/resourceGroups/shop/providers/Microsoft.Web/sites/shop-backend-${index}`;
    const one = { id, kind: "webApp", name: `shop-backend-${index}`, vaultName, secretName, evidence: "DB_PASSWORD" };
    return { ...one, how: "action", slowestSeconds: 0, blast: 1 };
  });
  world.consumers = { ...unknownConsumers(), of: async () => ({ consumers: many, coverage: [] }) };
  await expect(begin(request)).rejects.toEqual(refused("notRotatable", /^1000 consumers/));
  expect(valueAt(request)).toBe(OLD);
});

test("one that can never be brought back is left by a person's word, and blocks no other rotation", async () => {
  const request = secret();
  const { secretName } = request.secret;
  company.add("gone", secretName, "action", { blast: 1, copy: true });
  company.add("last", secretName, "action", { blast: 2, trouble: "never takes it" });
  const { rotationId } = await world.start().begin(request, BOSS);
  await world.run(rotationId, { until: (row) => stateOf(row, "last") === "acted" });
  company.readers.get("gone")!.trouble = "denied";
  const { row } = await world.run(rotationId);
  expect(row).toMatchObject({ status: "needsAttention", attention: { code: "consumerNotRestored" } });
  await expect(world.start().finish(rotationId, false, BOSS)).rejects.toEqual(refused("notFinishable", /webApp gone/));
  await world.start().finish(rotationId, true, BOSS);
  const ended = (await world.run(rotationId)).row;
  expect(ended.status).toBe("rolledBack");
  expect([stateOf(ended, "gone"), stateOf(ended, "last")]).toEqual(["left", "restored"]);
  expect(ended.notes.join(" ")).toMatch(/Left as they are by a person: webApp gone/);
  expect(valueAt(request)).toBe(OLD);
  company.readers.delete("last");
  company.readers.get("gone")!.trouble = undefined;
  expect((await world.run(await begin(request))).row.status).toBe("completed");
});

test("an application's consumers are refreshed too, and one left out keeps the old secret alive", async () => {
  const app = world.application(`shop-${++names}`);
  const [place] = app.places as [string];
  company.add("included", place, "action");
  company.add("left-out", place, "action");
  const rotationId = (await world.start().begin({ ...app.request, includeResources: ["included"] }, BOSS)).rotationId;
  const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  expect(row.reasons).toEqual(["webApp left-out still holds the old value."]);
  expect(company.acted).toEqual(["included"]);
  const used = (id: string) => control().directory.keyIdOf(app.appId, company.valueOf(id));
  expect([used("included"), used("left-out")]).toEqual([row.newKeyId, app.keyId]);
  const left = row.consumers!.find(({ id }) => id === "left-out")!;
  await company.refresh(left, {
    ...left,
    version: row.publications[0]!.writtenVersion!,
    restart: false,
    value: async () => "",
  });
  expect((await world.run(rotationId)).row.status).toBe("completed");
});

test("a rollback keeps the new secret of an application while a consumer may hold it", async () => {
  const live = (appId: string) =>
    control()
      .directory.secrets(appId)
      .filter(({ removedAt }) => removedAt === undefined);
  const app = world.application(`blind-${++names}`);
  company.add("nobody-sees", app.places[0]!, "blind");
  company.add("takes-its-time", app.places[0]!, "automatic", { slowestSeconds: 7200 });
  company.add("fails", app.places[0]!, "action", { trouble: "says it can't" });
  company.readers.get("nobody-sees")!.planned.slowestSeconds = 60;
  const { row } = await world.run((await world.start().begin(app.request, BOSS)).rotationId);
  expect(row).toMatchObject({ status: "rolledBack", attempts: [{ state: "left" }] });
  expect(row.notes.join(" ")).toMatch(/not removed.*nobody-sees/);
  expect(live(app.appId)).toHaveLength(2);
  // Without the blind consumer the secret is removed as soon as the slow one has the old value again.
  company.readers.delete("nobody-sees");
  const other = world.application(`slow-${++names}`);
  company.readers.clear();
  company.add("takes-its-time", other.places[0]!, "automatic", { slowestSeconds: 7200 });
  const { rotationId } = await world.start().begin(other.request, BOSS);
  await world.run(rotationId, { until: (now) => stateOf(now, "takes-its-time") === "verified" });
  await world.start().cancel(rotationId, BOSS);
  const at = world.clock.now().getTime();
  const ended = (await world.run(rotationId)).row;
  expect(ended).toMatchObject({ status: "cancelled", attempts: [{ state: "removed" }] });
  expect(Date.parse(ended.endedAt!) - at).toBeGreaterThan(HOUR_MS / 2);
  expect(control().directory.keyIdOf(other.appId, company.valueOf("takes-its-time"))).toBe(other.keyId);
  expect(live(other.appId)).toHaveLength(1);
});

test("cancelled in its overlap, a vault's secret and those who use it are as before", async () => {
  const request = { ...secret(), overlapDays: 7 };
  company.add("web", request.secret.secretName, "action");
  const rotationId = await begin(request);
  await world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  expect(company.valueOf("web")).toBe(NEW);
  await expect(begin(request)).rejects.toMatchObject({ code: "rotationUnfinished", members: { rotationId } });
  await world.start().cancel(rotationId, BOSS);
  const { row } = await world.run(rotationId);
  expect(row.status).toBe("cancelled");
  expect(stateOf(row, "web")).toBe("restored");
  nobodyWentWithout(request, row);
});

test("a value is held before its rotation is written, and removed where that never happens", async () => {
  const held = () =>
    control()
      .items(OWN, "secrets")
      .filter(({ name }) => name.startsWith("rotation-"));
  let begun = 0;
  for (let at = 1; begun < 3; at++) {
    for (const how of ["before", "after"] as const) {
      const request = secret();
      try {
        const { rotationId } = await world.start({ at, how }).begin(request, BOSS);
        expect((await world.run(rotationId)).row.status).toBe("completed");
        begun++;
      } catch (error) {
        expect(String(error)).toContain("Died");
        const asset = `${VAULT}.secret.${request.secret.secretName}`;
        const unfinished = await world.start().unfinishedOf(asset);
        if (unfinished !== undefined) await world.run(unfinished);
      }
    }
    expect(at).toBeLessThan(40);
  }
  world.pass(2 * HOUR_MS);
  await world.start().wake();
  expect(held()).toEqual([]);
  // A request that stored a held copy may be about to store its rotation, for up to an hour.
  for (let at = 1; held().length === 0; at++)
    await world
      .start({ at, how: "after" })
      .begin(secret(), BOSS)
      .catch(() => {});
  world.pass(HOUR_MS - MINUTE_MS);
  await world.start().wake();
  expect(held()).toHaveLength(1);
  world.pass(2 * MINUTE_MS);
  await world.start().wake();
  expect(held()).toEqual([]);
});

/** Moments at which a worker crashes. Another one then continues. */
const MOMENTS = IS_CAMPAIGN ? 30 : 2;

test.each(["completed", "rolledBack"] as const)(
  "a rotation that ends %s refreshes all consumers correctly after a crash at any call",
  async (ends) => {
    const once = async (death?: Death) => {
      anew();
      const request = secret();
      const { secretName } = request.secret;
      for (const [index, id] of ["a", "b", "c", "d"].entries()) company.add(id, secretName, "action", { blast: index });
      company.add("own-time", secretName, "automatic");
      if (ends === "rolledBack") company.readers.get("d")!.trouble = "never takes it";
      const before = world.calls.length;
      const { row, deaths } = await world.run(await begin(request), death ? { death } : {});
      expect(row.status, JSON.stringify([death, row.attention])).toBe(ends);
      for (const { id, how, state } of row.consumers!) {
        const back = how === "action" ? "restored" : "waiting";
        expect(state, `${id} ${JSON.stringify(death)}`).toBe(ends === "completed" ? "verified" : back);
      }
      nobodyWentWithout(request, row);
      return { deaths, calls: world.calls.length - before };
    };
    const { calls } = await once();
    const dice = new Dice(SEED);
    let died = 0;
    for (let moment = 0; moment < MOMENTS; moment++) {
      const at = 1 + Math.floor(((moment + dice.next()) * calls) / MOMENTS);
      died += (await once({ at, how: (["before", "after", "late"] as const)[moment % 3]! })).deaths;
    }
    expect(died).toBeGreaterThan(0);
    if (IS_CAMPAIGN) console.log(`${ends}: ${died} crashes, ${calls} calls of a rotation without one`);
  },
);

test("no value was written down on the way", () => keepsSecrets(world, azurite.connectionString(), [OLD, NEW]));
