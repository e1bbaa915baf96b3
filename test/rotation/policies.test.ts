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
import { openMatchingRoom } from "./matching-world.ts";
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
let room: ReturnType<typeof openMatchingRoom>;

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
  room = openMatchingRoom(live, azurite.connectionString(`policies${accounts++}`));
});

const problem = (code: string, detail: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(detail) });

describe("a match is proved", () => {
  test("by its value, which is written nowhere, for the version it has", async () => {
    const app = room.application();
    await room.discover(app);
    const { match, proof } = await room.matches.verify(app.appId, app, BOSS);
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
    const everything = JSON.stringify([match, proof, room.world.events, room.world.log.lines]);
    expect(everything).not.toContain(value);
    expect(room.world.events.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
      "rotation.matchVerified intent",
      "rotation.matchVerified success",
    ]);
    // Another writer creates a version, so the verification no longer applies.
    room.control.putSecret(VAULT, { name: app.name, value: "something else", contentType: app.contentType });
    expect(await room.matches.targetsOf(await directoryOf(app.appId), app.keyId)).toMatchObject([
      { confidence: "possible" },
    ]);
  });

  test("or refused: another beginning is not tried, a wrong value once, and tries have an end", async () => {
    const app = room.application({ value: "otherwise" });
    await room.discover(app);
    expect((await room.matches.verify(app.appId, app, BOSS)).proof.outcome).toBe("otherHint");
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}forged`;
    room.control.putSecret(VAULT, { name: app.name, value: forged, contentType: app.contentType });
    const wrong = await room.matches.verify(app.appId, app, BOSS);
    expect([wrong.proof.outcome, wrong.match?.verified]).toEqual(["refused", "none"]);
    for (let tries = 2; tries < 20; tries++) await room.matches.verify(app.appId, app, BOSS);
    await expect(room.matches.verify(app.appId, app, BOSS)).rejects.toMatchObject({ code: "rateLimited" });
  });

  test("or it says what keeps the value from being read", async () => {
    const app = room.application();
    await room.discover(app);
    room.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    const { proof } = await room.matches.verify(app.appId, app, BOSS);
    expect(proof.outcome).toBe("unreadable");
    expect(proof.message).toContain("Key Vault Secrets Officer");
  });
});

describe("targets", () => {
  test("tags in a vault of another owner do not attract the new secret", async () => {
    const app = room.application();
    const bait = { ...app, place: "kv-stranger" };
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}${"x".repeat(37)}`;
    room.control.putSecret("kv-stranger", { name: app.name, value: forged, contentType: app.contentType });
    await room.discover(app, bait);
    const { matches } = await room.matches.of(app.appId);
    expect(matches.map(({ confidence }) => confidence)).toEqual(["certain", "certain"]);
    const targets = await room.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(targets.map(({ vaultName, confidence }) => `${vaultName} ${confidence}`).sort()).toEqual([
      `${VAULT} certain`,
      "kv-stranger possible",
    ]);
    const { rotationId } = await room.rotations.begin(
      { appId: app.appId, secretId: app.keyId, updateKeyVaults: true, overlapDays: 1, removeExpired: false },
      BOSS,
    );
    const { row } = await room.world.run(rotationId);
    expect(row).toMatchObject({ status: "completed", publications: [{ vaultName: VAULT, state: "written" }] });
    expect(room.control.secretValue("kv-stranger", app.name)).toBe(forged);
  });

  test("a value that is refused as expired is none before a person confirms it", async () => {
    // Entra answers so to any value where it knows of expired secrets alone.
    const app = room.application({ expiresInDays: -1 });
    await room.discover(app);
    const { proof } = await room.matches.verify(app.appId, app, BOSS);
    expect(proof).toMatchObject({ outcome: "expired", message: expect.stringContaining("Confirm the match") });
    const targets = async () => await room.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "likely", standing: "new" }]);
    const request = {
      appId: app.appId,
      secretId: app.keyId,
      updateKeyVaults: true,
      overlapDays: 1,
      removeExpired: false,
    };
    await expect(room.rotations.begin(request, BOSS)).rejects.toMatchObject({ code: "notRotatable" });
    await room.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS);
    expect(await targets()).toMatchObject([{ confidence: "certain", standing: "confirmed" }]);
    const { rotationId } = await room.rotations.begin(request, BOSS);
    expect((await room.world.run(rotationId)).row).toMatchObject({ status: "completed" });
  });

  test("a person's word holds for the version it was given for", async () => {
    const app = room.application({ value: "not to be proved" });
    await room.discover(app);
    expect(await room.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS)).toMatchObject({
      confidence: "certain",
      evidence: expect.arrayContaining(["confirmed"]),
    });
    const targets = async () => await room.matches.targetsOf(await directoryOf(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "certain", standing: "confirmed" }]);
    room.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    expect(await targets()).toMatchObject([{ confidence: "possible", standing: "new" }]);
  });
});

const directoryOf = async (appId: string) => {
  const graph = createGraph({ ...live, identity: createIdentity(live.config), log: room.world.log, limits: IMPATIENT });
  return (await graph.application({ appId }))!;
};

describe("a policy", () => {
  test("is rejected if a rotation could never complete automatically", async () => {
    const [app, endless, alone] = [room.application(), room.application(), room.application()];
    await room.discover(app, endless);
    const refused = async (change: object, detail: string) =>
      await expect(room.policy(app.appId, change)).rejects.toEqual(problem("invalidRequest", detail));
    await refused({ updateKeyVaults: false }, "updateKeyVaults: must be true");
    await refused({ targets: [alone.assetId] }, "is not a certain match");
    await refused({ targets: ["kv.key.x"] }, "must be the asset id of a vault's secret");
    await refused({ expiryDays: 38, overlapDays: 7 }, "must give a lifetime of more than 38 days");
    room.reasons = ["It has no client secret."];
    await refused({}, "can't be true: It has no client secret.");
    room.reasons = [];
    await expect(room.policy(alone.appId)).rejects.toEqual(
      problem("invalidRequest", "no vault secret is a certain match"),
    );
    await expect(room.policy(app.appId, { targets: ["kv-lifecycle-service.secret.x"] })).rejects.toMatchObject({
      code: "serviceVault",
    });
    expect(await room.policy(app.appId, { expiryDays: 39, overlapDays: 7 })).toMatchObject({ expiryDays: 39 });
    const beside = { ...app, name: `${app.name}-beside` };
    room.control.putSecret(VAULT, { name: beside.name, value: "any", contentType: app.contentType });
    await room.discover(app, beside, endless);
    const set = await room.policy(app.appId, { targets: [app.assetId] });
    await room.policies.remove(app.appId, BOSS, set.etag);
    await room.confirm({ ...beside, assetId: `${VAULT}.secret.${beside.name}` });
    await refused({ targets: [app.assetId] }, `targets: must name ${VAULT}.secret.${beside.name} too`);
    room.control.directory.set({ policy: { longestDays: 38 } });
    await refused({}, "with at most 38 by the tenant's policy");
    room.control.directory.set({ policy: { additionRefused: true } });
    await refused({}, "forbids new client secrets");
  });

  test("changes with its ETag only, and is entered in the audit log", async () => {
    const app = room.application();
    await room.discover(app);
    const first = await room.policy(app.appId, { automatic: false });
    await expect(room.policies.set(app.appId, PolicyChange.parse({}), BOSS, '"stale"')).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    await room.policies.set(app.appId, PolicyChange.parse({ overlapDays: 3 }), BOSS, first.etag);
    expect(await room.policies.get(app.appId.toUpperCase())).toMatchObject({ overlapDays: 3 });
    await expect(room.policies.remove(app.appId, BOSS, first.etag)).rejects.toMatchObject({
      code: "preconditionFailed",
    });
    await room.policies.remove(app.appId, BOSS, undefined);
    await expect(room.policies.get(app.appId)).rejects.toMatchObject({ code: "notFound" });
    expect(room.world.events.filter(({ outcome }) => outcome === "success").map(({ type }) => type)).toEqual([
      "rotation.policyChanged",
      "rotation.policyChanged",
      "rotation.policyRemoved",
    ]);
  });

  test("that another program wrote into the table is ignored", async () => {
    const app = room.application();
    await room.discover(app);
    const { partitionKey, rowKey } = await room.policy(app.appId);
    const { createTables } = await import("../../shared/platform/storage/tables.ts");
    const { entity } = await import("../../shared/platform/storage/entity.ts");
    const { PolicyRecord } = await import("../../shared/rotation/policy.ts");
    const unsigned = entity("RotationPolicies", PolicyRecord);
    const plain = createTables({ connectionString: azurite.connectionString(`policies${accounts - 1}`) });
    const row = (await plain.get(unsigned, partitionKey, rowKey))!;
    await plain.replace(unsigned, { ...row, expiryDays: 700 });
    expect(await room.tick()).toEqual([]);
    expect(await room.policies.of([app.appId])).toEqual(new Map());
  });
});

describe("a due secret", () => {
  test("is rotated once, however often the timer and the message arrive, and gets a new secret", async () => {
    const [app, later] = [room.application(), room.application({ expiresInDays: 60 })];
    await room.discover(app, later);
    expect(await room.tick()).toEqual([]);
    await room.policy(app.appId, { targets: [app.assetId] });
    await room.policy(later.appId);
    expect(await room.notices("rotationDue")).toEqual([expect.stringContaining("Automatic rotation starts after")]);
    expect(await room.tick(2)).toEqual([app.appId]);
    await room.automatic.begin(app.appId, "late");
    expect(await room.tick()).toEqual([]);
    const [rotation, ...others] = await room.rotationsOf(app.appId);
    expect(others).toEqual([]);
    expect(rotation).toMatchObject({ automatic: true, oldKeyId: app.keyId, requestedBy: "system" });
    const { row } = await room.world.run(rotation!.rotationId);
    expect(row.status).toBe("completed");
    expect(room.control.directory.keyIdOf(app.appId, room.control.secretValue(VAULT, app.name)!)).toBe(row.newKeyId);
    const [told] = await room.notices("rotationDone");
    expect(told).toContain(`${app.keyId} was deleted`);
    // The new one is due again only 150 days later, and not before half its life is over.
    await room.discover(app, later);
    room.world.pass(DAY_MS);
    expect(await room.tick()).toEqual([]);
  });

  test("is not said to need anybody where its message came twice at once", async () => {
    const app = room.application();
    await room.discover(app);
    await room.confirm(app);
    await room.policy(app.appId);
    await Promise.all(["first", "second"].map((requestId) => room.automatic.begin(app.appId, requestId)));
    expect(await room.rotationsOf(app.appId)).toHaveLength(1);
    expect((await room.policies.get(app.appId)).attention).toBeUndefined();
  });

  test("and was deleted in the meantime is not reported as working", async () => {
    const app = room.application();
    await room.discover(app);
    await room.confirm(app);
    await room.policy(app.appId);
    await room.tick();
    const { rotationId } = (await room.rotationsOf(app.appId))[0]!;
    room.control.directory.removeSecret(app.appId, app.keyId);
    expect((await room.world.run(rotationId)).row).toMatchObject({
      status: "failed",
      failure: { code: "oldSecretGone" },
    });
    const [told] = await room.notices("rotationFailed");
    expect(told).toContain("no longer exists");
    expect(told).not.toContain("works until it ends");
  });

  test("is no secret of ours that is younger than half its life", async () => {
    const app = room.application();
    await room.discover(app);
    await room.confirm(app);
    await room.policy(app.appId, { expiryDays: 40 });
    await room.tick();
    const { rotationId } = (await room.rotationsOf(app.appId))[0]!;
    const made = room.world.clock.now().getTime();
    const { row } = await room.world.run(rotationId);
    expect(row.status).toBe("completed");
    await room.discover({ ...app, contentType: `${app.name}:${app.appId}:${row.newKeyId}` });
    const daysOld = (days: number) => room.world.pass(made + days * DAY_MS - room.world.clock.now().getTime());
    for (const [days, rotations] of [
      [19, 1],
      [21, 2],
    ] as const) {
      daysOld(days);
      expect(await room.tick()).toEqual([app.appId]);
      expect(await room.rotationsOf(app.appId)).toHaveLength(rotations);
    }
  });

  test("is left to a person where nothing proved to hold it, and where a new secret would live too short", async () => {
    const app = room.application();
    await room.discover(app);
    await room.policy(app.appId);
    room.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    await room.tick();
    const unproved = await room.policies.get(app.appId);
    expect(unproved.attention).toMatchObject({ code: "noTarget", message: expect.stringContaining(app.keyId) });
    expect(await room.tick()).toEqual([]);
    room.control.directory.set({ policy: { longestDays: 20 } });
    room.world.pass(DAY_MS);
    await room.tick();
    expect((await room.policies.get(app.appId)).attention).toMatchObject({ code: "lifeTooShort" });
    expect(await room.notices("rotationFailed")).toEqual([
      expect.stringContaining("A new secret would be valid for 20 days"),
    ]);
    expect(await room.rotationsOf(app.appId)).toEqual([]);
  });

  test("is not rotated without a license, nor while another rotation is unfinished", async () => {
    const app = room.application();
    await room.discover(app);
    await room.policy(app.appId);
    room.world.tier = "core";
    expect(await room.tick()).toEqual([]);
    await room.automatic.begin(app.appId, "message of before");
    room.world.tier = "pro";
    const { rotationId } = await room.rotations.begin(
      { appId: app.appId, secretId: app.keyId, updateKeyVaults: true, overlapDays: 1, removeExpired: false },
      BOSS,
    );
    expect(await room.notices("rotationDue")).toEqual([expect.stringContaining(`is in progress: ${rotationId}`)]);
    await room.tick();
    expect(await room.rotationsOf(app.appId)).toHaveLength(1);
  });

  test("is tried three times, a day apart, and then left to a person until the policy is set again", async () => {
    const app = room.application();
    await room.discover(app);
    await room.confirm(app);
    await room.policy(app.appId);
    for (let tried = 1; tried <= 4; tried++) {
      await room.tick();
      for (const { rotationId, status } of await room.rotationsOf(app.appId)) {
        if (isOver(status)) continue;
        await room.rotations.cancel(rotationId, BOSS);
        await room.world.run(rotationId);
      }
      room.world.pass(DAY_MS);
    }
    expect(await room.rotationsOf(app.appId)).toHaveLength(3);
    expect((await room.policies.get(app.appId)).attention).toMatchObject({ code: "failedRepeatedly" });
    await room.policy(app.appId);
    await room.tick();
    expect(await room.rotationsOf(app.appId)).toHaveLength(4);
  });
});
