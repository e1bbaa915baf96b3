import { initialKey } from "simulated-cloud/arm/resource-keys.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { keyCompany } from "simulated-cloud/company/key-company.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readConnectionString } from "../../shared/rotation/resource-keys/connection-strings.ts";
import { KEY_KINDS } from "../../shared/rotation/resource-keys/kinds.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";
import { createRotationClient, type Rotation } from "./http-client.ts";
import { connectionString } from "./resource-key-world.ts";

/**
 * Tests over HTTP of rotations of keys of Azure resources, by the asset ID of a vault secret that stores a key. What happened to a
 * key is read from the simulated cloud's own history.
 */

const ACCOUNT = "stacmeorders";
const [KEY_SECRET, CONNECTION] = ["kv-acme-keys.secret.key-stacmeorders", "kv-shop.secret.orders-connection"];
const company: Company = {
  subscriptions: [
    ...keyCompany.subscriptions,
    {
      name: "Shop",
      vaults: [
        {
          name: "kv-shop",
          secrets: [
            {
              name: "orders-connection",
              value: connectionString(ACCOUNT, initialKey("Microsoft.Storage/storageAccounts", ACCOUNT, "key1")),
            },
          ],
        },
      ],
    },
  ],
};

const storageClock = movedClock();
let service: Service;
let http: ReturnType<typeof createRotationClient>;
beforeAll(async () => {
  service = await Service.start({
    company,
    lease: 1,
    shortWaits: true,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  http = createRotationClient(service, storageClock);
  await service.scan();
  await service.admin("POST", "/api/automation/rotation/credentials/discover");
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

const control = () => service.cloud.control;
const idOf = (type: string) =>
  control()
    .consumers.resources()
    .find((one) => one.type.toLowerCase() === type.toLowerCase())!.id;
const history = (type: string) => control().consumers.keys(idOf(type));
const regenerated = (type: string) =>
  history(type).flatMap(({ key, regeneration }) => (regeneration === undefined ? [] : [key]));
const validKeys = (type: string) => history(type).flatMap(({ value, until }) => (until === undefined ? [value] : []));
const STORAGE = "Microsoft.Storage/storageAccounts";
const currentKey = (name: string) =>
  history(STORAGE).findLast(({ key, until }) => key === name && until === undefined)!.value;
const stored = (assetId: string) => {
  const [vault = "", , secret = ""] = assetId.split(".");
  return control().secretValue(vault, secret)!;
};
const rotate = (assetId: string, body: object = {}) =>
  http.admin("POST", `/api/assets/dependencies/rotate/${assetId}`, body);
const act = (rotationId: string, action: string) =>
  http.admin("POST", `/api/automation/rotation/rotations/${rotationId}/${action}`);

test("a dry run shows which key is in use, which one is regenerated and what happens to the old one", async () => {
  const { status, body } = await rotate(KEY_SECRET, { dryRun: true, targets: [CONNECTION] });
  expect([status, body.needs]).toEqual([200, []]);
  expect(body).toMatchObject({ oldKeyId: "key1", keyKind: "storage", resourceId: idOf(STORAGE), assetId: null });
  const textOf = (step: string) => body.plan.find((one: { step: string }) => one.step === step).text;
  expect(textOf("create")).toContain("Regenerate key2 of the storage account stacmeorders");
  expect(textOf("revoke")).toContain("Leave key1 as it is");
  expect(body.targets.map(({ secretName }: { secretName: string }) => secretName).sort()).toEqual([
    "key-stacmeorders",
    "orders-connection",
  ]);
  expect(regenerated(STORAGE)).toEqual([]);
});

test("a rotation writes the key to two vaults, waits for the overlap, and a user finishes it", async () => {
  const { status, body } = await rotate(KEY_SECRET, { targets: [CONNECTION] });
  expect(status, JSON.stringify(body)).toBe(201);
  await http.waitUntil(body.rotationId, ({ status: now }) => now === "overlapping", { skipsDays: false });
  const key = currentKey("key2");
  expect([stored(KEY_SECRET), stored(CONNECTION)]).toEqual([key, connectionString(ACCOUNT, key)]);
  // The other vault secret stores the same key, so it has no rotation of its own.
  expect((await rotate(CONNECTION)).body).toMatchObject({ code: "rotationUnfinished", rotationId: body.rotationId });
  expect((await act(body.rotationId, "finish")).status).toBe(200);
  const done = await http.waitUntil(body.rotationId, ({ endedAt }) => endedAt !== null);
  expect([done.status, done.newKeyId, regenerated(STORAGE)]).toEqual(["completed", "key2", ["key2"]]);
  expect(JSON.stringify(done)).not.toContain(key);
});

test("a cancelled rotation restores both vaults", async () => {
  const before = [stored(KEY_SECRET), stored(CONNECTION)];
  // Both places are known now, so none is named.
  const { body } = await rotate(KEY_SECRET);
  expect(body.targets).toHaveLength(2);
  await http.waitUntil(body.rotationId, ({ status }) => status === "overlapping", { skipsDays: false });
  expect(stored(KEY_SECRET)).toBe(currentKey("key1"));
  await act(body.rotationId, "cancel");
  const done = await http.waitUntil(body.rotationId, ({ endedAt }) => endedAt !== null);
  expect([done.status, stored(KEY_SECRET), stored(CONNECTION)]).toEqual(["cancelled", ...before]);
  expect(regenerated(STORAGE)).toEqual(["key2", "key1"]);
});

test("a new value in the request replaces the vault secret itself, and no key is regenerated", async () => {
  const { status, body } = await rotate(KEY_SECRET, { dryRun: true, newValue: "a value of the user" });
  expect([status, body.assetId, body.resourceId]).toEqual([200, KEY_SECRET, null]);
});

const OTHER_KINDS = KEY_KINDS.filter(({ name, reportOnly }) => reportOnly === undefined && name !== "storage");
test.each(OTHER_KINDS.map((kind) => [kind.title, kind] as const))(
  "%s: the key that the vault does not store is regenerated once and written to the vault",
  async (_, kind) => {
    const names = idOf(kind.type)
      .split("/")
      .slice(8)
      .filter((_segment, index) => index % 2 === 0);
    const assetId = `kv-acme-keys.secret.key-${names.join("-")}`;
    const old = stored(assetId);
    const { status, body } = await rotate(assetId, { overlapDays: 0 });
    expect(status, JSON.stringify(body)).toBe(201);
    // Days that are skipped for each kind would outlast the license.
    const isDone = (one: Rotation) => one.endedAt !== null || one.attention !== null || one.needsConfirmation;
    const done = await http.waitUntil(body.rotationId, isDone, { skipsDays: false });
    expect(done.status, JSON.stringify([done.failure, done.attention, done.reasons])).toBe("completed");
    const [, other] = kind.pairs.find(([first]) => first === done.oldKeyId)!;
    expect([done.newKeyId, regenerated(kind.type)]).toEqual([other, [expect.any(String)]]);
    const value = readConnectionString(stored(assetId))?.key ?? stored(assetId);
    expect(value).not.toBe(old);
    expect(validKeys(kind.type)).toContain(value);
    for (const key of validKeys(kind.type)) expect(JSON.stringify(done)).not.toContain(key);
    const unclear = done.notes.filter((note: string) => note.includes("gave no clear answer"));
    expect(unclear, "the note of an unclear proof").toEqual([]);
    expect(validKeys(kind.type)).toContain(old);
  },
);
