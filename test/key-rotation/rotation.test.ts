import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { createUsers } from "../support/users.ts";
import {
  cluster,
  companyWith,
  diskEncryptionSet,
  type KeyRotationAnswer,
  type KeyRotationWorld,
  openKeyRotationWorld,
  sqlServer,
  storage,
  VAULT,
} from "./world.ts";

/**
 * Tests over HTTP of rotations of vault keys. Which versions a key has, and which version a resource uses, is read from the
 * simulated cloud.
 */

const company = companyWith(
  [
    { name: "all" },
    { name: "late" },
    { name: "pinned" },
    { name: "unused" },
    { name: "twice" },
    { name: "unread" },
    { name: "off", enabled: false },
    { name: "policy", rotation: { rotateAfterDays: 300, expiryDays: 400 } },
  ],
  [
    storage("stall", "all"),
    sqlServer("sqlall", "all"),
    diskEncryptionSet("desall", "all"),
    storage("stlate", "late"),
    storage("stpinned", "pinned", true),
    cluster("aks", "pinned"),
    storage("sttwice", "twice"),
    storage("stunread", "unread"),
  ],
);

let world: KeyRotationWorld;
beforeAll(async () => {
  world = await openKeyRotationWorld(company);
}, 120_000);
afterAll(() => world?.stop());
afterEach(() => world.control.clearFaults());

const statesOf = ({ consumers }: KeyRotationAnswer) =>
  Object.fromEntries(consumers.map(({ name, state }: { name: string; state: string }) => [name, state]));
const hasVersion = ({ newVersion }: KeyRotationAnswer) => newVersion !== null;
/** Starts a rotation, and waits until the first check of the consumers after the new version. */
async function rotated(key: string): Promise<KeyRotationAnswer> {
  const { status, body } = await world.rotate(key);
  expect(status, JSON.stringify(body)).toBe(201);
  const isChecked = ({ consumers }: KeyRotationAnswer) =>
    consumers.length > 0 && consumers.every((one: { dueAt: string | null }) => one.dueAt !== null);
  return await world.waitUntil(body.runId, (run) => run.endedAt !== null || (hasVersion(run) && isChecked(run)));
}

describe("the plan", () => {
  test("names the consumers, which of them follow by themselves, and the command for the others", async () => {
    const { status, body } = await world.rotate("pinned", { dryRun: true });
    expect([status, body.status, body.needs, body.runId]).toEqual([200, "planned", [], null]);
    expect(statesOf(body)).toEqual({ stpinned: "pinned", aks: "pinned" });
    const [account] = body.consumers.filter(({ name }: { name: string }) => name === "stpinned");
    expect(account.command).toContain("az storage account update --name stpinned");
    expect(account.command).toContain("--encryption-key-version NEW-VERSION");
    expect(body.keepOldVersion).toContain("aks (kubernetesCluster) uses it.");

    const { body: all } = await world.rotate("all", { dryRun: true });
    expect(statesOf(all)).toEqual({ stall: "waiting", sqlall: "waiting", desall: "waiting" });
    expect(all.consumers.every((one: KeyRotationAnswer) => one.followsNewest && one.documentation !== null)).toBe(true);
    expect(all.consumers.map((one: KeyRotationAnswer) => one.pickUpSeconds).sort()).toEqual([3600, 86400, 86400]);
    expect(world.versions("all")).toHaveLength(1);
  });

  test("says why a key can't be rotated now, and starting the rotation fails for that reason", async () => {
    const { status, body } = await world.rotate("off", { dryRun: true });
    expect([status, body.needs]).toEqual([200, ["The current version of off is disabled. Enable it first."]]);
    expect((await world.rotate("off")).body.code).toBe("notRotatable");
    expect(world.versions("off")).toHaveLength(1);
  });

  test("names a consumer that can't be read as unknown", async () => {
    const resource = world.control.consumers.idOf("stunread");
    world.control.addFault({ match: { resource }, action: { kind: "deny" } });
    const { body } = await world.rotate("unread", { dryRun: true });
    expect(statesOf(body)).toEqual({ stunread: "unknown" });
    expect(body.consumers[0].message).toContain("Dependency Reader");
    expect(body.keepOldVersion).toContain("It is unknown which version stunread (storageAccount) uses.");
  });
});

test("a rotation is done once every consumer uses the new version", { timeout: 120_000 }, async () => {
  const waiting = await rotated("all");
  const [before, after] = world.versions("all");
  expect(waiting).toMatchObject({ status: "waiting", oldVersion: before, newVersion: after, createdElsewhere: false });
  expect(statesOf(waiting)).toEqual({ stall: "waiting", sqlall: "waiting", desall: "waiting" });
  expect(waiting.keepOldVersion).toContain("stall (storageAccount) uses it.");
  expect(waiting.steps.map(({ state }: { state: string }) => state)).toEqual(["done", "running"]);

  // The disk encryption set follows within the hour, the other two later.
  const hourLater = await world.skip(waiting.runId, HOUR_MS);
  expect(statesOf(hourLater)).toEqual({ stall: "waiting", sqlall: "waiting", desall: "followed" });
  expect((await world.rotate("all")).body).toMatchObject({ code: "rotationUnfinished", rotationId: waiting.runId });

  const done = await world.skip(waiting.runId, 13 * HOUR_MS);
  expect([done.status, statesOf(done)]).toEqual([
    "done",
    { stall: "followed", sqlall: "followed", desall: "followed" },
  ]);
  expect(done.keepOldVersion).toContain("Backups of databases that were encrypted with it need it.");
  expect(world.versions("all")).toHaveLength(2);
  const [item] = world.control.items(VAULT, "keys").filter(({ name }) => name === "all");
  expect(item).toMatchObject({ version: after, enabled: true });
  const { body } = await world.admin("GET", `/audit/entries?limit=1000`);
  const entries = body.items.filter(({ target }: KeyRotationAnswer) => target?.id === done.runId);
  expect(entries.map(({ eventType, outcome }: KeyRotationAnswer) => `${eventType} ${outcome}`).sort()).toEqual([
    "keyRotation.ended success",
    "keyRotation.started intent",
    "keyRotation.started success",
    "keyRotation.versionCreated intent",
    "keyRotation.versionCreated success",
  ]);
});

test("a consumer that does not follow in time makes the rotation late, and it is done when it follows", async () => {
  const id = world.control.consumers.idOf("stlate");
  world.control.consumers.delayNewKeyVersions(id, Number.POSITIVE_INFINITY);
  const { runId } = await rotated("late");
  const late = await world.skip(runId, DAY_MS + HOUR_MS);
  expect([late.status, statesOf(late)]).toEqual(["late", { stlate: "late" }]);
  expect(late.lateSince).not.toBeNull();
  expect(late.consumers[0].command).toContain(`--encryption-key-version ${late.newVersion}`);
  world.control.consumers.delayNewKeyVersions(id, 0);
  const done = await world.skip(runId, 7 * HOUR_MS);
  expect([done.status, statesOf(done)]).toEqual(["done", { stlate: "followed" }]);
}, 120_000);

test("pinned consumers are never changed; the rotation is done when a person updates them", async () => {
  const { runId, newVersion, oldVersion, ...run } = await rotated("pinned");
  expect(statesOf(run)).toEqual({ stpinned: "pinned", aks: "pinned" });
  const commands = run.consumers.map(({ command }: KeyRotationAnswer) => command);
  expect(commands.some((one: string) => one.includes(`--encryption-key-version ${newVersion}`))).toBe(true);
  expect(commands.some((one: string) => one.startsWith("az aks update"))).toBe(true);
  const late = await world.skip(runId, DAY_MS + HOUR_MS);
  expect([late.status, statesOf(late)]).toEqual(["late", { stpinned: "pinned", aks: "pinned" }]);
  const account = world.control.consumers.idOf("stpinned");
  const kubernetes = world.control.consumers.idOf("aks");
  expect(JSON.stringify(world.control.consumers.properties(account))).toContain(oldVersion);

  // A person runs the commands.
  for (const id of [account, kubernetes]) {
    const properties = JSON.stringify(world.control.consumers.properties(id)).replaceAll(oldVersion, newVersion);
    world.control.consumers.change(id, { properties: JSON.parse(properties) });
  }
  const done = await world.skip(runId, 7 * HOUR_MS);
  expect([done.status, statesOf(done)]).toEqual(["done", { stpinned: "followed", aks: "followed" }]);
}, 120_000);

test("the next rotation replaces a late one, and waits for the same consumers", async () => {
  const id = world.control.consumers.idOf("sttwice");
  world.control.consumers.delayNewKeyVersions(id, Number.POSITIVE_INFINITY);
  const first = await rotated("twice");
  expect((await world.skip(first.runId, DAY_MS + HOUR_MS)).status).toBe("late");
  const second = await rotated("twice");
  expect((await world.get(first.runId)).status).toBe("superseded");
  expect([second.status, second.oldVersion]).toEqual(["waiting", first.newVersion]);
  // The consumer still uses the version before both rotations.
  expect(second.consumers[0].keyVersion).toBe(first.oldVersion);
  world.control.consumers.delayNewKeyVersions(id, 0);
  expect((await world.skip(second.runId, 2 * HOUR_MS)).status).toBe("done");
  expect(world.versions("twice")).toHaveLength(3);
  const { body } = await world.admin("GET", `/api/automation/keys/rotations?assetId=${world.idOf("twice")}`);
  expect(body.items.map(({ status }: KeyRotationAnswer) => status)).toEqual(["done", "superseded"]);
}, 120_000);

test("a rotation of a key without consumers is done after its first check, and the policy sets the expiry date", async () => {
  const { status, newVersion } = await rotated("policy");
  expect(status).toBe("done");
  const [item] = world.control.items(VAULT, "keys").filter(({ name }) => name === "policy");
  expect(item!.version).toBe(newVersion);
  expect(Date.parse(item!.expires!) - Date.parse(item!.created)).toBe(400 * DAY_MS);
}, 60_000);

test("a consumer that can't be read keeps the rotation open, and makes it late", async () => {
  const resource = world.control.consumers.idOf("stunread");
  world.control.addFault({ match: { resource }, action: { kind: "deny" } });
  const { runId, ...run } = await rotated("unread");
  expect([run.status, statesOf(run)]).toEqual(["waiting", { stunread: "unknown" }]);
  const late = await world.skip(runId, 2 * DAY_MS);
  expect([late.status, statesOf(late)]).toEqual(["late", { stunread: "unknown" }]);
  world.control.clearFaults();
  expect((await world.skip(runId, 7 * HOUR_MS)).status).toBe("done");
}, 120_000);

test("without the permission to rotate, the rotation fails with the missing role and adds no version", async () => {
  world.control.addFault({ match: { operation: "keyvault.rotateKey" }, action: { kind: "deny" } });
  const { body } = await world.rotate("unused");
  const failed = await world.waitUntil(body.runId, ({ endedAt }) => endedAt !== null);
  expect([failed.status, failed.failure.code]).toEqual(["failed", "accessDenied"]);
  expect(failed.failure.remedy).toContain("Microsoft.KeyVault/vaults/keys/rotate/action");
  expect(world.versions("unused")).toHaveLength(1);
}, 60_000);

test("an unknown asset, a secret's ID and the service's own vault are rejected", async () => {
  const answer = async (id: string) => (await world.admin("POST", `/api/automation/keys/${id}/rotate`)).body.code;
  expect(await answer(`${VAULT}.key.absent`)).toBe("notFound");
  expect(await answer(`${VAULT}.secret.absent`)).toBe("notFound");
  const own = new URL(world.service.environment.SERVICE_KEY_VAULT_URL!).hostname.split(".")[0];
  expect(await answer(`${own}.key.row-signing`)).toBe("serviceVault");
  const { status } = await world.admin("GET", "/api/automation/keys/rotations/01M83W0CN6SDG6BGCAGDABN0C3");
  expect(status).toBe(404);
});

test("an operator can follow rotations, and only an administrator can rotate and change the policy", async () => {
  const user = { username: "key-operator", password: "a password of an operator", role: "operator" } as const;
  await createUsers(world.service, [user]);
  const token = await world.service.signIn(user);
  const path = `/api/automation/keys/${world.idOf("unused")}`;
  const call = async (method: string, suffix: string, body?: object) =>
    (await world.service.call(method, path + suffix, { token, body })).status;
  expect(await call("POST", "/rotate", {})).toBe(403);
  expect(await call("POST", "/rotate", { dryRun: true })).toBe(403);
  expect(await call("PUT", "/rotation-policy", { lifetimeActions: [] })).toBe(403);
  expect(await call("GET", "/rotation-policy")).toBe(200);
  expect((await world.service.call("GET", "/api/automation/keys/rotations", { token })).status).toBe(200);
});

test("messages that are delivered twice or early cause no second version", async () => {
  const before = world.versions("policy").length;
  const { body } = await world.rotate("policy");
  for (let wake = 0; wake < 5; wake++) await world.wake();
  await world.advanceClock(5 * MINUTE_MS);
  for (let wake = 0; wake < 5; wake++) await world.wake();
  await world.waitUntil(body.runId, ({ endedAt }) => endedAt !== null);
  expect(world.versions("policy")).toHaveLength(before + 1);
}, 60_000);
