import type { Company as CloudCompany } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_MS, DAY_SECONDS } from "../../shared/platform/time.ts";
import { MatchRows } from "../../shared/rotation/match.ts";
import { isOver, ROTATIONS, type RotationRecord, Rotations } from "../../shared/rotation/rotation.ts";
import { recordKey } from "../../shared/rotation/rows.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, type SimulatedCrash, VAULT } from "./world.ts";

/**
 * Tests of which vault secrets ("places") a rotation writes. A place that stores the old secret is written only if a user
 * confirmed it or an earlier rotation wrote it. Another place is new: a thief could have copied the value and its tags there.
 */

// Vaults that the service watches besides `VAULT`. A thief owns the stranger's vault.
const [STRANGER_VAULT, SECOND_VAULT] = ["kv-stranger", "kv-second"];
const company: CloudCompany = {
  subscriptions: [
    {
      id: "11111111-1111-4111-8111-111111111111",
      name: "Shop",
      vaults: [VAULT, STRANGER_VAULT, SECOND_VAULT].map((name) => ({ name })),
    },
  ],
};

let azurite: TestStorage;
let accountIndex = 0;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 40 }, (_, index) => `places${index}`));
  live = await startTestCloud({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  live.cloud.control.clearFaults();
  resetFixture();
});

/** Opens a fixture on the next account. A campaign has more crashes than accounts, and so uses accounts again. */
function resetFixture(): void {
  fixture = openMatchingFixture(live, azurite.connectionString(`places${accountIndex++ % 40}`));
}

type App = ReturnType<(typeof fixture)["addApplication"]>;
const keyIdInVault = (app: App, vaultName = app.vaultName) =>
  fixture.control.directory.keyIdOf(app.appId, fixture.control.secretValue(vaultName, app.name)!);
const validKeyIds = ({ appId }: App): string[] =>
  fixture.control.directory.secrets(appId).flatMap(({ keyId, removedAt }) => (removedAt === undefined ? [keyId] : []));
const startRotation = async (app: App, rest: Parameters<typeof fixture.requestFor>[1] = {}) =>
  await fixture.rotations.begin(fixture.requestFor(app, rest), BOSS);
const runUntil = async (rotationId: string, condition: (row: RotationRecord) => boolean) =>
  (await fixture.world.run(rotationId, { until: condition })).row;
const waitsForConfirmation = ({ needsConfirmation }: RotationRecord) => needsConfirmation;
/** Returns the places that the rotation writes, as `<vault> <state>`. */
const publicationStates = ({ publications }: Pick<RotationRecord, "publications">) =>
  publications.map(({ vaultName, state }) => `${vaultName} ${state}`);
/**
 * Returns the places that the rotation does not write, as `<vault> <confidence> <reason>`. Confidence: how certain it is that the
 * place stores the old secret (`certain`, `likely`).
 */
const skippedPlaces = ({ notUpdated }: Pick<RotationRecord, "notUpdated">) =>
  notUpdated.map(({ vaultName, confidence, reason }) => `${vaultName} ${confidence} ${reason}`);

/** Confirms as an administrator over the API, which notifies the rotation. */
async function confirm(app: App): Promise<void> {
  await fixture.confirm(app);
  await fixture.rotations.placeReviewed(app.appId);
}

describe("a new place", () => {
  test("is not written, and is reported in the response, an alert and the reasons", async () => {
    const app = fixture.addApplication();
    const thief = fixture.copySecretTo(app, STRANGER_VAULT);
    await fixture.discover(app, thief);
    const row = await startRotation(app);
    expect([publicationStates(row), skippedPlaces(row)]).toEqual([
      [`${VAULT} planned`],
      [`${STRANGER_VAULT} certain newPlace`],
    ]);
    const alert = `${STRANGER_VAULT}/${app.name} stores the old secret. No user confirmed this place, so the rotation does not write the new secret there.`;
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(alert)]);
    const waiting = await runUntil(row.rotationId, waitsForConfirmation);
    expect(waiting.reasons).toEqual([
      `${STRANGER_VAULT}/${app.name} stores the old secret, is new to this service and was not updated. Confirm the match to have it updated, or finish the rotation with force to delete the old secret anyway.`,
    ]);
    expect([keyIdInVault(app), keyIdInVault(app, STRANGER_VAULT)]).toEqual([waiting.newKeyId, app.keyId]);
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(alert)]);
    await fixture.rotations.finish(row.rotationId, true, BOSS);
    const ended = (await fixture.world.run(row.rotationId)).row;
    expect([ended.status, validKeyIds(app)]).toEqual(["completed", [ended.newKeyId]]);
    expect(fixture.control.directory.signsIn(app.appId, fixture.control.secretValue(STRANGER_VAULT, app.name)!)).toBe(
      false,
    );
    expect(await fixture.notices("rotationFailed")).toEqual([]);
    // Without a confirmation of the copy, the next rotation does not write it either.
    fixture.control.putSecret(STRANGER_VAULT, { name: app.name, value: fixture.control.secretValue(VAULT, app.name)! });
    const next = { ...app, keyId: ended.newKeyId! };
    const marked = { ...next, contentType: `${app.name}:${app.appId}:${next.keyId}` };
    await fixture.discover(marked, { ...marked, vaultName: STRANGER_VAULT });
    const again = await startRotation(next);
    expect([publicationStates(again), skippedPlaces(again)]).toEqual([
      [`${VAULT} planned`],
      [`${STRANGER_VAULT} certain newPlace`],
    ]);
  });

  test("that is confirmed during the overlap is written at once with its consumers", async () => {
    const app = fixture.addApplication();
    const second = fixture.copySecretTo(app, SECOND_VAULT);
    await fixture.discover(app, second);
    const consumers = new SimulatedConsumers(fixture.world);
    fixture.world.consumers = consumers;
    consumers.add("web-first", app.name, "action");
    consumers.add("web-second", app.name, "action", { vaultName: SECOND_VAULT });
    const { rotationId } = await startRotation(app, { overlapDays: 30 });
    const overlapping = await runUntil(rotationId, ({ status }) => status === "overlapping");
    expect(overlapping.consumers!.map(({ id }) => id)).toEqual(["web-first"]);
    // A message before the rotation is due has no effect.
    await fixture.world.start().work(rotationId, "early");
    const confirmedAt = fixture.world.clock.now().getTime();
    await confirm(second);
    const back = await runUntil(
      rotationId,
      ({ publications, status }) => publications.length === 2 && status === "overlapping",
    );
    expect(fixture.world.clock.now().getTime() - confirmedAt).toBeLessThan(DAY_MS);
    expect([publicationStates(back), skippedPlaces(back)]).toEqual([
      [`${VAULT} written`, `${SECOND_VAULT} written`],
      [],
    ]);
    expect(back.consumers!.map(({ id, state }) => `${id} ${state}`)).toEqual([
      "web-first verified",
      "web-second verified",
    ]);
    expect(await fixture.notices("rotationFailed")).toEqual([]);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, row.reasons, validKeyIds(app)]).toEqual(["completed", [], [row.newKeyId]]);
    expect([keyIdInVault(app), keyIdInVault(app, SECOND_VAULT)]).toEqual([row.newKeyId, row.newKeyId]);
    // The next rotation writes both without another confirmation.
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    await fixture.discover(next, { ...next, vaultName: SECOND_VAULT });
    const again = await startRotation(next);
    expect([publicationStates(again).sort(), skippedPlaces(again)]).toEqual([
      [`${VAULT} planned`, `${SECOND_VAULT} planned`],
      [],
    ]);
  });

  test("that is confirmed but stores another value is not written", async () => {
    const app = fixture.addApplication();
    const wrong = fixture.copySecretTo(app, SECOND_VAULT);
    fixture.control.putSecret(SECOND_VAULT, { name: app.name, value: "something else", contentType: app.contentType });
    await fixture.discover(app, wrong);
    const { rotationId } = await startRotation(app, { overlapDays: 30 });
    await runUntil(rotationId, ({ status }) => status === "overlapping");
    await confirm(wrong);
    const waiting = (await fixture.world.run(rotationId)).row;
    expect(waiting).toMatchObject({ status: "needsAttention", attention: { code: "targetHoldsOther" } });
    expect(waiting.attention!.next).toMatch(/Remove the confirmation.*retry/);
    const { assetId, keyId } = wrong;
    await fixture.matches.confirm(app.appId, { assetId, keyId, confirmed: false }, BOSS);
    await fixture.rotations.retry(rotationId, BOSS);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, publicationStates(row), keyIdInVault(app)]).toEqual([
      "completed",
      [`${VAULT} written`],
      row.newKeyId,
    ]);
    expect(fixture.control.secretValue(SECOND_VAULT, app.name)).toBe("something else");
  });

  test("that is confirmed but can't be written needs attention until a user fixes it", async () => {
    const app = fixture.addApplication();
    const full = fixture.copySecretTo(app, SECOND_VAULT);
    // Key Vault allows 15 tags for each secret, and a rotation needs two.
    const tags = Object.fromEntries(Array.from({ length: 14 }, (_, index) => [`tag-${index}`, "x"]));
    fixture.control.change(SECOND_VAULT, "secrets", app.name, { tags });
    await fixture.discover(app, full);
    const { rotationId } = await startRotation(app, { overlapDays: 30 });
    await runUntil(rotationId, ({ status }) => status === "overlapping");
    await confirm(full);
    const { row } = await fixture.world.run(rotationId);
    expect(row).toMatchObject({
      status: "needsAttention",
      attention: { message: expect.stringContaining("too many tags") },
    });
    fixture.control.change(SECOND_VAULT, "secrets", app.name, { tags: {} });
    await fixture.rotations.retry(rotationId, BOSS);
    expect((await fixture.world.run(rotationId)).row.status).toBe("completed");
    expect(keyIdInVault(app, SECOND_VAULT)).toBe(validKeyIds(app)[0]);
  });

  const CRASH_COUNT = IS_CAMPAIGN ? 40 : 4;
  test("that is confirmed is written after a worker crash", async () => {
    const rotateWithCrash = async (crash?: SimulatedCrash) => {
      resetFixture();
      const app = fixture.addApplication();
      const second = fixture.copySecretTo(app, SECOND_VAULT);
      await fixture.discover(app, second);
      const { rotationId } = await startRotation(app, { overlapDays: 2 });
      await runUntil(rotationId, ({ status }) => status === "overlapping");
      await confirm(second);
      const callsBefore = fixture.world.calls.length;
      const { row, crashCount } = await fixture.world.run(rotationId, crash ? { crash } : {});
      const where = JSON.stringify([crash, SEED, row.attention]);
      expect([row.status, publicationStates(row)], where).toEqual([
        "completed",
        [`${VAULT} written`, `${SECOND_VAULT} written`],
      ]);
      expect([keyIdInVault(app), keyIdInVault(app, SECOND_VAULT), validKeyIds(app)], where).toEqual([
        row.newKeyId,
        row.newKeyId,
        [row.newKeyId],
      ]);
      const rows: string[] = [];
      for await (const page of fixture.world.tables().pages(MatchRows, { partitionKey: `app:${app.appId}` }))
        for (const { vaultName, rotated } of page) rows.push(`${vaultName} ${rotated?.keyId}`);
      expect(rows.sort(), where).toEqual([VAULT, SECOND_VAULT].map((vault) => `${vault} ${row.newKeyId}`));
      return { crashCount, calls: fixture.world.calls.length - callsBefore };
    };
    const { calls } = await rotateWithCrash();
    const dice = new Dice(SEED);
    let crashes = 0;
    for (let moment = 0; moment < CRASH_COUNT; moment++) {
      const callNumber = 1 + Math.floor(((moment + dice.next()) * calls) / CRASH_COUNT);
      crashes += (await rotateWithCrash({ callNumber, crashKind: (["before", "after", "late"] as const)[moment % 3]! }))
        .crashCount;
    }
    expect(crashes).toBeGreaterThan(0);
  });
});

describe("among places that no rotation has written", () => {
  test("the one with the oldest version is written if none is confirmed", async () => {
    const app = fixture.addApplication();
    const older = fixture.copySecretTo(app, STRANGER_VAULT, 300);
    await fixture.discover(app, older);
    const plan = await fixture.rotations.plan(fixture.requestFor(app));
    expect([publicationStates(plan), skippedPlaces(plan)]).toEqual([
      [`${STRANGER_VAULT} planned`],
      [`${VAULT} certain newPlace`],
    ]);
    // Two versions of the same age: the name of the place decides.
    const twins = fixture.addApplication();
    const { name, contentType } = twins;
    const value = fixture.control.secretValue(VAULT, name)!;
    fixture.control.remove(VAULT, "secrets", name);
    for (const vaultName of [SECOND_VAULT, VAULT])
      fixture.control.putSecret(vaultName, { name, value, contentType, createdDaysAgo: 30 });
    await fixture.discover(twins, { ...twins, vaultName: SECOND_VAULT });
    expect(publicationStates(await fixture.rotations.plan(fixture.requestFor(twins)))).toEqual([`${VAULT} planned`]);
  });

  test("a confirmed place is written and an older unconfirmed one is not", async () => {
    const app = fixture.addApplication();
    const older = fixture.copySecretTo(app, STRANGER_VAULT, 300);
    await fixture.discover(app, older);
    await fixture.confirm(app);
    const plan = await fixture.rotations.plan(fixture.requestFor(app));
    expect([publicationStates(plan), skippedPlaces(plan)]).toEqual([
      [`${VAULT} planned`],
      [`${STRANGER_VAULT} certain newPlace`],
    ]);
  });

  test("a rotation by policy starts only after a place is confirmed", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.setPolicy(app.appId);
    expect(await fixture.runTimer()).toEqual([app.appId]);
    const { attention } = await fixture.policies.get(app.appId);
    expect(attention).toMatchObject({
      code: "newPlace",
      message: expect.stringContaining(`${VAULT}/${app.name} holds`),
    });
    expect(attention!.remedy).toContain("Confirm the match");
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    expect(await fixture.notices("rotationFailed")).toEqual([expect.stringContaining(`${VAULT}/${app.name}`)]);
    await fixture.confirm(app);
    fixture.world.advanceClock(DAY_MS);
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true }]);
    expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
  });
});

describe("a rotation by policy", () => {
  test("writes confirmed places and no new place", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    const thief = fixture.copySecretTo(app, STRANGER_VAULT, 300);
    await fixture.discover(app, thief);
    await fixture.runTimer();
    const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
    const row = await runUntil(rotationId, waitsForConfirmation);
    expect([publicationStates(row), skippedPlaces(row)]).toEqual([
      [`${VAULT} written`],
      [`${STRANGER_VAULT} certain newPlace`],
    ]);
    expect(keyIdInVault(app, STRANGER_VAULT)).toBe(app.keyId);
  });

  test("treats targets in the policy as confirmed while their vault has the same resource ID", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.setPolicy(app.appId, { targets: [app.assetId] });
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/recreated";
    await fixture.discover(app);
    await fixture.runTimer();
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "noTarget" });
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    delete fixture.vaultIds[VAULT];
    await fixture.discover(app);
    fixture.world.advanceClock(DAY_MS);
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true }]);
  });
});

describe("a vault of the same name with another resource id", () => {
  test("turns a confirmed or rotated place into a new place", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    const approvalsOf = async (one: App) => {
      const directory = (await fixture.graph.findApplication({ appId: one.appId }))!;
      return (await fixture.matches.targetsOf(directory, one.keyId)).map((target) => target.knownAs);
    };
    expect(await approvalsOf(app)).toEqual(["confirmed"]);
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/recreated";
    await fixture.discover(app);
    expect(await approvalsOf(app)).toEqual(["new"]);
    delete fixture.vaultIds[VAULT];
    await fixture.discover(app);
    const { row } = await fixture.world.run((await startRotation(app)).rotationId);
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    await fixture.discover(next);
    expect(await approvalsOf(next)).toEqual(["rotated"]);
    fixture.vaultIds[VAULT] = "/subscriptions/other/vaults/recreated";
    await fixture.discover(next);
    expect(await approvalsOf(next)).toEqual(["new"]);
  });

  test("is not written before a scan has noticed it, unless it has the version that a rotation wrote", async () => {
    const app = fixture.addApplication();
    const second = fixture.copySecretTo(app, SECOND_VAULT);
    await fixture.discover(app, second);
    await fixture.confirm(app, second);
    const { row } = await fixture.world.run((await startRotation(app)).rotationId);
    const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
    const value = fixture.control.secretValue(SECOND_VAULT, app.name)!;
    await fixture.discover(next, { ...next, vaultName: SECOND_VAULT });
    // A new version by hand leaves the one that the rotation wrote.
    for (const vault of [VAULT, SECOND_VAULT])
      fixture.control.putSecret(vault, { name: app.name, value, contentType: next.contentType });
    const approvals = async () => {
      const directory = (await fixture.graph.findApplication({ appId: next.appId }))!;
      const targets = await fixture.matches.targetsOf(directory, next.keyId);
      return targets.map(({ vaultName, knownAs }) => `${vaultName} ${knownAs}`).sort();
    };
    expect(await approvals()).toEqual([`${SECOND_VAULT} rotated`, `${VAULT} rotated`].sort());
    // The vault is deleted for good, and a stranger creates one of the same name with a copy of the value.
    fixture.control.putVault(company.subscriptions![0]!.id!, { name: SECOND_VAULT });
    fixture.control.putSecret(SECOND_VAULT, { name: app.name, value, contentType: next.contentType });
    expect(await approvals()).toEqual([`${SECOND_VAULT} new`, `${VAULT} rotated`].sort());
    const again = await startRotation(next);
    expect([publicationStates(again), skippedPlaces(again)]).toEqual([
      [`${VAULT} planned`],
      [`${SECOND_VAULT} certain newPlace`],
    ]);
  });
});

test("places that an earlier version of the service rotated need no confirmation", async () => {
  const app = fixture.addApplication();
  const second = fixture.copySecretTo(app, SECOND_VAULT);
  await fixture.discover(app, second);
  await fixture.confirm(app, second);
  const { row } = await fixture.world.run((await startRotation(app)).rotationId);
  expect(row.status).toBe("completed");
  // The earlier version stored neither the vault's resource ID in the rotation nor the rotation in the matches.
  const tables = fixture.world.tables();
  await tables.modify(Rotations, ROTATIONS, recordKey(row.rotationId), (now) => ({
    ...withoutKeys(now!),
    publications: now!.publications.map(({ vaultId: _, ...publication }) => publication),
  }));
  for (const name of [VAULT, SECOND_VAULT])
    await tables.modify(MatchRows, `app:${app.appId}`, `${name}|${app.name}`, (now) => {
      const { rotated, ...before } = withoutKeys(now!);
      expect(rotated).toMatchObject({ rotationId: row.rotationId, keyId: row.newKeyId });
      return before;
    });
  const next = { ...app, keyId: row.newKeyId!, contentType: `${app.name}:${app.appId}:${row.newKeyId}` };
  const thief = { ...next, vaultName: STRANGER_VAULT };
  fixture.control.putSecret(STRANGER_VAULT, {
    ...thief,
    value: fixture.control.secretValue(VAULT, app.name)!,
    createdDaysAgo: 400,
  });
  await fixture.discover(next, { ...next, vaultName: SECOND_VAULT }, thief);
  const again = await startRotation(next);
  expect([publicationStates(again).sort(), skippedPlaces(again)]).toEqual([
    [`${VAULT} planned`, `${SECOND_VAULT} planned`],
    [`${STRANGER_VAULT} certain newPlace`],
  ]);
});

describe("a compromised secret", () => {
  test("is replaced in the named places only", async () => {
    const app = fixture.addApplication();
    const [thief, second] = [fixture.copySecretTo(app, STRANGER_VAULT, 300), fixture.copySecretTo(app, SECOND_VAULT)];
    await fixture.discover(app, thief, second);
    await fixture.confirm(second);
    const compromised = { reason: "compromised", overlapDays: 0 } as const;
    await expect(startRotation(app, compromised)).rejects.toMatchObject({
      code: "invalidRequest",
      errors: [{ path: "body.targets", message: expect.stringContaining("must name the vault secrets") }],
    });
    const targets = [{ vaultName: VAULT.toUpperCase(), secretName: app.name.toUpperCase() }];
    await expect(
      startRotation(app, { ...compromised, targets: [{ vaultName: VAULT, secretName: "other" }] }),
    ).rejects.toMatchObject({
      code: "notRotatable",
      message: expect.stringContaining(`${VAULT}/other is not proven to store`),
    });
    await expect(startRotation(app, { targets, updateKeyVaults: false })).rejects.toMatchObject({
      code: "invalidRequest",
    });
    // The old secret is in use all the time, which does not delay the removal of a compromised secret.
    fixture.world.usage = { ...fixture.world.usage, lastSignIn: async () => fixture.world.clock.now() };
    const { rotationId } = await startRotation(app, { ...compromised, targets });
    await runUntil(rotationId, ({ status }) => status === "publishing");
    await confirm(thief);
    const { row } = await fixture.world.run(rotationId);
    expect(row).toMatchObject({ status: "completed", reason: "compromised", reasons: [] });
    expect([publicationStates(row), skippedPlaces(row).sort()]).toEqual([
      [`${VAULT} written`],
      [`${SECOND_VAULT} certain notNamed`, `${STRANGER_VAULT} certain notNamed`],
    ]);
    expect(validKeyIds(app)).toEqual([row.newKeyId]);
    const proof = createSignInProof(live.config);
    const { kind } = await proof(
      app.appId,
      fixture.control.secretValue(STRANGER_VAULT, app.name)!,
      live.cloud.app.tenantId,
    );
    expect(kind).not.toBe("accepted");
    expect(fixture.world.events.find(({ type }) => type === "rotation.begun")?.details).toMatchObject({
      reason: "compromised",
    });
  });
});

test("a place that was unreadable during planning is reported and written when it is readable", async () => {
  const app = fixture.addApplication();
  const second = fixture.copySecretTo(app, SECOND_VAULT);
  await fixture.discover(app, second);
  await fixture.confirm(app, second);
  const first = (await fixture.world.run((await startRotation(app)).rotationId)).row;
  const next = { ...app, keyId: first.newKeyId!, contentType: `${app.name}:${app.appId}:${first.newKeyId}` };
  await fixture.discover(next, { ...next, vaultName: SECOND_VAULT });
  for (const kind of ["deny", "firewall"] as const) {
    fixture.control.addFault({ match: { vault: SECOND_VAULT }, action: { kind } });
    const plan = await fixture.rotations.plan(fixture.requestFor(next));
    expect([publicationStates(plan), skippedPlaces(plan)]).toEqual([
      [`${VAULT} planned`],
      [`${SECOND_VAULT} likely unreadable`],
    ]);
    // The firewall stays closed until the rotation below waits.
    if (kind === "deny") fixture.control.clearFaults();
  }
  const { rotationId } = await startRotation(next);
  await runUntil(rotationId, waitsForConfirmation);
  fixture.control.clearFaults();
  const { row } = await fixture.world.run(rotationId);
  expect([row.status, publicationStates(row)]).toEqual(["completed", [`${VAULT} written`, `${SECOND_VAULT} written`]]);
  expect(isOver(row.status)).toBe(true);
});

describe("a user's statement that a vault secret is no copy", () => {
  const confidenceIn = async (app: App, vault: string) => {
    const directory = (await fixture.graph.findApplication({ appId: app.appId }))!;
    const targets = await fixture.matches.targetsOf(directory, app.keyId);
    return targets.find(({ vaultName }) => vaultName === vault)?.confidence;
  };

  test.each([
    ["the secret", { vault: STRANGER_VAULT }],
    ["its value", { vault: STRANGER_VAULT, operation: "keyvault.getSecret" }],
  ])("holds for its version although the vault denies %s, and its tags then stop no rotation", async (_, match) => {
    const app = fixture.addApplication();
    const tagged = fixture.copySecretTo(app, STRANGER_VAULT, 5);
    const createdOn = Math.floor((fixture.world.clock.now().getTime() - 5 * DAY_MS) / 1000);
    await fixture.discover(app, { ...tagged, createdOn });
    await fixture.confirm(app);
    fixture.control.addFault({ match, action: { kind: "deny" } });
    const { rotationId } = await startRotation(app);
    const waiting = await runUntil(rotationId, waitsForConfirmation);
    expect(waiting.reasons).toEqual([expect.stringMatching(/probably stores the old secret/)]);

    const reject = () => fixture.matches.confirm(app.appId, { assetId: tagged.assetId, confirmed: false }, BOSS);
    await reject();
    expect(await confidenceIn(app, STRANGER_VAULT)).toBe("possible");
    // The statement does not cover another version.
    const { name, contentType } = app;
    fixture.control.putSecret(STRANGER_VAULT, { name, value: "x", contentType, createdDaysAgo: 2 });
    await fixture.discover({ ...tagged, createdOn: createdOn + 3 * DAY_SECONDS });
    expect(await confidenceIn(app, STRANGER_VAULT)).toBe("likely");
    await reject();
    await fixture.rotations.placeReviewed(app.appId);
    const reviewedAt = fixture.world.clock.now().getTime();
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, row.reasons, validKeyIds(app)]).toEqual(["completed", [], [row.newKeyId]]);
    expect(fixture.world.clock.now().getTime() - reviewedAt).toBeLessThan(DAY_MS);
  });

  test("does not cover a value that signs in", async () => {
    const app = fixture.addApplication();
    const copy = fixture.copySecretTo(app, SECOND_VAULT);
    await fixture.discover(app, copy);
    await fixture.confirm(app);
    await fixture.matches.confirm(app.appId, { assetId: copy.assetId, confirmed: false }, BOSS);
    expect(await confidenceIn(app, SECOND_VAULT)).toBe("certain");
    const { rotationId } = await startRotation(app);
    const waiting = await runUntil(rotationId, waitsForConfirmation);
    expect(waiting.reasons).toEqual([expect.stringMatching(/stores the old secret, is new to this service/)]);
  });

  test("ends with a confirmation, and does not cover another vault of the same name", async () => {
    const app = fixture.addApplication();
    const tagged = fixture.copySecretTo(app, STRANGER_VAULT, 5);
    const createdOn = Math.floor((fixture.world.clock.now().getTime() - 5 * DAY_MS) / 1000);
    await fixture.discover(app, { ...tagged, createdOn });
    await fixture.matches.confirm(app.appId, { assetId: tagged.assetId, confirmed: false }, BOSS);
    fixture.control.addFault({ match: { vault: STRANGER_VAULT }, action: { kind: "deny" } });
    expect(await confidenceIn(app, STRANGER_VAULT)).toBe("possible");
    fixture.vaultIds[STRANGER_VAULT] = "/subscriptions/other/vaults/recreated";
    await fixture.discover({ ...tagged, createdOn });
    expect(await confidenceIn(app, STRANGER_VAULT)).toBe("likely");
    fixture.control.clearFaults();
    await fixture.confirm(tagged);
    expect(await confidenceIn(app, STRANGER_VAULT)).toBe("certain");
  });
});
