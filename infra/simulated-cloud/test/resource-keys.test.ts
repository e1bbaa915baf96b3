import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { KEY_KINDS, type KeyKind } from "../arm/key-kinds.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, type ArmResponse, armClient } from "./arm-client.ts";

// Tests resources with two keys in the simulated cloud: the list and regenerate calls of each kind, and calls that
// only a current key can sign.

let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({ company: "keys" });
  arm = await armClient(cloud);
});
afterAll(() => cloud?.stop());

/** The ID of the company's only resource of a kind. */
const idOf = (kind: KeyKind) => cloud.control.consumers.resources().find(({ type }) => type === kind.type)!.id;
const kindOf = (type: string) => KEY_KINDS.find((one) => one.type === type)!;
/** The newest API version of a kind: the last one that the error for a wrong version lists. */
async function versionOf(kind: KeyKind): Promise<string> {
  const { body } = await arm("POST", `${idOf(kind)}/${kind.list}`, "1999-01-01");
  expect(body.error.code).toBe("NoRegisteredProviderFound");
  return /([0-9-]+)'\.$/.exec(body.error.message)![1]!;
}
const listKeys = async (kind: KeyKind) => arm("POST", `${idOf(kind)}/${kind.list}`, await versionOf(kind));
/** Regenerates the key with the index, by the kind's own parameter. */
async function regenerate(kind: KeyKind, index: number): Promise<ArmResponse> {
  const isStore = kind.type.endsWith("configurationStores");
  const key = isStore ? `${idOf(kind).split("/").at(-1)}-${kind.keys[index]}` : kind.keys[index]!;
  const path = `${idOf(kind)}/${kind.regenerate}${kind.parameter === undefined ? `/${key}` : ""}`;
  return arm("POST", path, await versionOf(kind), kind.parameter && { [kind.parameter]: key });
}
/** Current values of the keys in the kind's order, from the cloud's own history. */
function currentOf(kind: KeyKind): [string, string][] {
  const history = cloud.control.consumers.keys(idOf(kind));
  return kind.keys.map((key) => [key, history.find((one) => one.key === key && one.until === undefined)!.value]);
}

test.each(KEY_KINDS.map((kind) => [kind.type, kind] as const))("%s lists and regenerates its keys", async (_, kind) => {
  const before = new Map(currentOf(kind));
  const listed = await listKeys(kind);
  expect(listed.status).toBe(200);
  const firstPage = JSON.stringify(listed.body);
  for (const [key, value] of before) {
    // App Configuration's last key is on the second page.
    if (key !== "sr") expect(firstPage, key).toContain(value);
  }

  const answer = await regenerate(kind, 1);
  const requestId = answer.headers.get("x-ms-request-id");
  const operationUrl = answer.headers.get("azure-asyncoperation");
  expect([answer.status, operationUrl !== null]).toEqual(kind.asynchronous ? [202, true] : [200, false]);
  if (operationUrl !== null) {
    // The first list after a 202 still has the old key, and a second regeneration conflicts.
    expect((await listKeys(kind)).body).toEqual(listed.body);
    expect((await regenerate(kind, 0)).status).toBe(409);
    const { pathname, searchParams } = new URL(operationUrl);
    const poll = () => arm("GET", pathname, searchParams.get("api-version")!);
    expect([(await poll()).body.status, (await poll()).body.status]).toEqual(["InProgress", "Succeeded"]);
  }
  const after = new Map(currentOf(kind));
  const changed = [...before.keys()].filter((key) => before.get(key) !== after.get(key));
  expect(changed).toEqual([kind.keys[1]]);
  expect(JSON.stringify((await listKeys(kind)).body)).toContain(after.get(kind.keys[1]!));

  const [replaced, created] = cloud.control.consumers.keys(idOf(kind)).filter(({ key }) => key === kind.keys[1]);
  expect(replaced).toMatchObject({ value: before.get(kind.keys[1]!), until: created!.from });
  expect(created!.regeneration).toMatchObject({ requestId, by: expect.any(String) });
});

test("regenerated keys survive a restart", async () => {
  const data = mkdtempSync(join(tmpdir(), "keys-"));
  const first = await startCloud({ company: "keys", data });
  const { id, type } = first.control.consumers.resources().find((one) => one.type.endsWith("/storageAccounts"))!;
  const regenerated = await (await armClient(first))("POST", `${id}/regenerateKey`, await versionOf(kindOf(type)), {
    keyName: "key2",
  });
  expect(regenerated.status).toBe(200);
  const valuesOf = (cloud: Cloud) => cloud.control.consumers.keys(id).map(({ key, value }) => [key, value]);
  const values = valuesOf(first);
  await first.stop();
  const second = await startCloud({ data });
  expect(values).toHaveLength(3);
  expect(valuesOf(second)).toEqual(values);
  await second.stop();
  rmSync(data, { recursive: true });
});

test.each(KEY_KINDS.map((kind) => [kind.type, kind] as const))("%s rejects an unknown key", async (_, kind) => {
  const version = await versionOf(kind);
  const history = cloud.control.consumers.keys(idOf(kind));
  const path = `${idOf(kind)}/${kind.regenerate}`;
  const statuses =
    kind.parameter === undefined
      ? [(await arm("POST", `${path}/none`, version)).status]
      : [
          (await arm("POST", path, version)).status,
          (await arm("POST", path, version, { [kind.parameter]: "none" })).status,
          (await arm("POST", path, version, { [kind.parameter]: kind.keys[0], other: 1 })).status,
        ];
  expect(new Set(statuses)).toEqual(new Set([400]));
  expect(cloud.control.consumers.keys(idOf(kind))).toEqual(history);
});

test("each call needs its own action", async () => {
  const kind = kindOf("Microsoft.Storage/storageAccounts");
  const allow = (actions: string[]) =>
    cloud.control.allowOnly([
      { scope: idOf(kind), actions: actions.map((one) => `${kind.type}/${one}`), dataActions: [] },
    ]);
  const version = await versionOf(kind);
  const call = async () => [
    (await arm("POST", `${idOf(kind)}/listKeys`, version)).status,
    (await arm("POST", `${idOf(kind)}/regenerateKey`, version, { keyName: "key1" })).status,
  ];
  allow(["read"]);
  expect(await call()).toEqual([403, 403]);
  allow(["listkeys/action"]);
  expect(await call()).toEqual([200, 403]);
  allow(["regenerateKey/action"]);
  expect(await call()).toEqual([403, 200]);
  cloud.control.allowOnly(undefined);
});

test("App Configuration lists its keys in pages, with IDs", async () => {
  const kind = kindOf("Microsoft.AppConfiguration/configurationStores");
  const { body } = await listKeys(kind);
  const { pathname, searchParams } = new URL(body.nextLink);
  const next = await arm(
    "GET",
    `${pathname}?$skiptoken=${searchParams.get("$skiptoken")}`,
    searchParams.get("api-version")!,
  );
  expect([...body.value, ...next.body.value].map(({ id, name, readOnly }) => [id, name, readOnly])).toEqual([
    ["appcs-acme-keys-p", "Primary", false],
    ["appcs-acme-keys-s", "Secondary", false],
    ["appcs-acme-keys-pr", "Primary Read Only", true],
    ["appcs-acme-keys-sr", "Secondary Read Only", true],
  ]);
});

test("a container registry without its admin user has no passwords", async () => {
  const kind = kindOf("Microsoft.ContainerRegistry/registries");
  const [id, version] = [idOf(kind), await versionOf(kind)];
  cloud.control.consumers.change(id, { properties: { adminUserEnabled: false } });
  const { status, body } = await arm("POST", `${id}/listCredentials`, version);
  expect([status, body.error.code]).toEqual([400, "UnAuthorizedForCredentialOperations"]);
  cloud.control.consumers.change(id, { properties: { adminUserEnabled: true } });
});

test("an accepted regeneration ends without a poll", async () => {
  const kind = kindOf("Microsoft.DocumentDB/databaseAccounts");
  const before = currentOf(kind);
  expect((await regenerate(kind, 0)).status).toBe(202);
  expect(currentOf(kind)).toEqual(before);
  cloud.control.moveClock(61_000);
  expect(currentOf(kind)).not.toEqual(before);
});

test("Resource Graph lists the resources, and their rules are listed below their namespace", async () => {
  const query =
    "resources | where type in~ ('microsoft.search/searchservices','microsoft.servicebus/namespaces') | project id,name,type";
  const { body } = await arm("POST", "/providers/Microsoft.ResourceGraph/resources", "2022-10-01", { query });
  expect(body.data.map(({ name }: { name: string }) => name).sort()).toEqual([
    "sb-acme",
    "sb-acme-news",
    "sb-acme-orders",
    "srch-acme",
  ]);
  const namespace = cloud.control.consumers.idOf("sb-acme-orders");
  const { body: rules } = await arm("GET", `${namespace}/queues/orders/authorizationRules`, "2024-01-01");
  expect(rules.value.map(({ name }: { name: string }) => name)).toEqual(["app"]);
});

/** Calls a data-plane service of a resource. */
const request = (host: string, path: string, init: RequestInit = {}) => {
  const { port } = new URL(cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
  return fetch(`https://${host}:${port}${path}`, init);
};
/** Sends the request "Get Account Information" to a storage account, signed with a key. */
function accountInformation(account: string, key: string): Promise<Response> {
  const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2023-11-03" };
  const headerLines = Object.entries(headers).map(([name, value]) => `${name}:${value}`);
  // The eleven empty lines are standard headers that the request does not have, such as Content-Length.
  // https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
  const text = [
    "GET",
    ...Array(11).fill(""),
    ...headerLines,
    `/${account}/`,
    "comp:properties",
    "restype:account",
  ].join("\n");
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
  return request(`${account}.blob.localhost`, "/?restype=account&comp=properties", {
    headers: { ...headers, authorization: `SharedKey ${account}:${signature}` },
  });
}

test("a storage account accepts both of its keys, and not a regenerated one", async () => {
  const kind = kindOf("Microsoft.Storage/storageAccounts");
  const [[, first], [, second]] = currentOf(kind) as [[string, string], [string, string]];
  const statuses = async () => [
    (await accountInformation("stacmeorders", first)).status,
    (await accountInformation("stacmeorders", second)).status,
  ];
  expect(await statuses()).toEqual([200, 200]);
  cloud.control.consumers.regenerateKey(idOf(kind), "key1");
  expect(await statuses()).toEqual([403, 200]);
});

test.each([
  [
    "Microsoft.CognitiveServices/accounts",
    "oai-acme.cognitiveservices.localhost",
    "/openai/models?api-version=2024-10-21",
    401,
  ],
  ["Microsoft.Search/searchServices", "srch-acme.search.localhost", "/servicestats?api-version=2024-07-01", 403],
])("%s accepts a current key in the header api-key, but no replaced key", async (type, host, path, rejected) => {
  const kind = kindOf(type);
  const [[key, value]] = currentOf(kind) as [[string, string]];
  const status = async () => (await request(host, path, { headers: { "api-key": value } })).status;
  expect([await status(), (await request(host, path)).status]).toEqual([200, rejected]);
  cloud.control.consumers.regenerateKey(idOf(kind), key);
  expect(await status()).toBe(rejected);
});

test("a regenerated connection string of App Configuration reads the store, and the old one does not", async () => {
  const kind = kindOf("Microsoft.AppConfiguration/configurationStores");
  const read = async (secret: string) => {
    const { port } = new URL(cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
    const [host, path] = [`appcs-acme-keys.azconfig.localhost:${port}`, "/kv?api-version=1.0"];
    // The SHA-256 hash of an empty body.
    const [date, hash] = [new Date().toUTCString(), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="];
    const signature = createHmac("sha256", Buffer.from(secret, "base64"))
      .update(`GET\n${path}\n${date};${host};${hash}`)
      .digest("base64");
    const authorization = `HMAC-SHA256 Credential=appcs-acme-keys-p&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=${signature}`;
    return (
      await fetch(`https://${host}${path}`, {
        headers: { "x-ms-date": date, "x-ms-content-sha256": hash, authorization },
      })
    ).status;
  };
  const [[, before]] = currentOf(kind) as [[string, string]];
  expect(await read(before)).toBe(200);
  cloud.control.consumers.regenerateKey(idOf(kind), "p");
  const after = cloud.control.consumers.keys(idOf(kind)).findLast(({ key }) => key === "p")!.value;
  expect([await read(before), await read(after)]).toEqual([401, 200]);
});
