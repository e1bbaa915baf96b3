import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { KEY_KINDS, type KeyKind } from "../arm/key-kinds.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import { hs256, unsigned } from "../jwt.ts";
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
  // The first values of both keys, and the new one.
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
  // Each regeneration ends after a minute at the latest.
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

/** Signs a text with a key that is base64, or with the key as text. */
const signed = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest("base64");
const bytes = (key: string) => Buffer.from(key, "base64");
const now = () => new Date().toUTCString();
const anHourAgo = () => new Date(Date.now() - 3_600_000).toUTCString();
const port = () => new URL(cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!).port;
const firstKey = (type: string) => currentOf(kindOf(type))[0]![1];
const seconds = (offset: number) => Math.floor(Date.now() / 1000) + offset;

test("Cosmos DB accepts only a signature with its key, a recent date and a version", async () => {
  const key = firstKey("Microsoft.DocumentDB/databaseAccounts");
  const list = async (changed: { key?: string; date?: string; signedDate?: string; version?: string } = {}) => {
    const date = changed.date ?? now();
    const text = `get\ndbs\n\n${(changed.signedDate ?? date).toLowerCase()}\n\n`;
    const token = `type=master&ver=1.0&sig=${signed(bytes(changed.key ?? key), text)}`;
    const headers = { authorization: encodeURIComponent(token), "x-ms-date": date };
    const version = changed.version ?? "2018-12-31";
    return (
      await request("cosmos-acme.documents.localhost", "/dbs", {
        headers: { ...headers, ...(version !== "" && { "x-ms-version": version }) },
      })
    ).status;
  };
  expect(await list()).toBe(200);
  expect([
    await list({ key: bytes("other").toString("base64") }),
    await list({ signedDate: anHourAgo() }),
    await list({ date: anHourAgo() }),
    await list({ version: "" }),
  ]).toEqual([401, 401, 403, 400]);
});

test("Service Bus and Event Hubs accept only an unexpired token of the right key for the right resource", async () => {
  const send = async (
    host: string,
    path: string,
    {
      key,
      entity = "",
      expiry = seconds(60),
      rule = "app",
      sr = `https://${host}/${entity}`,
    }: {
      key: string;
      entity?: string;
      expiry?: number;
      rule?: string;
      sr?: string;
    },
  ) => {
    const resource = encodeURIComponent(sr);
    const signature = encodeURIComponent(signed(key, `${resource}\n${expiry}`));
    const authorization = `SharedAccessSignature sr=${resource}&sig=${signature}&se=${expiry}&skn=${rule}`;
    return (await request(host, path, { headers: { authorization } })).status;
  };
  const queue = firstKey("Microsoft.ServiceBus/namespaces/queues/authorizationRules");
  const [host, path] = ["sb-acme-orders.servicebus.localhost", "/orders?api-version=2017-04"];
  expect(await send(host, path, { key: queue, entity: "orders" })).toBe(200);
  expect([
    await send(host, path, { key: "other", entity: "orders" }),
    await send(host, path, { key: queue, entity: "orders", expiry: seconds(-60) }),
    await send(host, path, { key: queue, entity: "news" }),
    await send(host, path, { key: queue, sr: "https://sb-other.servicebus.localhost/orders" }),
    await send(host, path, { key: queue, entity: "orders", rule: "other" }),
    // A key of a queue can't sign for the namespace.
    await send(host, "/$namespaceinfo?api-version=2017-04", { key: queue }),
    await send(host, "/orders", { key: queue, entity: "orders" }),
  ]).toEqual([401, 401, 401, 401, 401, 401, 400]);
  const hub = firstKey("Microsoft.EventHub/namespaces/authorizationRules");
  expect([
    await send("evhns-acme.servicebus.localhost", "/$Resources/EventHubs?api-version=2014-01", { key: hub }),
    await send("evhns-acme.servicebus.localhost", "/$Resources/EventHubs?api-version=2014-01", { key: queue }),
  ]).toEqual([200, 401]);
  // Without the right Manage, a valid key gets a 401 too.
  const rule = idOf(kindOf("Microsoft.ServiceBus/namespaces/queues/authorizationRules"));
  cloud.control.consumers.change(rule, { properties: { rights: ["Send"] } });
  expect(await send(host, path, { key: queue, entity: "orders" })).toBe(401);
  cloud.control.consumers.change(rule, { properties: { rights: ["Manage", "Send", "Listen"] } });
});

test("Batch accepts only a signature with its key and a recent date", async () => {
  const key = firstKey("Microsoft.Batch/batchAccounts");
  const list = async (date: string, with_: string, query = "api-version=2024-07-01.20.0&maxresults=1") => {
    const parameters = query
      .split("&")
      .filter((one) => one !== "")
      .map((one) => one.replace("=", ":"));
    const text = ["GET", ...Array(11).fill(""), `ocp-date:${date}`, "/batchacme/pools", ...parameters].join("\n");
    const authorization = `SharedKey batchacme:${signed(bytes(with_), text)}`;
    return (
      await request("batchacme.batch.localhost", `/pools?${query}`, { headers: { "ocp-date": date, authorization } })
    ).status;
  };
  expect(await list(now(), key)).toBe(200);
  expect([
    await list(now(), bytes("other").toString("base64")),
    await list(anHourAgo(), key),
    await list(now(), key, ""),
  ]).toEqual([403, 403, 400]);
});

test.each([
  ["Microsoft.SignalRService/SignalR", "sigr-acme.signalr.localhost", "2022-06-01"],
  ["Microsoft.SignalRService/WebPubSub", "wps-acme.webpubsub.localhost", "2023-07-01"],
])("%s accepts only an unexpired token of its key for the address", async (type, host, version) => {
  const [key, path] = [firstKey(type), "/api/hubs/probe/connections/none"];
  const audience = `https://${host}:${port()}${path}`;
  const send = async (token: string, query = `?api-version=${version}`) =>
    (await request(host, `${path}${query}`, { method: "HEAD", headers: { authorization: `Bearer ${token}` } })).status;
  const token = (claims: object, secret = key) =>
    hs256({ typ: "JWT" }, { aud: audience, exp: seconds(60), ...claims }, secret);
  // The connection does not exist.
  expect(await send(token({}))).toBe(404);
  expect([
    await send(token({}, "other")),
    await send(token({ aud: `https://${host}:${port()}/api` })),
    await send(token({ exp: seconds(-60) })),
    await send(unsigned({}, { aud: audience, exp: seconds(60) })),
    await send("no token"),
    await send(token({}), ""),
  ]).toEqual([401, 401, 401, 401, 401, 400]);
  // The health endpoint checks no token.
  expect((await request(host, "/api/health")).status).toBe(200);
});

test("Azure Maps and a container registry accept only a current key", async () => {
  const maps = async (key: string, query = "?api-version=1.0") =>
    (await request("atlas.localhost", `/timezone/enumWindows/json${query}`, { headers: { "subscription-key": key } }))
      .status;
  const mapsKey = firstKey("Microsoft.Maps/accounts");
  expect([await maps(mapsKey), await maps("other"), await maps(mapsKey, "")]).toEqual([200, 401, 400]);
  const registry = async (user: string, password: string) =>
    (
      await request("cracme.azurecr.localhost", "/v2/", {
        headers: { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` },
      })
    ).status;
  const password = firstKey("Microsoft.ContainerRegistry/registries");
  expect([
    await registry("cracme", password),
    await registry("other", password),
    await registry("cracme", "x"),
  ]).toEqual([200, 401, 401]);
});

test("a service accepts a new key only after its delay", async () => {
  const kind = kindOf("Microsoft.Search/searchServices");
  const status = async () =>
    (
      await request("srch-acme.search.localhost", "/servicestats?api-version=2024-07-01", {
        headers: { "api-key": firstKey(kind.type) },
      })
    ).status;
  cloud.control.consumers.delayNewKeys(idOf(kind), 60_000);
  cloud.control.consumers.regenerateKey(idOf(kind), kind.keys[0]!);
  expect(await status()).toBe(403);
  cloud.control.moveClock(61_000);
  expect(await status()).toBe(200);
  cloud.control.consumers.delayNewKeys(idOf(kind), 0);
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
