import fc from "fast-check";
import { jwtVerify } from "jose";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { keyCompany } from "simulated-cloud/company/key-company.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import {
  readConnectionString,
  rewriteConnectionString,
} from "../../shared/rotation/resource-keys/connection-strings.ts";
import { authorize } from "../../shared/rotation/resource-keys/key-requests.ts";
import { createKeysClient, type KeysClient } from "../../shared/rotation/resource-keys/keys-client.ts";
import {
  isProvenByRequest,
  KEY_KINDS,
  type KeyKind,
  kindOfType,
  type ListedKey,
  otherKey,
} from "../../shared/rotation/resource-keys/kinds.ts";
import { containedKeys, findHeldKey, proposeByTags } from "../../shared/rotation/resource-keys/matching.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "../azure/services.ts";

/**
 * Tests of resources with two keys: the table of kinds against the simulated cloud, connection strings, and which key of a
 * resource a secret holds. What happened to a key is read from the cloud's own history.
 */

let cloud: Cloud;
let client: KeysClient;
const log = recordingLog();
beforeAll(async () => {
  const live = await startTestCloud({ company: "keys" });
  ({ cloud } = live);
  const arm = createArm({ config: live.config, identity: createIdentity(live.config), log, limits: SHORT_WAITS });
  client = createKeysClient(arm, live.config.cloud, { checks: 4, firstWaitMs: 1 });
});
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.allowOnly(undefined);
});
afterAll(() => cloud?.stop());

const ROTATED = KEY_KINDS.filter(({ reportOnly }) => reportOnly === undefined);
const idOf = ({ type }: KeyKind) =>
  cloud.control.consumers.resources().find((one) => one.type.toLowerCase() === type.toLowerCase())!.id;
const kindNamed = (name: string) => KEY_KINDS.find((one) => one.name === name)!;
/** The requests that regenerated keys of a resource. */
const regenerationsOf = (kind: KeyKind) =>
  cloud.control.consumers.keys(idOf(kind)).filter(({ regeneration }) => regeneration !== undefined);
/** Regenerates the first key, and returns it with the value that it had. */
async function regenerateFirst(kind: KeyKind) {
  const old = (await client.keys(idOf(kind), kind))[0]!;
  const isOld = (value: string) => value === old.value;
  return { old, isOld, now: await client.regenerate(idOf(kind), kind, old.name, isOld) };
}

describe("a signed request", () => {
  const request = (url: string, key: string, now: Date) => ({
    method: "GET" as const,
    url: new URL(url),
    account: "account",
    rule: "rule",
    key,
    now,
  });

  test("to Cosmos DB has the signature of Azure's own example", async () => {
    // The example of https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources
    const key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
    const headers = await authorize(
      { name: "masterKey" },
      request("https://account.documents.azure.com/dbs/ToDoList", key, new Date("2017-04-27T00:51:12Z")),
    );
    expect(headers).toMatchObject({
      authorization: expect.stringMatching(
        /^type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d$/i,
      ),
      "x-ms-date": "Thu, 27 Apr 2017 00:51:12 GMT",
    });
  });

  test("to SignalR has a token for the address without its query", async () => {
    const key = "an-access-key-of-more-than-32-bytes-for-hs256";
    const now = new Date();
    const url = "https://one.service.signalr.net/api/hubs/probe/connections/none?api-version=2022-06-01";
    const { authorization } = await authorize({ name: "jwt" }, request(url, key, now));
    const { payload } = await jwtVerify(authorization!.replace("Bearer ", ""), Buffer.from(key), {
      algorithms: ["HS256"],
      audience: "https://one.service.signalr.net/api/hubs/probe/connections/none",
    });
    expect(payload.exp! - payload.iat!).toBe(600);
  });

  test("to Service Bus has a token for the entity, and for the namespace if the path is one of the namespace", async () => {
    const signed = async (url: string) =>
      (await authorize({ name: "sharedAccessSignature" }, request(url, "key", new Date(0)))).authorization;
    expect(await signed("https://one.servicebus.windows.net/orders?api-version=2017-04")).toMatch(
      /^SharedAccessSignature sr=https%3A%2F%2Fone\.servicebus\.windows\.net%2Forders&sig=[^&]+&se=600&skn=rule$/,
    );
    expect(await signed("https://one.servicebus.windows.net/$namespaceinfo?api-version=2017-04")).toContain(
      "sr=https%3A%2F%2Fone.servicebus.windows.net%2F&",
    );
  });
});

describe("the proof of a key", () => {
  const PROVEN = ROTATED.filter(isProvenByRequest).map((kind) => [kind.title, kind] as const);
  /** The resource that has the address: the namespace of a rule. */
  const ownerOf = (kind: KeyKind) => idOf(kind).split("/").slice(0, 9).join("/");
  const requests = () => cloud.control.requests();
  /** Returns a key of the same length and characters that the resource does not have. */
  const wrong = (key: ListedKey): ListedKey => ({
    ...key,
    value: `${key.value.slice(1, -2)}${key.value[0]}${key.value.slice(-2)}`,
  });

  test.each(PROVEN)("%s accepts each of its keys and rejects another", async (_, kind) => {
    const [one, two] = (await client.keys(idOf(kind), kind)) as [ListedKey, ListedKey];
    const test = (key: ListedKey, control?: ListedKey) => client.test(idOf(kind), kind, key, control);
    expect([await test(one, two), await test(two, one)]).toEqual(["accepted", "accepted"]);
    expect(await test(wrong(one), two)).toBe("rejected");
    // Without a valid control, a firewall could be the reason.
    expect(await test(wrong(one), wrong(two))).toBe("unclear");
    const old = one;
    cloud.control.consumers.regenerateKey(idOf(kind), kind.name === "appConfiguration" ? "p" : one.name);
    expect(await test(old, two)).toBe("rejected");
  });

  test.each(PROVEN)("%s: an unclear answer proves nothing", async (_, kind) => {
    const [one, two] = (await client.keys(idOf(kind), kind)) as [ListedKey, ListedKey];
    const host = new RegExp(
      /\.(queue|documents|servicebus|cognitiveservices|search|signalr|webpubsub|batch|azurecr|azconfig)\.localhost|^atlas/,
    );
    await client.test(idOf(kind), kind, one, two);
    const { operation } = requests().findLast((request) => host.test(request.host))!;
    const actions: FaultAction[] = [
      { kind: "firewall" },
      { kind: "fail", status: 500 },
      { kind: "fail", status: 503 },
      { kind: "throttle" },
      { kind: "reset" },
      { kind: "loseAnswer" },
    ];
    for (const action of actions) {
      cloud.control.addFault({ match: { operation }, action });
      expect(await client.test(idOf(kind), kind, one, two), JSON.stringify(action)).toBe("unclear");
      cloud.control.clearFaults();
    }
  });

  const DISABLED = ["storage", "cosmos", "serviceBus", "aiServices", "signalr", "webPubSub", "maps"];
  test.each(DISABLED)("%s: keys that are disabled are no wrong keys", async (name) => {
    const kind = kindNamed(name);
    const [one, two] = (await client.keys(idOf(kind), kind)) as [ListedKey, ListedKey];
    const set = (isOff: boolean) =>
      cloud.control.consumers.change(ownerOf(kind), {
        properties: name === "storage" ? { allowSharedKeyAccess: !isOff } : { disableLocalAuth: isOff },
      });
    set(true);
    expect(await client.test(idOf(kind), kind, one, two)).toBe("unclear");
    set(false);
    expect(await client.test(idOf(kind), kind, one, two)).toBe("accepted");
  });

  /** Members of a resource's properties that contain its address. */
  const addressed = PROVEN.filter(([, { name }]) => name !== "maps");
  test.each(addressed)("%s: no request leaves for an address outside of Azure's domains", async (_, kind) => {
    const [one, two] = (await client.keys(idOf(kind), kind)) as [ListedKey, ListedKey];
    const { port } = new URL(cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
    const member = (kind.proof.by === "https" ? kind.proof.address! : "endpoint").split(".")[0]!;
    const resource = cloud.control.consumers.properties(ownerOf(kind))[member];
    const foreign = [
      `https://evil.localhost:${port}/`,
      `http://evil.localhost:${port}/`,
      `https://user:x@evil.localhost:${port}`,
    ];
    for (const address of foreign) {
      const value = member === "primaryEndpoints" ? { queue: address } : address;
      cloud.control.consumers.change(ownerOf(kind), { properties: { [member]: value } });
      const before = requests().length;
      expect(await client.test(idOf(kind), kind, one, two)).toBe("unclear");
      expect(
        new Set(
          requests()
            .slice(before)
            .map(({ host }) => host),
        ),
      ).toEqual(new Set(["management.localhost"]));
    }
    cloud.control.consumers.change(ownerOf(kind), { properties: { [member]: resource } });
    expect(cloud.control.foreignRequests()).toEqual([]);
  });
});

describe("the table of kinds", () => {
  test.each(ROTATED.map((kind) => [kind.title, kind] as const))(
    "%s: one key is regenerated once, with the actions of the table and no others",
    async (_, kind) => {
      const id = idOf(kind);
      cloud.control.allowOnly([{ scope: id.split("/").slice(0, 5).join("/"), actions: kind.actions, dataActions: [] }]);
      const before = regenerationsOf(kind).length;
      const others = (await client.keys(id, kind)).slice(1);
      const { old, isOld, now } = await regenerateFirst(kind);
      expect([now.name, now.value === old.value]).toEqual([old.name, false]);
      expect((await client.keys(id, kind)).slice(1)).toEqual(others);
      // A duplicate of the request finds that the key was regenerated.
      expect(await client.regenerate(id, kind, old.name, isOld)).toEqual(now);
      expect(regenerationsOf(kind).length - before).toBe(1);
      expect(otherKey(kind, otherKey(kind, old.name))).toBe(old.name);
    },
  );

  const LOST: FaultAction[] = [{ kind: "loseAnswer" }, { kind: "cutAnswer" }, { kind: "failAfter", status: 500 }];
  test.each(LOST.map((action) => [action.kind, action] as const))(
    "a response that is lost (%s) regenerates no second time",
    async (_, action) => {
      for (const kind of ["storage", "cosmos"].map(kindNamed)) {
        const before = regenerationsOf(kind).length;
        cloud.control.addFault({ match: { operation: "arm.regenerate*" }, action, times: 1 });
        const { old, now } = await regenerateFirst(kind);
        expect(now.value).not.toBe(old.value);
        expect(regenerationsOf(kind).length - before).toBe(1);
      }
    },
  );

  test.each([{ kind: "deny" }, { kind: "throttle", retryAfterSeconds: 3600 }] satisfies FaultAction[])(
    "a list that fails after the request ($kind) does not look like a rejected request",
    async (action) => {
      const kind = kindNamed("storage");
      const [before, old] = [regenerationsOf(kind).length, (await client.keys(idOf(kind), kind))[0]!];
      cloud.control.addFault({ match: { operation: "arm.listStorageAccountKeys" }, action, after: 1 });
      const isOld = (value: string) => value === old.value;
      const error = await expectFailure(client.regenerate(idOf(kind), kind, old.name, isOld));
      expect([error.unclear, regenerationsOf(kind).length - before]).toEqual([true, 1]);
    },
  );

  test("a request that never arrived fails, and its repetition regenerates once", async () => {
    const kind = kindNamed("search");
    const [before, old] = [regenerationsOf(kind).length, (await client.keys(idOf(kind), kind))[0]!];
    cloud.control.addFault({ match: { operation: "arm.regenerate*" }, action: { kind: "reset" }, times: 1 });
    const regenerate = () => client.regenerate(idOf(kind), kind, old.name, (value) => value === old.value);
    expect((await expectFailure(regenerate())).code).toBe("unreachable");
    expect(regenerationsOf(kind)).toHaveLength(before);
    await regenerate();
    expect(regenerationsOf(kind)).toHaveLength(before + 1);
  });

  test("a missing action is named in the remedy", async () => {
    const kind = kindNamed("storage");
    cloud.control.allowOnly([{ scope: idOf(kind), actions: [`${kind.type}/listkeys/action`], dataActions: [] }]);
    const error = await expectFailure(regenerateFirst(kind));
    expect([error.code, error.remedy]).toEqual(["accessDenied", expect.stringContaining("regeneratekey/action")]);
  });

  test("all resources with keys are found, with IoT hubs", async () => {
    const owners = [];
    for await (const found of client.owners(undefined)) owners.push(...found);
    const found = [];
    for (const kind of KEY_KINDS) {
      const type = kind.type.split("/").slice(0, 2).join("/").toLowerCase();
      for (const owner of owners.filter((one) => one.type === type))
        found.push(...(await client.childrenOf(owner.id, kind)));
    }
    const expected = KEY_KINDS.map(idOf).map((id) => id.toLowerCase());
    expect(found.map((id) => id.toLowerCase()).sort()).toEqual(expected.sort());
  });

  test("no key is logged", async () => {
    const values = ROTATED.flatMap((kind) => cloud.control.consumers.keys(idOf(kind)).map(({ value }) => value));
    expect(values.length).toBeGreaterThan(40);
    expect(values.filter((value) => log.lines.some((line) => line.includes(value)))).toEqual([]);
  });
});

/** Each format: a text with a key, and what it says. */
const FORMATS: [string, (key: string) => string, object][] = [
  [
    "storage",
    (key) => `DefaultEndpointsProtocol=https;AccountName=StOne;AccountKey=${key};EndpointSuffix=core.windows.net`,
    { resource: "stone" },
  ],
  ["cosmos", (key) => `AccountEndpoint=https://acme.documents.azure.com:443/;AccountKey=${key};`, { resource: "acme" }],
  [
    "sharedAccessKey",
    (key) =>
      `Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey=${key};EntityPath=orders`,
    { resource: "ns", keyName: "app", entity: "orders" },
  ],
  [
    "sharedAccessKey",
    (key) => `HostName=hub.azure-devices.net; sharedaccesskeyname = owner ;SHAREDACCESSKEY= ${key} `,
    { resource: "hub", keyName: "owner" },
  ],
  ["accessKey", (key) => `Endpoint=https://s.service.signalr.net;AccessKey=${key};Version=1.0;`, { resource: "s" }],
  [
    "appConfiguration",
    (key) => `Endpoint=https://c.azconfig.io;Id=ab-cd;Secret=${key}`,
    { resource: "c", keyName: "ab-cd" },
  ],
  ["redis", (key) => `r.redis.cache.windows.net:6380,password=${key},ssl=True,abortConnect=False`, { resource: "r" }],
  ["redisUrl", (key) => `rediss://:${encodeURIComponent(key)}@r.redis.azure.net:10000/0`, { resource: "r" }],
  [
    "mongodb",
    (key) => `mongodb://m:${encodeURIComponent(key)}@m.mongo.cosmos.azure.com:10255/?ssl=true&retrywrites=false`,
    { resource: "m" },
  ],
];

describe("a connection string", () => {
  const anyKey = fc.uint8Array({ minLength: 1, maxLength: 64 }).map((bytes) => Buffer.from(bytes).toString("base64"));

  test.each(FORMATS)("of the format %s keeps everything but its key", (format, textWith, says) => {
    fc.assert(
      fc.property(anyKey, anyKey, (first, second) => {
        expect(readConnectionString(textWith(first))).toEqual({ text: textWith(first), format, key: first, ...says });
        expect(rewriteConnectionString(textWith(first), second)).toBe(textWith(second));
      }),
    );
  });

  test("keeps unknown parts, their order and their spelling", () => {
    const part = fc
      .stringMatching(/^[A-Za-z]{1,8}=[ -:<-~]{0,12}$/)
      .filter((one) => !/^(account|secret|id|endpoint|host|shared|access)/i.test(one));
    fc.assert(
      fc.property(
        fc.uniqueArray(part, { selector: (one) => one.split("=")[0]!.toLowerCase() }),
        anyKey,
        anyKey,
        fc.nat(),
        (parts, first, second, at) => {
          const textWith = (key: string) =>
            parts.toSpliced(at % (parts.length + 1), 0, `accountNAME=one;AccountKey=${key}`).join(";");
          expect(rewriteConnectionString(textWith(first), second)).toBe(textWith(second));
        },
      ),
    );
  });

  test("of App Configuration gets the ID of the new key", () => {
    const text = "Endpoint=https://c.azconfig.io;Id=old;Secret=b2xk";
    expect(rewriteConnectionString(text, "bmV3", "new")).toBe("Endpoint=https://c.azconfig.io;Id=new;Secret=bmV3");
  });

  test.each([
    "",
    "b2xk",
    "UseDevelopmentStorage=true",
    "AccountName=one;AccountKey=",
    "AccountName=one;AccountKey=a;AccountKey=b",
    "AccountName=one;AccountEndpoint=https://one.documents.azure.com;AccountKey=a",
    "BlobEndpoint=https://one.blob.core.windows.net;SharedAccessSignature=sv=1",
    "Server=tcp:one.database.windows.net;User ID=app;Password=a",
    "https://user:pass@one.example",
  ])("is not what %j is", (text) => {
    expect(readConnectionString(text)).toBeUndefined();
    expect(() => rewriteConnectionString(text, "bmV3")).toThrow(TypeError);
  });

  test("never throws on any text, and rejects a key that its format can't contain", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => void readConnectionString(text)));
    expect(() => rewriteConnectionString(FORMATS[0]![1]("b2xk"), "a;AccountName=evil")).toThrow(TypeError);
    expect(() => rewriteConnectionString(FORMATS[6]![1]("b2xk"), "a,ssl=False")).toThrow(TypeError);
  });
});

describe("the key that a secret holds", () => {
  test("is proposed by tags and decided by the value, for each kind", async () => {
    const secrets = keyCompany.subscriptions[0]!.vaults![0]!.secrets!;
    const { storage: account } = { storage: kindNamed("storage") };
    for (const { name, tags, value } of secrets) {
      const proposal = proposeByTags(tags!)!;
      const [first] = cloud.control.consumers.keys(proposal.resourceId);
      expect([name, proposal.resourceId, proposal.validityDays]).toEqual([name, idOf(proposal.kind), 60]);
      const keys = [{ name: "first", id: "first", value: first!.value }];
      expect(findHeldKey(value!, proposal.resourceId, keys)).toEqual({ held: keys[0], form: "key" });
      // Tags that name another resource select nothing: the value is none of its keys.
      if (proposal.kind === account) continue;
      expect(findHeldKey(value!, idOf(account), await client.keys(idOf(account), account)).held).toBeUndefined();
    }
    expect(secrets).toHaveLength(ROTATED.length);
  });

  test("is found in a connection string of the same resource, rule and entity only", async () => {
    const queue =
      "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/ns/queues/orders/authorizationRules/App";
    const key = { name: "SecondaryKey", id: "SecondaryKey", value: "c2Vjb25k" };
    const text = (namespace: string, rule: string, entity: string) =>
      `Endpoint=sb://${namespace}.servicebus.windows.net/;SharedAccessKeyName=${rule};SharedAccessKey=${key.value}${entity}`;
    const found = { held: key, form: "connectionString" };
    const other = { held: undefined, reason: "otherResource" };
    expect(findHeldKey(text("NS", "app", ";EntityPath=orders"), queue, [key])).toEqual(found);
    expect(findHeldKey(text("ns", "app", ""), queue, [key])).toEqual(found);
    expect(findHeldKey(text("ns", "app", ";EntityPath=news"), queue, [key])).toEqual(other);
    expect(findHeldKey(text("ns", "root", ";EntityPath=orders"), queue, [key])).toEqual(other);
    expect(findHeldKey(text("evil", "app", ";EntityPath=orders"), queue, [key])).toEqual(other);
    expect(findHeldKey("anything", queue, [key])).toEqual({ held: undefined, reason: "noKeyMatches" });
  });

  test("is contained in JSON, with a space, or beside another name, and not in a longer text of the same characters", () => {
    const keys = [
      { name: "one", id: "one", value: "b25lb25lb25l" },
      { name: "two", id: "two", value: "dHdvdHdvdHdv" },
    ];
    const [one, two] = keys.map(({ value }) => value) as [string, string];
    for (const text of [`${one}\n`, `{"key":"${one}"}`, connectionTo("other", one), `${one}+${one}, ${one}`])
      expect(containedKeys(text, keys)).toEqual(["one"]);
    expect(containedKeys(JSON.stringify([one, two]), keys)).toEqual(["one", "two"]);
    for (const text of ["", one.slice(1), `${one}${one}`, `x${one}`, `${one}/${two}`])
      expect(containedKeys(text, keys)).toEqual([]);
  });
  const connectionTo = (account: string, key: string) => `AccountName=${account};AccountKey=${key}`;

  test.each([
    [{}],
    [{ ProviderAddress: "stone", CredentialId: "key1" }],
    [
      {
        ProviderAddress:
          "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/Microsoft.Web/sites/a",
      },
    ],
  ])("is not proposed by the tags %j", (tags) => {
    expect(proposeByTags(tags)).toBeUndefined();
  });

  test("is proposed without a key or a validity that the tags do not name", () => {
    const ProviderAddress =
      "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/microsoft.cache/Redis/r";
    const proposal = { kind: kindOfType("Microsoft.Cache/redis"), resourceId: ProviderAddress };
    expect(proposeByTags({ ProviderAddress, CredentialId: "key9", ValidityPeriodDays: "-1" })).toEqual(proposal);
    expect(proposeByTags({ ProviderAddress, CredentialId: "secondary", ValidityPeriodDays: "30" })).toEqual({
      ...proposal,
      keyName: "Secondary",
      validityDays: 30,
    });
  });
});
