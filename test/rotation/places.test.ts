import type { Company as CloudCompany } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { MatchRows } from "../../shared/rotation/match.ts";
import { isOver, ROTATIONS, type RotationRecord, Rotations } from "../../shared/rotation/rotation.ts";
import { recordKey } from "../../shared/rotation/rows.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Company } from "./consumers.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, type SimulatedCrash, VAULT } from "./world.ts";

/** Vaults that the service watches, beside `VAULT`. */
const [STRANGER, SECOND] = ["kv-stranger", "kv-second"];
const company: CloudCompany = {
  subscriptions: [
    {
      id: "11111111-1111-4111-8111-111111111111",
      name: "Shop",
      vaults: [VAULT, STRANGER, SECOND].map((name) => ({ name })),
    },
  ],
};

let azurite: TestStorage;
let accounts = 0;
let live: Awaited<ReturnType<typeof liveIn>>;
let fixture: ReturnType<typeof openMatchingFixture>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 40 }, (_, index) => `places${index}`));
  live = await liveIn({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  live.cloud.control.clearFaults();
  anew();
});

function anew(): void {
  fixture = openMatchingFixture(live, azurite.connectionString(`places${accounts++ % 40}`));
}

type App = ReturnType<(typeof fixture)["application"]>;
const keyAt = (app: App, place = app.place) =>
  fixture.control.directory.keyIdOf(app.appId, fixture.control.secretValue(place, app.name)!);
const validKeys = ({ appId }: App): string[] =>
  fixture.control.directory.secrets(appId).flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));
const begin = async (app: App, rest: Parameters<typeof fixture.requestFor>[1] = {}) =>
  await fixture.rotations.begin(fixture.requestFor(app, rest), BOSS);
const until = async (rotationId: string, isSo: (row: RotationRecord) => boolean) =>
  (await fixture.world.run(rotationId, { until: isSo })).row;
const waits = ({ needsConfirmation }: RotationRecord) => needsConfirmation;
const written = ({ publications }: Pick<RotationRecord, "publications">) =>
  publications.map(({ vaultName, state }) => `${vaultName} ${state}`);
const leftOut = ({ notUpdated }: Pick<RotationRecord, "notUpdated">) =>
  notUpdated.map(({ vaultName, confidence, reason }) => `${vaultName} ${confidence} ${reason}`);

/** Confirms as an administrator over the API, which notifies the rotation. */
async function confirm(app: App): Promise<void> {
  await fixture.confirm(app);
  await fixture.rotations.placeConfirmed(app.appId);
}

describe("a new place", () => {
  test("gets nothing although its value signs in, and is named in the answer, in an alert and in the reasons", async () => {
    const app = fixture.application();
    const thief = fixture.copy(app, STRANGER);
    await fixture.discover(app, thief);
    const row = await begin(app);
    expect([written(row), leftOut(row)]).toEqual([[`${VAULT} planned`], [`${STRANGER} certain newPlace`]]);
    const alert = `${STRANGER}/${app.name} holds the old secret, is new to this service, and was not written.`;
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(alert)]);
    const waiting = await until(row.rotationId, waits);
    expect(waiting.reasons).toEqual([
      `${STRANGER}/${app.name} holds the old secret, is new to this service and was not written. Confirm the match to have it written, or finish the rotation with force to remove the old secret anyway.`,
    ]);
    expect([keyAt(app), keyAt(app, STRANGER)]).toEqual([waiting.newKeyId, app.keyId]);
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(alert)]);
    await fixture.rotations.finish(row.rotationId, true, BOSS);
    const ended = (await fixture.world.run(row.rotationId)).row;
    expect([ended.status, validKeys(app)]).toEqual(["completed", [ended.newKeyId]]);
    expect(fixture.control.directory.signsIn(app.appId, fixture.control.secretValue(STRANGER, app.name)!)).toBe(false);
    expect(await fixture.notices("rotationFailed")).toEqual([]);
    // Without a confirmation of the copy, the next rotation does not write it either.
    fixture.control.putSecret(STRANGER, { name: app.name, value: fixture.control.secretValue(VAULT, app.name)! });
    const next = { ...app, keyId: ended.newKeyId! };
    const marked = { ...next, contentType: `${app.name}:${app.appId}:${next.keyId}` };
    await fixture.discover(marked, { ...marked, place: STRANGER });
    const again = await begin(next);
    expect([written(again), leftOut(again)]).toEqual([[`${VAULT} planned`], [`${STRANGER} certain newPlace`]]);
  });

  test("that a person confirms during the overlap is written at once, verified with its consumers, and counts from then on", async () => {
    const app = fixture.application();
    const second = fixture.copy(app, SECOND);
    await fixture.discover(app, second);
    const consumers = new Company(fixture.world);
    fixture.world.consumers = consumers;
    consumers.add("web-first", app.name, "action");
    consumers.add("web-second", app.name, "action", { vaultName: SECOND });
    const { rotationId } = await begin(app, { overlapDays: 30 });
    const overlapping = await until(rotationId, ({ status }) => status === "overlapping");
    expect(overlapping.consumers!.map(({ id }) => id)).toEqual(["web-first"]);
    await fixture.world.start().work(rotationId, "early");
    const confirmedAt = fixture.world.clock.now().getTime();
    await confirm(second);
    const back = await until(
      rotationId,
      ({ publications, status }) => publications.length === 2 && status === "overlapping",
    );
    expect(fixture.world.clock.now().getTime() - confirmedAt).toBeLessThan(DAY_MS);
    expect([written(back), leftOut(back)]).toEqual([[`${VAULT} written`, `${SECOND} written`], []]);
    expect(back.consumers!.map(({ id, state }) => `${id} ${state}`)).toEqual([
      "web-first verified",
      "web-second verified",
    ]);
    expect(await fixture.notices("rotationFailed")).toEqual([]);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, row.reasons, validKeys(app)]).toEqual(["completed", [], [row.newKeyId]]);
    expect([keyAt(app), keyAt(app, SECOND)]).toEqual([row.newKeyId, row.newKeyId]);
    // The next rotation writes both without another confirmation.
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    await fixture.discover(next, { ...next, place: SECOND });
    const again = await begin(next);
    expect([written(again).sort(), leftOut(again)]).toEqual([[`${VAULT} planned`, `${SECOND} planned`], []]);
  });

  test("that holds something else than a person said is not written, and waits until they take their word back", async () => {
    const app = fixture.application();
    const wrong = fixture.copy(app, SECOND);
    fixture.control.putSecret(SECOND, { name: app.name, value: "something else", contentType: app.contentType });
    await fixture.discover(app, wrong);
    const { rotationId } = await begin(app, { overlapDays: 30 });
    await until(rotationId, ({ status }) => status === "overlapping");
    await confirm(wrong);
    const waiting = (await fixture.world.run(rotationId)).row;
    expect(waiting).toMatchObject({ status: "needsAttention", attention: { code: "targetHoldsOther" } });
    expect(waiting.attention!.next).toMatch(/Remove the confirmation.*retry/);
    const { assetId, keyId } = wrong;
    await fixture.matches.confirm(app.appId, { assetId, keyId, confirmed: false }, BOSS);
    await fixture.rotations.retry(rotationId, BOSS);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, written(row), keyAt(app)]).toEqual(["completed", [`${VAULT} written`], row.newKeyId]);
    expect(fixture.control.secretValue(SECOND, app.name)).toBe("something else");
  });

  test("that is confirmed but can't be written needs attention until a user fixes it", async () => {
    const app = fixture.application();
    const full = fixture.copy(app, SECOND);
    const tags = Object.fromEntries(Array.from({ length: 14 }, (_, index) => [`tag-${index}`, "x"]));
    fixture.control.change(SECOND, "secrets", app.name, { tags });
    await fixture.discover(app, full);
    const { rotationId } = await begin(app, { overlapDays: 30 });
    await until(rotationId, ({ status }) => status === "overlapping");
    await confirm(full);
    const { row } = await fixture.world.run(rotationId);
    expect(row).toMatchObject({
      status: "needsAttention",
      attention: { message: expect.stringContaining("too many tags") },
    });
    fixture.control.change(SECOND, "secrets", app.name, { tags: {} });
    await fixture.rotations.retry(rotationId, BOSS);
    expect((await fixture.world.run(rotationId)).row.status).toBe("completed");
    expect(keyAt(app, SECOND)).toBe(validKeys(app)[0]);
  });

  const MOMENTS = IS_CAMPAIGN ? 40 : 4;
  test("that is confirmed is written once, at whichever call a worker crashes", async () => {
    const once = async (death?: SimulatedCrash) => {
      anew();
      const app = fixture.application();
      const second = fixture.copy(app, SECOND);
      await fixture.discover(app, second);
      const { rotationId } = await begin(app, { overlapDays: 2 });
      await until(rotationId, ({ status }) => status === "overlapping");
      await confirm(second);
      const before = fixture.world.calls.length;
      const { row, deaths } = await fixture.world.run(rotationId, death ? { death } : {});
      const where = JSON.stringify([death, SEED, row.attention]);
      expect([row.status, written(row)], where).toEqual(["completed", [`${VAULT} written`, `${SECOND} written`]]);
      expect([keyAt(app), keyAt(app, SECOND), validKeys(app)], where).toEqual([
        row.newKeyId,
        row.newKeyId,
        [row.newKeyId],
      ]);
      const rows: string[] = [];
      for await (const page of fixture.world.tables().pages(MatchRows, { partitionKey: `app:${app.appId}` }))
        for (const { vaultName, rotated } of page) rows.push(`${vaultName} ${rotated?.keyId}`);
      expect(rows.sort(), where).toEqual([VAULT, SECOND].map((vault) => `${vault} ${row.newKeyId}`));
      return { deaths, calls: fixture.world.calls.length - before };
    };
    const { calls } = await once();
    const dice = new Dice(SEED);
    let died = 0;
    for (let moment = 0; moment < MOMENTS; moment++) {
      const at = 1 + Math.floor(((moment + dice.next()) * calls) / MOMENTS);
      died += (await once({ at, how: (["before", "after", "late"] as const)[moment % 3]! })).deaths;
    }
    expect(died).toBeGreaterThan(0);
  });
});

describe("without a confirmed place and a place written by an earlier rotation", () => {
  test("the place that has held the value longest is written, and of two of one second the first by name", async () => {
    const app = fixture.application();
    const older = fixture.copy(app, STRANGER, 300);
    await fixture.discover(app, older);
    const plan = await fixture.rotations.plan(fixture.requestFor(app));
    expect([written(plan), leftOut(plan)]).toEqual([[`${STRANGER} planned`], [`${VAULT} certain newPlace`]]);
    const twins = fixture.application();
    const { name, contentType } = twins;
    const value = fixture.control.secretValue(VAULT, name)!;
    fixture.control.remove(VAULT, "secrets", name);
    for (const place of [SECOND, VAULT])
      fixture.control.putSecret(place, { name, value, contentType, createdDaysAgo: 30 });
    await fixture.discover(twins, { ...twins, place: SECOND });
    expect(written(await fixture.rotations.plan(fixture.requestFor(twins)))).toEqual([`${VAULT} planned`]);
  });

  test("a confirmed place is written, an older unconfirmed one is not", async () => {
    const app = fixture.application();
    const older = fixture.copy(app, STRANGER, 300);
    await fixture.discover(app, older);
    await fixture.confirm(app);
    const plan = await fixture.rotations.plan(fixture.requestFor(app));
    expect([written(plan), leftOut(plan)]).toEqual([[`${VAULT} planned`], [`${STRANGER} certain newPlace`]]);
  });

  test("a rotation by policy does not start, and says which place to confirm; confirmed, it starts", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.policy(app.appId);
    expect(await fixture.tick()).toEqual([app.appId]);
    const { attention } = await fixture.policies.get(app.appId);
    expect(attention).toMatchObject({
      code: "newPlace",
      message: expect.stringContaining(`${VAULT}/${app.name} holds`),
    });
    expect(attention!.remedy).toContain("Confirm the match");
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(`${VAULT}/${app.name}`)]);
    await fixture.confirm(app);
    fixture.world.pass(DAY_MS);
    await fixture.tick();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true }]);
    expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
  });
});

describe("a rotation by policy", () => {
  test("writes what a person confirmed and never a new place", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.policy(app.appId);
    const thief = fixture.copy(app, STRANGER, 300);
    await fixture.discover(app, thief);
    await fixture.tick();
    const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
    const row = await until(rotationId, waits);
    expect([written(row), leftOut(row)]).toEqual([[`${VAULT} written`], [`${STRANGER} certain newPlace`]]);
    expect(keyAt(app, STRANGER)).toBe(app.keyId);
  });

  test("takes the targets that an administrator set in it as that person's word, in the vault that they were in then", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.policy(app.appId, { targets: [app.assetId] });
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/made-anew";
    await fixture.discover(app);
    await fixture.tick();
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "noTarget" });
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    delete fixture.vaultIds[VAULT];
    await fixture.discover(app);
    fixture.world.pass(DAY_MS);
    await fixture.tick();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true }]);
  });
});

describe("a vault of the same name with another resource id", () => {
  test("makes a place new again that was confirmed, and one that a rotation wrote", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    const standing = async (one: App) => {
      const directory = (await fixture.graph.application({ appId: one.appId }))!;
      return (await fixture.matches.targetsOf(directory, one.keyId)).map((target) => target.standing);
    };
    expect(await standing(app)).toEqual(["confirmed"]);
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/made-anew";
    await fixture.discover(app);
    expect(await standing(app)).toEqual(["new"]);
    delete fixture.vaultIds[VAULT];
    await fixture.discover(app);
    const { row } = await fixture.world.run((await begin(app)).rotationId);
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    await fixture.discover(next);
    expect(await standing(next)).toEqual(["rotated"]);
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/made-anew";
    await fixture.discover(next);
    expect(await standing(next)).toEqual(["new"]);
  });
});

test("places that an earlier version of the service rotated are written without anybody's word", async () => {
  const app = fixture.application();
  const second = fixture.copy(app, SECOND);
  await fixture.discover(app, second);
  await fixture.confirm(app, second);
  const { row } = await fixture.world.run((await begin(app)).rotationId);
  expect(row.status).toBe("completed");
  // As that version left it: neither says which vault it was, and the matches know of no rotation.
  const tables = fixture.world.tables();
  await tables.modify(Rotations, ROTATIONS, recordKey(row.rotationId), (now) => ({
    ...withoutKeys(now!),
    publications: now!.publications.map(({ vaultId: _, ...publication }) => publication),
  }));
  for (const name of [VAULT, SECOND])
    await tables.modify(MatchRows, `app:${app.appId}`, `${name}|${app.name}`, (now) => {
      const { rotated, ...before } = withoutKeys(now!);
      expect(rotated).toMatchObject({ rotationId: row.rotationId, keyId: row.newKeyId });
      return before;
    });
  const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
  const thief = { ...next, place: STRANGER };
  fixture.control.putSecret(STRANGER, {
    ...thief,
    value: fixture.control.secretValue(VAULT, app.name)!,
    createdDaysAgo: 400,
  });
  await fixture.discover(next, { ...next, place: SECOND }, thief);
  const again = await begin(next);
  expect([written(again).sort(), leftOut(again)]).toEqual([
    [`${VAULT} planned`, `${SECOND} planned`],
    [`${STRANGER} certain newPlace`],
  ]);
});

describe("a compromised secret", () => {
  test("is replaced in the named places only, and ends whatever other copies and their sign-ins say", async () => {
    const app = fixture.application();
    const [thief, second] = [fixture.copy(app, STRANGER, 300), fixture.copy(app, SECOND)];
    await fixture.discover(app, thief, second);
    await fixture.confirm(second);
    const compromised = { reason: "compromised", overlapDays: 0 } as const;
    await expect(begin(app, compromised)).rejects.toMatchObject({
      code: "invalidRequest",
      errors: [{ path: "body.targets", message: expect.stringContaining("must name the vault secrets") }],
    });
    const targets = [{ vaultName: VAULT.toUpperCase(), secretName: app.name.toUpperCase() }];
    await expect(
      begin(app, { ...compromised, targets: [{ vaultName: VAULT, secretName: "other" }] }),
    ).rejects.toMatchObject({
      code: "notRotatable",
      message: expect.stringContaining(`${VAULT}/other is not a certain match`),
    });
    await expect(begin(app, { targets, updateKeyVaults: false })).rejects.toMatchObject({ code: "invalidRequest" });
    fixture.world.usage = { ...fixture.world.usage, lastSignIn: async () => fixture.world.clock.now() };
    const { rotationId } = await begin(app, { ...compromised, targets });
    await until(rotationId, ({ status }) => status === "publishing");
    await confirm(thief);
    const { row } = await fixture.world.run(rotationId);
    expect(row).toMatchObject({ status: "completed", reason: "compromised", reasons: [] });
    expect([written(row), leftOut(row).sort()]).toEqual([
      [`${VAULT} written`],
      [`${SECOND} certain notNamed`, `${STRANGER} certain notNamed`],
    ]);
    expect(validKeys(app)).toEqual([row.newKeyId]);
    const proof = createSignInProof(live.config);
    const { kind } = await proof(app.appId, fixture.control.secretValue(STRANGER, app.name)!, live.cloud.app.tenantId);
    expect(kind).not.toBe("accepted");
    expect(fixture.world.events.find(({ type }) => type === "rotation.begun")?.details).toMatchObject({
      reason: "compromised",
    });
  });
});

test("a place that its vault did not show when the rotation was planned is named so, and written once it shows it", async () => {
  const app = fixture.application();
  const second = fixture.copy(app, SECOND);
  await fixture.discover(app, second);
  await fixture.confirm(app, second);
  const first = (await fixture.world.run((await begin(app)).rotationId)).row;
  const next = { ...app, keyId: first.newKeyId!, contentType: `${app.name}:${app.appId}:${first.newKeyId}` };
  await fixture.discover(next, { ...next, place: SECOND });
  for (const kind of ["deny", "firewall"] as const) {
    fixture.control.addFault({ match: { vault: SECOND }, action: { kind } });
    const plan = await fixture.rotations.plan(fixture.requestFor(next));
    expect([written(plan), leftOut(plan)]).toEqual([[`${VAULT} planned`], [`${SECOND} likely unreadable`]]);
    if (kind === "deny") fixture.control.clearFaults();
  }
  const { rotationId } = await begin(next);
  await until(rotationId, waits);
  fixture.control.clearFaults();
  const { row } = await fixture.world.run(rotationId);
  expect([row.status, written(row)]).toEqual(["completed", [`${VAULT} written`, `${SECOND} written`]]);
  expect(isOver(row.status)).toBe(true);
});
