import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { closedUntil, type MaintenanceWindow, WEEKDAYS } from "../../shared/rotation/maintenance-window.ts";
import { PolicyChange } from "../../shared/rotation/policies-api.ts";
import { isOver } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { SHORT_WAITS } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { BOSS, VAULT } from "./world.ts";

/** Tests of verified and confirmed matches, of rotation policies, and of the automatic rotations that they start. */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const company: Company = {
  subscriptions: [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: "kv-stranger" }] },
  ],
};

let azurite: TestStorage;
let accountIndex = 0;
let live: Awaited<ReturnType<typeof startTestCloud>>;
let fixture: ReturnType<typeof openMatchingFixture>;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 32 }, (_, index) => `policies${index}`));
  live = await startTestCloud({ company });
});
afterAll(async () => {
  await live.cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  live.cloud.control.clearFaults();
  live.cloud.control.directory.set({ policy: {} });
  fixture = openMatchingFixture(live, azurite.connectionString(`policies${accountIndex++}`));
});

const problemWith = (code: string, detail: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(detail) });

describe("verification of a match", () => {
  test("a value that signs in verifies the current version and is stored nowhere", async () => {
    const app = fixture.addApplication();
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
    expect(await fixture.matches.targetsOf(await readApplication(app.appId), app.keyId)).toMatchObject([
      { confidence: "possible" },
    ]);
  });

  test("a wrong value is not verified, and attempts are limited", async () => {
    const app = fixture.addApplication({ value: "otherwise" });
    await fixture.discover(app);
    // The hint is the first three characters of the credential. A value that starts differently is not sent to Entra.
    expect((await fixture.matches.verify(app.appId, app, BOSS)).proof.outcome).toBe("otherHint");
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}forged`;
    fixture.control.putSecret(VAULT, { name: app.name, value: forged, contentType: app.contentType });
    const wrong = await fixture.matches.verify(app.appId, app, BOSS);
    expect([wrong.proof.outcome, wrong.match?.verified]).toEqual(["refused", "none"]);
    // The fixture's rate limiter allows 20 attempts; two were made above.
    for (let attempt = 2; attempt < 20; attempt++) await fixture.matches.verify(app.appId, app, BOSS);
    await expect(fixture.matches.verify(app.appId, app, BOSS)).rejects.toMatchObject({ code: "rateLimited" });
  });

  test("an unreadable value is reported with the role that is missing", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    fixture.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    const { proof } = await fixture.matches.verify(app.appId, app, BOSS);
    expect(proof.outcome).toBe("unreadable");
    expect(proof.message).toContain("Key Vault Secrets Officer");
  });
});

describe("vault secrets that a rotation writes", () => {
  test("a forged copy whose tags name the credential does not get the new secret", async () => {
    const app = fixture.addApplication();
    const bait = { ...app, vaultName: "kv-stranger" };
    const forged = `${secretValueOf(app.name, "old").slice(0, 3)}${"x".repeat(37)}`;
    fixture.control.putSecret("kv-stranger", { name: app.name, value: forged, contentType: app.contentType });
    await fixture.discover(app, bait);
    const { matches } = await fixture.matches.listMatches(app.appId);
    expect(matches.map(({ confidence }) => confidence)).toEqual(["certain", "certain"]);
    const targets = await fixture.matches.targetsOf(await readApplication(app.appId), app.keyId);
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

  test("a value that Entra rejects as expired is written only after a user confirms it", async () => {
    // If an application has only expired secrets, Entra answers "expired" to any value, so the answer proves nothing.
    const app = fixture.addApplication({ expiresInDays: -1 });
    await fixture.discover(app);
    const { proof } = await fixture.matches.verify(app.appId, app, BOSS);
    expect(proof).toMatchObject({ outcome: "expired", message: expect.stringContaining("Confirm the match") });
    const targets = async () => await fixture.matches.targetsOf(await readApplication(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "likely", knownAs: "new" }]);
    const request = {
      appId: app.appId,
      secretId: app.keyId,
      updateKeyVaults: true,
      overlapDays: 1,
      removeExpired: false,
    };
    await expect(fixture.rotations.begin(request, BOSS)).rejects.toMatchObject({ code: "notRotatable" });
    await fixture.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS);
    expect(await targets()).toMatchObject([{ confidence: "certain", knownAs: "confirmed" }]);
    const { rotationId } = await fixture.rotations.begin(request, BOSS);
    expect((await fixture.world.run(rotationId)).row).toMatchObject({ status: "completed" });
  });

  test("a confirmation applies to one version of the secret", async () => {
    const app = fixture.addApplication({ value: "not to be proved" });
    await fixture.discover(app);
    expect(await fixture.matches.confirm(app.appId, { assetId: app.assetId, confirmed: true }, BOSS)).toMatchObject({
      confidence: "certain",
      evidence: expect.arrayContaining(["confirmed"]),
    });
    const targets = async () => await fixture.matches.targetsOf(await readApplication(app.appId), app.keyId);
    expect(await targets()).toMatchObject([{ confidence: "certain", knownAs: "confirmed" }]);
    fixture.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    expect(await targets()).toMatchObject([{ confidence: "possible", knownAs: "new" }]);
  });
});

const readApplication = async (appId: string) => {
  const graph = createGraph({
    ...live,
    identity: createIdentity(live.config),
    log: fixture.world.log,
    limits: SHORT_WAITS,
  });
  return (await graph.findApplication({ appId }))!;
};

describe("a rotation policy", () => {
  test("is rejected if a rotation could never complete automatically", async () => {
    const [app, otherApp, unmatched] = [fixture.addApplication(), fixture.addApplication(), fixture.addApplication()];
    await fixture.discover(app, otherApp);
    const expectRejected = async (change: object, detail: string) =>
      await expect(fixture.setPolicy(app.appId, change)).rejects.toEqual(problemWith("invalidRequest", detail));
    await expectRejected({ updateKeyVaults: false }, "updateKeyVaults: must be true");
    await expectRejected({ targets: [unmatched.assetId] }, "is not proven to store");
    await expectRejected({ targets: ["kv.key.x"] }, "must be the asset ID of a vault secret");
    // Due 30 days before the expiry, 7 days of overlap, and one day to spare.
    await expectRejected({ expiryDays: 38, overlapDays: 7 }, "must give a lifetime of more than 38 days");
    fixture.reasons = ["It has no client secret."];
    await expectRejected({}, "can't be true: It has no client secret.");
    fixture.reasons = [];
    await expect(fixture.setPolicy(unmatched.appId)).rejects.toEqual(
      problemWith("invalidRequest", "no key vault secret is proven to store"),
    );
    await expect(fixture.setPolicy(app.appId, { targets: ["kv-lifecycle-service.secret.x"] })).rejects.toMatchObject({
      code: "serviceVault",
    });
    expect(await fixture.setPolicy(app.appId, { expiryDays: 39, overlapDays: 7 })).toMatchObject({ expiryDays: 39 });
    const sibling = { ...app, name: `${app.name}-sibling` };
    fixture.control.putSecret(VAULT, { name: sibling.name, value: "any", contentType: app.contentType });
    await fixture.discover(app, sibling, otherApp);
    const set = await fixture.setPolicy(app.appId, { targets: [app.assetId] });
    await fixture.policies.remove(app.appId, BOSS, set.etag);
    await fixture.confirm({ ...sibling, assetId: `${VAULT}.secret.${sibling.name}` });
    await expectRejected({ targets: [app.assetId] }, `targets: must also name ${VAULT}.secret.${sibling.name}`);
    fixture.control.directory.set({ policy: { longestDays: 38 } });
    await expectRejected({}, "with at most 38 by the tenant's policy");
    fixture.control.directory.set({ policy: { additionRefused: true } });
    await expectRejected({}, "forbids new client secrets");
  });

  test("is changed only with its current ETag and recorded in the audit log", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    const first = await fixture.setPolicy(app.appId, { automatic: false });
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

  test("without the service's row signature is ignored", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    const { partitionKey, rowKey } = await fixture.setPolicy(app.appId);
    const { createTables } = await import("../../shared/platform/storage/tables.ts");
    const { entity } = await import("../../shared/platform/storage/entity.ts");
    const { PolicyRecord } = await import("../../shared/rotation/policy.ts");
    const unsigned = entity("RotationPolicies", PolicyRecord);
    const plain = createTables({ connectionString: azurite.connectionString(`policies${accountIndex - 1}`) });
    const row = (await plain.get(unsigned, partitionKey, rowKey))!;
    await plain.replace(unsigned, { ...row, expiryDays: 700 });
    expect(await fixture.runTimer()).toEqual([]);
    expect(await fixture.policies.getMany([app.appId])).toEqual(new Map());
  });
});

describe("automatic rotation of a due secret", () => {
  test("duplicate timer runs and messages start one rotation", async () => {
    const [app, later] = [fixture.addApplication(), fixture.addApplication({ expiresInDays: 60 })];
    await fixture.discover(app, later);
    expect(await fixture.runTimer()).toEqual([]);
    await fixture.setPolicy(app.appId, { targets: [app.assetId] });
    await fixture.setPolicy(later.appId);
    expect(await fixture.notices("rotationDue")).toEqual([expect.stringContaining("Automatic rotation starts after")]);
    expect(await fixture.runTimer(2)).toEqual([app.appId]);
    await fixture.automatic.begin(app.appId, "late");
    expect(await fixture.runTimer()).toEqual([]);
    const [rotation, ...others] = await fixture.rotationsOf(app.appId);
    expect(others).toEqual([]);
    expect(rotation).toMatchObject({ automatic: true, oldKeyId: app.keyId, requestedBy: "system" });
    const { row } = await fixture.world.run(rotation!.rotationId);
    expect(row.status).toBe("completed");
    expect(fixture.control.directory.keyIdOf(app.appId, fixture.control.secretValue(VAULT, app.name)!)).toBe(
      row.newKeyId,
    );
    const [doneText] = await fixture.notices("rotationDone");
    expect(doneText).toContain(`${app.keyId} was deleted`);
    // The new secret is valid for 180 days, so it is due 150 days later: 30 days before it expires.
    await fixture.discover(app, later);
    fixture.world.advanceClock(DAY_MS);
    expect(await fixture.runTimer()).toEqual([]);
  });

  test("two simultaneous messages leave the policy without an attention entry", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    await Promise.all(["first", "second"].map((requestId) => fixture.automatic.begin(app.appId, requestId)));
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(1);
    expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
  });

  test("the alert of a failed rotation says that the old secret was deleted", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    await fixture.runTimer();
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

  test("a secret that the service created is due after half its lifetime at the earliest", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId, { expiryDays: 40 });
    await fixture.runTimer();
    const { rotationId } = (await fixture.rotationsOf(app.appId))[0]!;
    const createdAtMs = fixture.world.clock.now().getTime();
    const { row } = await fixture.world.run(rotationId);
    expect(row.status).toBe("completed");
    await fixture.discover({ ...app, contentType: `${app.name}:${app.appId}:${row.newKeyId}` });
    const moveToAge = (days: number) =>
      fixture.world.advanceClock(createdAtMs + days * DAY_MS - fixture.world.clock.now().getTime());
    // Valid for 40 days and due 30 days before expiry: on day 10. Half the lifetime is day 20.
    for (const [days, rotations] of [
      [19, 1],
      [21, 2],
    ] as const) {
      moveToAge(days);
      expect(await fixture.runTimer()).toEqual([app.appId]);
      expect(await fixture.rotationsOf(app.appId)).toHaveLength(rotations);
    }
  });

  test("the policy needs attention if no match is proved or a new secret would expire too soon", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.setPolicy(app.appId);
    fixture.control.putSecret(VAULT, { name: app.name, value: "another", contentType: app.contentType });
    await fixture.runTimer();
    const unproved = await fixture.policies.get(app.appId);
    expect(unproved.attention).toMatchObject({ code: "noTarget", message: expect.stringContaining(app.keyId) });
    expect(await fixture.runTimer()).toEqual([]);
    fixture.control.directory.set({ policy: { longestDays: 20 } });
    fixture.world.advanceClock(DAY_MS);
    await fixture.runTimer();
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "lifeTooShort" });
    expect(await fixture.notices("rotationFailed")).toEqual([
      expect.stringContaining("A new secret would be valid for 20 days"),
    ]);
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
  });

  test("no rotation starts without a license or during another rotation", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.setPolicy(app.appId);
    fixture.world.tier = "core";
    expect(await fixture.runTimer()).toEqual([]);
    await fixture.automatic.begin(app.appId, "message sent before the license ended");
    fixture.world.tier = "pro";
    const { rotationId } = await fixture.rotations.begin(
      { appId: app.appId, secretId: app.keyId, updateKeyVaults: true, overlapDays: 1, removeExpired: false },
      BOSS,
    );
    expect(await fixture.notices("rotationDue")).toEqual([expect.stringContaining(`is in progress: ${rotationId}`)]);
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(1);
  });

  test("a rotation is attempted three times until the policy is set again", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    for (let day = 1; day <= 4; day++) {
      await fixture.runTimer();
      for (const { rotationId, status } of await fixture.rotationsOf(app.appId)) {
        if (isOver(status)) continue;
        await fixture.rotations.cancel(rotationId, BOSS);
        await fixture.world.run(rotationId);
      }
      fixture.world.advanceClock(DAY_MS);
    }
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(3);
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "failedRepeatedly" });
    await fixture.setPolicy(app.appId);
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(4);
  });

  test("an unclear place of one secret does not delay the rotation of another one", async () => {
    const app = fixture.addApplication();
    const { control } = live.cloud;
    // Expires first, so its rotation is tried first.
    const { keyId, value } = control.directory.addSecret(app.appId, { name: "second", expiresInDays: 5 });
    const [vaultName, name] = ["kv-stranger", `${app.name}-second`];
    const contentType = `${name}:${app.appId}:${keyId}`;
    control.putSecret(vaultName, { name, value, contentType, createdDaysAgo: 1 });
    await fixture.discover({ ...app, vaultName, name, contentType }, app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    control.addFault({ match: { vault: vaultName }, action: { kind: "fail", status: 503 } });
    await fixture.runTimer();
    expect(await fixture.rotationsOf(app.appId)).toMatchObject([{ automatic: true, oldKeyId: app.keyId }]);
  });

  test("ten rotations that outages ended are not followed by another one", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    live.cloud.control.addFault({ match: { operation: "graph.addPassword" }, action: { kind: "throttle" } });
    for (let day = 1; day <= 11; day++) {
      await fixture.runTimer();
      const [last] = await fixture.rotationsOf(app.appId);
      if (!isOver(last!.status)) await fixture.world.run(last!.rotationId);
      fixture.world.advanceClock(DAY_MS);
    }
    expect(await fixture.rotationsOf(app.appId)).toHaveLength(10);
    expect((await fixture.policies.get(app.appId)).attention).toMatchObject({ code: "failedRepeatedly" });
  });

  test("a rotation that an outage ended is attempted again each day", async () => {
    const app = fixture.addApplication();
    await fixture.discover(app);
    await fixture.confirm(app);
    await fixture.setPolicy(app.appId);
    live.cloud.control.addFault({
      match: { operation: "graph.addPassword" },
      action: { kind: "throttle" },
    });
    for (let day = 1; day <= 4; day++) {
      await fixture.runTimer();
      for (const { rotationId, status } of await fixture.rotationsOf(app.appId))
        if (!isOver(status)) await fixture.world.run(rotationId);
      fixture.world.advanceClock(DAY_MS);
    }
    const rotations = await fixture.rotationsOf(app.appId);
    expect(rotations.map(({ status, failure }) => [status, failure!.code])).toEqual(
      Array.from({ length: 4 }, () => ["failed", "notCreated"]),
    );
    expect((await fixture.policies.get(app.appId)).attention).toBeUndefined();
    live.cloud.control.clearFaults();
    await fixture.runTimer();
    const [last] = await fixture.rotationsOf(app.appId);
    expect((await fixture.world.run(last!.rotationId)).row.status).toBe("completed");
  });
});

describe("the maintenance window of a policy", () => {
  const now = () => fixture.world.clock.now();
  /** Returns a window of two hours that opens after some hours, on that day of the week only. */
  function windowIn(hours: number): MaintenanceWindow {
    const [opens, closes] = [hours, hours + 2].map((after) => new Date(now().getTime() + after * HOUR_MS));
    const timeOf = (at: Date) => at.toISOString().slice(11, 16);
    const days = [WEEKDAYS[(opens!.getUTCDay() + 6) % 7]!];
    return { days, from: timeOf(opens!), to: timeOf(closes!), timeZone: "UTC" };
  }
  const isOpenAt = (window: MaintenanceWindow, at: string | undefined) =>
    closedUntil(window, new Date(at ?? "")) === undefined;

  /** Adds an application with a policy, and a second place if asked for. */
  async function applicationWithWindow(
    maintenanceWindow: MaintenanceWindow,
    { expiresInDays = 20, places = 1 }: { expiresInDays?: number; places?: number } = {},
  ) {
    const app = fixture.addApplication({ expiresInDays });
    const apps = places === 1 ? [app] : [app, fixture.copySecretTo(app, "kv-stranger", 30)];
    await fixture.discover(...apps);
    await fixture.confirm(...apps);
    await fixture.setPolicy(app.appId, { maintenanceWindow, overlapDays: 1 });
    return app;
  }

  /** Starts the rotation in a window that opens after an hour, and returns its ID. */
  async function startInWindow(app: { appId: string }): Promise<string> {
    expect(await fixture.runTimer()).toEqual([app.appId]);
    expect(await fixture.rotationsOf(app.appId)).toEqual([]);
    // The timer checks the application again when the window opens.
    expect(await fixture.runTimer()).toEqual([]);
    fixture.world.advanceClock(HOUR_MS + 60_000);
    expect(await fixture.runTimer()).toEqual([app.appId]);
    return (await fixture.rotationsOf(app.appId))[0]!.rotationId;
  }

  /** Starts a rotation, and closes the window before the rotation publishes. */
  async function waitingForWindow(window: MaintenanceWindow) {
    const rotationId = await startInWindow(await applicationWithWindow(window));
    await fixture.world.run(rotationId, { until: ({ status }) => status === "publishing" });
    fixture.world.advanceClock(3 * HOUR_MS);
    const closedAt = now().getTime();
    const { row } = await fixture.world.run(rotationId, {
      until: ({ dueAt }) => Date.parse(dueAt) > closedAt + HOUR_MS,
    });
    expect([row.status, row.publications[0]!.state]).toEqual(["publishing", "planned"]);
    return { rotationId, closedAt };
  }

  test("an automatic rotation starts, publishes and removes the old secret only while it is open", async () => {
    const window = windowIn(1);
    const app = await applicationWithWindow(window);
    const rotationId = await startInWindow(app);
    const { row } = await fixture.world.run(rotationId);
    expect([row.status, row.notes]).toEqual(["completed", []]);
    const startedAt = (name: string) => row.steps.find((step) => step.name === name)?.startedAt;
    for (const at of [row.createdAt, row.publications[0]!.writtenAt, startedAt("revoke")])
      expect(isOpenAt(window, at)).toBe(true);
    // The overlap period ended on a day without a window.
    expect(isOpenAt(window, row.overlapEndsAt)).toBe(false);
    expect(Date.parse(startedAt("revoke")!) - Date.parse(row.createdAt)).toBeGreaterThan(6 * DAY_MS);
  });

  test("a new secret that is created when the window closes is published in the next one", async () => {
    const window = windowIn(1);
    const { rotationId, closedAt } = await waitingForWindow(window);
    const { row } = await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    const [{ state, writtenAt } = {}] = row.publications;
    expect([state, isOpenAt(window, writtenAt), Date.parse(writtenAt!) > closedAt]).toEqual(["written", true, true]);
  });

  test("a user can cancel a rotation that waits for the window", async () => {
    const { rotationId, closedAt } = await waitingForWindow(windowIn(1));
    await fixture.rotations.cancel(rotationId, BOSS);
    expect((await fixture.world.run(rotationId)).row.status).toBe("cancelled");
    expect(now().getTime() - closedAt).toBeLessThan(HOUR_MS);
  });

  test("a rotation that has published publishes the rest, and a rollback restores it, while it is closed", async () => {
    for (const cancels of [false, true]) {
      const app = await applicationWithWindow(windowIn(1), { places: 2 });
      const rotationId = await startInWindow(app);
      const until = ({ publications }: { publications: { state: string }[] }) =>
        publications.filter(({ state }) => state === "written").length === 1;
      await fixture.world.run(rotationId, { until });
      fixture.world.advanceClock(3 * HOUR_MS);
      const closedAt = now().getTime();
      if (cancels) await fixture.rotations.cancel(rotationId, BOSS);
      const { row } = await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
      expect(row.status).toBe(cancels ? "cancelled" : "overlapping");
      expect(row.publications.map(({ state }) => state).sort()).toEqual(
        cancels ? ["planned", "restored"] : ["written", "written"],
      );
      expect(now().getTime() - closedAt).toBeLessThan(HOUR_MS);
    }
  });

  test("a place that becomes readable in the overlap period is written only while it is open", async () => {
    const window = windowIn(1);
    const app = await applicationWithWindow(window, { places: 2 });
    live.cloud.control.addFault({ match: { vault: "kv-stranger" }, action: { kind: "deny" } });
    const rotationId = await startInWindow(app);
    const started = await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    expect(started.row.publications).toHaveLength(1);
    live.cloud.control.clearFaults();
    const { row } = await fixture.world.run(rotationId);
    expect(row.status).toBe("completed");
    expect(row.publications.map(({ state, writtenAt }) => [state, isOpenAt(window, writtenAt)])).toEqual([
      ["written", true],
      ["written", true],
    ]);
  });

  test.each([
    // A rotation needs a window that opens at least an hour before the secret expires.
    ["before it opens", 1, 72],
    ["soon after it opens", 1, 23.5],
  ])("a secret that expires %s is rotated before, with a note", async (_, expiresInDays, opensInHours) => {
    const window = windowIn(opensInHours);
    const app = await applicationWithWindow(window, { expiresInDays });
    expect(await fixture.runTimer()).toEqual([app.appId]);
    const [summary] = await fixture.rotationsOf(app.appId);
    const { row } = await fixture.world.run(summary!.rotationId, { until: ({ status }) => status === "overlapping" });
    expect(row).toMatchObject({
      publications: [{ state: "written" }],
      notes: [expect.stringContaining("did not wait for the maintenance window")],
    });
    expect(isOpenAt(window, row.publications[0]!.writtenAt)).toBe(false);
  });

  test("a user who finishes the rotation does not wait for it", async () => {
    const app = await applicationWithWindow(windowIn(1));
    const rotationId = await startInWindow(app);
    await fixture.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
    fixture.world.advanceClock(3 * HOUR_MS);
    const closedAt = now().getTime();
    await fixture.rotations.finish(rotationId, false, BOSS);
    expect((await fixture.world.run(rotationId)).row.status).toBe("completed");
    expect(now().getTime() - closedAt).toBeLessThan(HOUR_MS);
  });

  test("a rotation that a user starts has no window", async () => {
    const app = await applicationWithWindow(windowIn(30));
    const row = await fixture.world.rotate(fixture.requestFor(app));
    expect([row.status, row.maintenanceWindow, row.notes]).toEqual(["completed", undefined, []]);
  });
});
