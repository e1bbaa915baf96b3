import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { PolicyChange } from "../../shared/rotation/policies-api.ts";
import { isOver } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { IMPATIENT } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

const DAY_MS = 86_400_000;
const company: Company = {
  subscriptions: [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: "kv-stranger" }] },
  ],
};

let azurite: TestStorage;
let accounts = 0;
let live: Awaited<ReturnType<typeof liveIn>>;
let fixture: ReturnType<typeof openMatchingFixture>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 32 }, (_, index) => `policies${index}`));
  live = await liveIn({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  live.cloud.control.clearFaults();
  live.cloud.control.directory.set({ policy: {} });
  fixture = openMatchingFixture(live, azurite.connectionString(`policies${accounts++}`));
});

const problem = (code: string, detail: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(detail) });

describe("a match is proved", () => {
  test("by its value, which is written nowhere, for the version it has", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    const { match, proof } = await fixture.matches.verify(app.appId, app, BOSS);
    expect(proof).toMatchObject({
      outcome: "accepted",
      message: "The value signed in: this is a secret of the application.",
    });
    expect(match).toMatchObject({
      verified: "signIn",
      keyId: app.keyId,
      version: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    const value = secretValueOf(app.name, "old");
    const everything = JSON.stringify([match, proof, fixture.world.events, fixture.world.log.lines]);
    expect(everything).not.toContain(value);
    expect(fixture.world.events.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
      "rotation.matchVerified intent",
      "rotation.matchVerified success",
    ]);
    // Another writer creates a version, so the verification no longer applies.
    fixture.control.putSecret(VAULT, { name: app.name, value: "something else", contentType: app.contentType });
    expect(await fixture.matches.targetsOf(await directoryOf(app.appId), app.keyId)).toMatchObject([
      { confidence: "possible" },
    ]);
  });

  test("or refused: another beginning is not tried, a wrong value once, and tries have an end", async () => {
    const app = fixture.application({ value: "otherwise" });
    await fixture.discover(app);
    expect((await fixture.matches.verify(app.appId, app, BOSS)).proof.outcome).toBe("otherHint");
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}forged`;
    fixture.control.putSecret(VAULT, { name: app.name, value: forged, contentType: app.contentType });
    const wrong = await fixture.matches.verify(app.appId, app, BOSS);
    expect([wrong.proof.outcome, wrong.match?.verified]).toEqual(["refused", "none"]);
    for (let tries = 2; tries < 20; tries++) await fixture.matches.verify(app.appId, app, BOSS);
    await expect(fixture.matches.verify(app.appId, app, BOSS)).rejects.toMatchObject({ code: "rateLimited" });
  });

  test("or it says what keeps the value from being read", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    fixture.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    const { proof } = await fixture.matches.verify(app.appId, app, BOSS);
    expect(proof.outcome).toBe("unreadable");
    expect(proof.message).toContain("Key Vault Secrets Officer");
  });
});

describe("targets", () => {
  test("tags in a vault of another owner do not attract the new secret", async () => {
    const app = fixture.application();
    const bait = { ...app, place: "kv-stranger" };
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}${"x".repeat(37)}`;
    fixture.control.putSecret("kv-stranger", { name: app.name, value: forged, contentType: app.contentType });
    await fixture.discover(app, bait);
    const { matches } = await fixture.matches.of(app.appId);
    expect(matches.map(({ confidence }) => confidence)).toEqual(["certain", "certain"]);
    const targets = await fixture.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(targets.map(({ vaultName, confidence }) => `${vaultName} ${confidence}`).sort()).toEqual([
      `${VAULT} certain`,
      "kv-stranger possible",
    ]);
    const { rotationId } = await fixture.rotations.begin(
      { appId: app.appId, secretId: app.keyId, updateKeyVaults: true, overlapDays: 1, removeExpired: false },
      BOSS,
    );
    const { row } = await fixture.world.run(rotationId);
    expect(row).toMatchObject({ status: "completed", publications: [{ vaultName: VAULT, state: "written" }] });
    expect(fixture.control.secretValue("kv-stranger", app.name)).toBe(forged);
  });

  test("a value that is refused as expired is none before a person confirms it", async () => {
    // Entra answers so to any value where it knows of expired secrets alone.
    const app = fixture.application({ expiresInDays: -1 });
    await fixture.discover(app);
    const { proof } = await fixture.matches.verify(app.appId, app, BOSS);
    expect(proof).toMatchObject({ outcome: "expired", message: expect.stringContaining("Confirm the match") });
    const targets = async () => await fixture.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "likely", standing: "new" }]);
    const request = {
      appId: app.appId,
      secretId: app.keyId,
      updateKeyVaults: true,
      overlapDays: 1,
      removeExpired: false,
    };
    await expect(fixture.rotations.begin(request, BOSS)).rejects.toMatchObject({ code: "notRotatable" });
    await fixture.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS);
    expect(await targets()).toMatchObject([{ confidence: "certain", standing: "confirmed" }]);
    const { rotationId } = await fixture.rotations.begin(request, BOSS);
    expect((await fixture.world.run(rotationId)).row).toMatchObject({ status: "completed" });
  });

  test("a person's word holds for the version it was given for", async () => {
    const app = fixture.application({ value: "not to be proved" });
    await fixture.discover(app);
    expect(await fixture.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS)).toMatchObject({
      confidence: "certain",
      evidence: expect.arrayContaining(["confirmed"]),
    });
    const targets = async () => await fixture.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "certain", standing: "confirmed" }]);
    fixture.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    expect(await targets()).toMatchObject([{ confidence: "possible", standing: "new" }]);
  });
});

const directoryOf = async (appId: string) => {
  const graph = createGraph({
    ...live,
    identity: createIdentity(live.config),
    log: fixture.world.log,
    limits: IMPATIENT,
  });
  return (await graph.application({ appId }))!;
};

describe("a policy", () => {
  test("is rejected if a rotation could never complete automatically", async () => {
    const [app, endless, alone] = [fixture.application(), fixture.application(), fixture.application()];
    await fixture.discover(app, endless);
    const refused = async (change: object, detail: string) =>
      await expect(fixture.policy(app.appId, change)).rejects.toEqual(problem("invalidRequest", detail));
    await refused({ updateKeyVaults: false }, "updateKeyVaults: must be true");
    await refused({ targets: [alone.assetId] }, "is not a certain match");
    await refused({ targets: ["kv.key.x"] }, "must be the asset id of a vault's secret");
    await refused({ expiryDays: 38, overlapDays: 7 }, "must give a lifetime of more than 38 days");
    fixture.reasons = ["It has no client secret."];
    await refused({}, "can't be true: It has no client secret.");
    fixture.reasons = [];
    await expect(fixture.policy(alone.appId)).rejects.toEqual(
      problem("invalidRequest", "no vault secret is a certain match"),
    );
    await expect(fixture.policy(app.appId, { targets: ["kv-lifecycle-service.secret.x"] })).rejects.toMatchObject({
      code: "serviceVault",
    });
    expect(await fixture.policy(app.appId, { expiryDays: 39, overlapDays: 7 })).toMatchObject({ expiryDays: 39 });
    const beside = { ...app, name: `${app.name}-beside` };
    fixture.control.putSecret(VAULT, { name: beside.name, value: "any", contentType: app.contentType });
    await fixture.discover(app, beside, endless);
    const set = await fixture.policy(app.appId, { targets: [app.assetId] });
    await fixture.policies.remove(app.appId, BOSS, set.etag);
    await fixture.confirm({ ...beside, assetId: `${VAULT}.secret.${beside.name}` });
    await refused({ targets: [app.assetId] }, `targets: must also name ${VAULT}.secret.${beside.name}`);
    fixture.control.directory.set({ policy: { longestDays: 38 } });
    await refused({}, "with at most 38 by the tenant's policy");
    fixture.control.directory.set({ policy: { additionRefused: true } });
    await refused({}, "forbids new client secrets");
  });

  test("changes with its ETag only, and is entered in the audit log", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    const first = await fixture.policy(app.appId, { automatic: false });
    await expect(fixture.policies.set(app.appId, PolicyChange.parse({}), BOSS, '"stale"')).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    await fixture.policies.set(app.appId, PolicyChange.parse({ overlapDays: 3 }), BOSS, first.etag);
    expect(await fixture.policies.get(app.appId.toUpperCase())).toMatchObject({ overlapDays: 3 });
    await expect(fixture.policies.remove(app.appId, BOSS, first.etag)).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    await fixture.policies.remove(app.appId, BOSS, undefined);
    await expect(fixture.policies.get(app.appId)).rejects.toMatchObject({ code: "notFound" });
    expect(fixture.world.events.filter(({ outcome }) => outcome === "success").map(({ type }) => type)).toEqual([
      "rotation.policyChanged",
      "rotation.policyChanged",
      "rotation.policyRemoved",
    ]);
  });

  test("that another program wrote into the table is ignored", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    const { partitionKey, rowKey } = await fixture.policy(app.appId);
    const { createTables } = await import("../../shared/platform/storage/tables.ts");
    const { entity } = await import("../../shared/platform/storage/entity.ts");
    const { PolicyRecord } = await import("../../shared/rotation/policy.ts");
    const unsigned = entity("RotationPolicies", PolicyRecord);
    const plain = createTables({ connectionString: azurite.connectionString(`policies${accounts - 1}`) });
    const row = (await plain.get(unsigned, partitionKey, rowKey))!;
    await plain.replace(unsigned, { ...row, expiryDays: 700 });
    expect(await fixture.tick()).toEqual([]);
    expect(await fixture.policies.of([app.appId])).toEqual(new Map());
  });
});

describe("a due secret", () => {
  test("is rotated once, however often the timer and the message arrive, and gets a new secret", async () => {
    const [app, later] = [fixture.application(), fixture.application({ expiresInDays: 60 })];
    await fixture.discover(app, later);
    expect(await fixture.tick()).toEqual([]);
    await fixture.policy(app.appId, { targets: [app.assetId] });
    await fixture.policy(later.appId);
    expect(await fixture.notices("rotationDue")).toEqual([expect.stringContaining("Automatic rotation starts after")]);
    expect(await fixture.tick(2)).toEqual([app.appId]);
    await fixture.automatic.begin(app.appId, "late");
    expect(await fixture.tick()).toEqual([]);
    const [rotation, ...others] = await fixture.rotationsOf(app.appId);
    expect(others).toEqual([]);
    expect(rotation).toMatchObject({ automatic: true, oldKeyId: app.keyId, requestedBy: "system" });
    const { row } = await fixture.world.run(rotation!.rotationId);
    expect(row.status).toBe("completed");
    expect(fixture.control.directory.keyIdOf(app.appId, fixture.control.secretValue(VAULT, app.name)!)).toBe(
      row.newKeyId,
    );
    const [failureText] = await fixture.notices("rotationDone");
    expect(failureText).toContain(`${app.keyId} was deleted`);
    // The new one is due again only 150 days later, and not before half its life is over.
    await fixture.discover(app, later);
    fixture.world.pass(DAY_MS);
    expect(await fixture.tick()).toEqual([]);
  });

  test("is not said to need anybody where its message came twice at once", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.policy(app.appId);
    await Promise.all(["first", "second"].map((requestId) => fixture.automatic.begin(app.appId, requestId)));
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(1);
    expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
  });

  test("and was deleted in the meantime is not reported as working", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.policy(app.appId);
    await fixture.tick();
    const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
    fixture.control.directory.removeSecret(app.appId, app.keyId);
    expect((await fixture.world.run(rotationId)).row).toMatchObject({
      status: "failed",
      failure: { code: "oldSecretGone" },
    });
    const [failureText] = await fixture.notices("rotationFailed");
    expect(failureText).toContain("no longer exists");
    expect(failureText).not.toContain("works until it expires");
  });

  test("is no secret of ours that is younger than half its life", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.policy(app.appId, { expiryDays: 40 });
    await fixture.tick();
    const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
    const made = fixture.world.clock.now().getTime();
    const { row } = await fixture.world.run(rotationId);
    expect(row.status).toBe("completed");
    await fixture.discover({ ...app, contentType: `${app.name}:${app.appId}:${row.newKeyId}` });
    const daysOld = (days: number) => fixture.world.pass(made + days * DAY_MS - fixture.world.clock.now().getTime());
    for (const [days, rotations] of [
      [19, 1],
      [21, 2],
    ] as const) {
      daysOld(days);
      expect(await fixture.tick()).toEqual([app.appId]);
      expect(await fixture.rotationsOf(app.appId)).toHaveLength(rotations);
    }
  });

  test("is left to a person where nothing proved to hold it, and where a new secret would live too short", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.policy(app.appId);
    fixture.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    await fixture.tick();
    const unproved = await fixture.policies.get(app.appId);
    expect(unproved.attention).toMatchObject({ code: "noTarget", message: expect.stringContaining(app.keyId) });
    expect(await fixture.tick()).toEqual([]);
    fixture.control.directory.set({ policy: { longestDays: 20 } });
    fixture.world.pass(DAY_MS);
    await fixture.tick();
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "lifeTooShort" });
    expect(await fixture.notices("rotationFailed")).toEqual([
      expect.stringContaining("A new secret would be valid for 20 days"),
    ]);
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
  });

  test("is not rotated without a license, nor while another rotation is unfinished", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.policy(app.appId);
    fixture.world.tier = "core";
    expect(await fixture.tick()).toEqual([]);
    await fixture.automatic.begin(app.appId, "message of before");
    fixture.world.tier = "pro";
    const { rotationId } = await fixture.rotations.begin(
      { appId: app.appId, secretId: app.keyId, updateKeyVaults: true, overlapDays: 1, removeExpired: false },
      BOSS,
    );
    expect(await fixture.notices("rotationDue")).toEqual([expect.stringContaining(`is in progress: ${rotationId}`)]);
    await fixture.tick();
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(1);
  });

  test("is tried three times, a day apart, and then left to a person until the policy is set again", async () => {
    const app = fixture.application();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.policy(app.appId);
    for (let tried = 1; tried <= 4; tried++) {
      await fixture.tick();
      for (const { rotationId, status } of await fixture.rotationsOf(app.appId)) {
        if (isOver(status)) continue;
        await fixture.rotations.cancel(rotationId, BOSS);
        await fixture.world.run(rotationId);
      }
      fixture.world.pass(DAY_MS);
    }
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(3);
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "failedRepeatedly" });
    await fixture.policy(app.appId);
    await fixture.tick();
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(4);
  });
});
