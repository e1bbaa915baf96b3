import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { startAzurite } from "../../infra/local/azurite.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { DAY_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { rotationView } from "../../shared/rotation/api.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { ResourceKeyRequest } from "../../shared/rotation/request.ts";
import { authorize } from "../../shared/rotation/resource-keys/key-requests.ts";
import { createKeysClient } from "../../shared/rotation/resource-keys/keys-client.ts";
import { isProvenByRequest, KEY_KINDS } from "../../shared/rotation/resource-keys/kinds.ts";
import {
  COMPARISONS,
  Comparisons,
  comparisonKey,
  createKeyLinks,
  KEY_LINKS,
  linkKey,
} from "../../shared/rotation/resource-keys/links.ts";
import { SHORT_WAITS } from "../azure/services.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { expectNoValueStored } from "./invariants.ts";
import { connectionString, openKeyWorld, type RotatedResource, SECOND_VAULT } from "./resource-key-world.ts";
import { BOSS, VAULT } from "./world.ts";

// Tests of rotations of keys of resources, mostly storage accounts: the proof of the new key, the plan, the places, the end, the
// rollback, and what stops a rotation. A link is a stored row that says which key of a resource a vault secret stored when they
// were last compared.

let keys: Awaited<ReturnType<typeof openKeyWorld>>;
beforeAll(async () => {
  keys = await openKeyWorld();
});
afterAll(() => keys?.stop());
afterEach(() => {
  keys.control.clearFaults();
  keys.control.allowOnly(undefined);
  keys.world.messages.length = 0;
  keys.world.afterWrite = async () => {};
});

/** Kinds whose new keys a request proves, and the operation of that request in the simulated cloud. */
const PROVEN = KEY_KINDS.filter(isProvenByRequest);
const OPERATIONS: Record<string, string> = {
  storage: "storage.getQueueServiceProperties",
  cosmos: "cosmos.listDatabases",
  serviceBus: "serviceBus.getEntity",
  serviceBusQueue: "serviceBus.getEntity",
  serviceBusTopic: "serviceBus.getEntity",
  eventHubs: "eventHubs.getEntity",
  eventHub: "eventHubs.getEntity",
  aiServices: "aiServices.listModels",
  search: "search.getServiceStatistics",
  signalr: "signalr.connectionExists",
  webPubSub: "webPubSub.connectionExists",
  maps: "maps.listWindowsTimeZones",
  appConfiguration: "appconfiguration.list",
  batch: "batch.listPools",
  containerRegistry: "containerRegistry.checkApi",
};
/** The resource in the request log: the namespace of a rule. */
const ownerOf = ({ id }: RotatedResource) => id.split("/").slice(0, 9).join("/");

const rotate = (request: ResourceKeyRequest) => keys.world.rotate(request);
const problemOf = async (work: Promise<unknown>): Promise<string> => {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Problem)) throw error ?? new Error("There is no problem.");
  return `${error.code}: ${error.message}`;
};

test("a rotation regenerates the key that no vault secret stores, and writes it to all of them in their own format", async () => {
  const account = keys.addStorageAccount();
  const [plain, inString] = account.places;
  const old = keys.currentKey(account.id, "key1");
  const violations = keys.recordViolations(account);
  const row = await rotate(account.request);
  await keys.expectInvariants(account, row, violations);
  const now = keys.currentKey(account.id, "key2");
  const name = account.id.split("/").at(-1)!;
  expect([keys.storedValue(plain!), keys.storedValue(inString!)]).toEqual([now, connectionString(name, now)]);
  // The old key stays valid, and the plan and the notes say so.
  expect(keys.currentKey(account.id, "key1")).toBe(old);
  expect(row).toMatchObject({ status: "completed", oldKeyId: "key1", newKeyId: "key2", keyKind: "storage" });
  expect(row.notes.join(" ")).toContain("key1 stays valid until the next rotation");
  const view = rotationView(row);
  expect(view.plan.find(({ step }) => step === "revoke")!.text).toContain("Leave key1 as it is");
  expect(view.steps.map(({ name: step, result }) => `${step}: ${result}`)).toContain("create: Regenerated key2.");
  const { tags } = keys.control.items(VAULT, "secrets").find((one) => one.name === plain!.secretName)!;
  // Only the tag of Microsoft that names the key follows. Another tag with the text is left alone.
  expect(tags).toMatchObject({ CredentialId: "key2", "azure-key-name": "key2", tier: "key1-tier" });
  await expectNoValueStored(keys.world, keys.azurite.connectionString(), [old, now]);
});

test("the next rotation goes back to the first key, finds its places by the links, and never reuses an earlier version", async () => {
  const account = keys.addStorageAccount();
  expect((await rotate(account.request)).status).toBe("completed");
  const { targets: _, ...request } = account.request;
  const violations = keys.recordViolations(account);
  const row = await rotate(request);
  expect([row.status, row.oldKeyId, row.newKeyId]).toEqual(["completed", "key2", "key1"]);
  expect(violations).toEqual([]);
  expect(keys.regenerationsOf(account.id).map(({ key }) => key)).toEqual(["key2", "key1"]);
  for (const place of account.places) expect(keys.storedKey(place)).toBe(keys.currentKey(account.id, "key1"));
});

test("a compromised key is regenerated too, after everything stores the other one", async () => {
  const account = keys.addStorageAccount();
  const old = keys.currentKey(account.id, "key1");
  const violations = keys.recordViolations(account);
  const row = await rotate({ ...account.request, reason: "compromised", overlapDays: 0 });
  expect([row.status, violations]).toEqual(["completed", []]);
  expect(keys.regenerationsOf(account.id).map(({ key }) => key)).toEqual(["key2", "key1"]);
  expect(keys.currentKey(account.id, "key1")).not.toBe(old);
});

test("a cancelled rotation restores the places and regenerates nothing", async () => {
  const account = keys.addStorageAccount();
  const before = account.places.map(keys.storedValue);
  const violations = keys.recordViolations(account);
  const rotations = keys.world.start();
  const { rotationId } = await rotations.begin(account.request, BOSS);
  await keys.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  await rotations.cancel(rotationId, BOSS);
  const { row } = await keys.world.run(rotationId);
  expect([row.status, account.places.map(keys.storedValue)]).toEqual(["cancelled", before]);
  await keys.expectInvariants(account, row, violations);
  expect(row.notes.join(" ")).toContain("key2 keeps its new value");
});

test("a user can finish the overlap period", async () => {
  const account = keys.addStorageAccount();
  const rotations = keys.world.start();
  const { rotationId } = await rotations.begin(account.request, BOSS);
  await keys.world.run(rotationId, { until: ({ status }) => status === "overlapping" });
  await rotations.finish(rotationId, false, BOSS);
  expect((await keys.world.run(rotationId)).row.status).toBe("completed");
});

test("a rotation of a send-only rule of a queue ends with a note, because no harmless request proves its key", async () => {
  const rule = keys.addResource("serviceBusQueue");
  keys.control.consumers.change(rule.id, { properties: { rights: ["Send"] } });
  const row = await rotate(rule.request);
  await keys.expectInvariants(rule, row, []);
  expect(row.notes.filter((note) => note.includes("gave no clear answer"))).toHaveLength(1);
});

describe.each(PROVEN.map((kind) => [kind.title, kind] as const))(
  "%s: the new key is tested with a request",
  (_, kind) => {
    const requests = (resource: RotatedResource) =>
      keys.control
        .requests({ operation: OPERATIONS[kind.name]!, resource: ownerOf(resource) })
        .map(({ status }) => status);

    test("that the resource accepts twice, before a vault secret is written", async () => {
      const resource = keys.addResource(kind.name);
      const [old, other] = kind.pairs[0]!.map((name) => keys.currentKey(resource.id, name));
      const violations = keys.recordViolations(resource);
      const row = await rotate(resource.request);
      await keys.expectInvariants(resource, row, violations);
      expect([row.status, row.notes.filter((note) => note.includes("gave no clear answer"))]).toEqual([
        "completed",
        [],
      ]);
      const status = kind.proof.by === "https" ? kind.proof.accepted.at(-1) : 200;
      expect(requests(resource)).toEqual([status, status]);
      const view = rotationView(row);
      expect(view.plan.find(({ step }) => step === "prove")!.text).toContain("accepts a request with it");
      const values = [old!, other!, keys.currentKey(resource.id, kind.pairs[0]![1])];
      await expectNoValueStored(keys.world, keys.azurite.connectionString(), values);
      // A key in an address would be in the logs of proxies and of the service.
      const addresses = decodeURIComponent(JSON.stringify(keys.control.requests().map(({ path }) => path)));
      for (const value of values) expect(addresses).not.toContain(value);
    });

    test("and a key that the resource rejects for 15 minutes is written nowhere", async () => {
      const resource = keys.addResource(kind.name);
      keys.control.consumers.delayNewKeys(resource.id, Number.POSITIVE_INFINITY);
      const row = await rotate(resource.request);
      expect([row.status, row.failure?.code]).toEqual(["failed", "notProven"]);
      await keys.expectInvariants(resource, row, []);
    });

    test("and a key that the resource accepts after some minutes is written then", async () => {
      const resource = keys.addResource(kind.name);
      keys.control.consumers.delayNewKeys(resource.id, 5 * MINUTE_MS);
      const violations = keys.recordViolations(resource);
      const row = await rotate(resource.request);
      // The first 12 attempts are 5 seconds apart, the following ones a minute.
      expect([row.status, row.proof!.tries > 12]).toEqual(["completed", true]);
      await keys.expectInvariants(resource, row, violations);
    });

    test("and an outage after a rejection does not count as a proof", async () => {
      const resource = keys.addResource(kind.name);
      keys.control.consumers.delayNewKeys(resource.id, Number.POSITIVE_INFINITY);
      const match = { operation: OPERATIONS[kind.name]!, resource: ownerOf(resource) };
      // The first test makes two requests: with the new key and with the control.
      keys.control.addFault({ match, action: { kind: "fail", status: 503 }, after: 2 });
      const row = await rotate(resource.request);
      expect([row.status, row.failure?.code]).toEqual(["failed", "notProven"]);
      await keys.expectInvariants(resource, row, []);
    });

    test("unless the resource gives no clear answer, which a note says", async () => {
      const resource = keys.addResource(kind.name);
      keys.control.addFault({ match: { operation: OPERATIONS[kind.name]! }, action: { kind: "firewall" } });
      const row = await rotate(resource.request);
      await keys.expectInvariants(resource, row, []);
      expect([row.status, row.notes.filter((note) => note.includes("gave no clear answer")).length]).toEqual([
        "completed",
        1,
      ]);
    });
  },
);

test("Azurite accepts each of its two storage keys and rejects others", async () => {
  const [one, two, other] = ["one", "two", "other"].map((text) => Buffer.from(text.padEnd(64, "-")).toString("base64"));
  const storage = await startAzurite({
    accounts: ["twokeys"],
    environment: { AZURITE_ACCOUNTS: `twokeys:${one}:${two}` },
  });
  try {
    const endpoint = /QueueEndpoint=([^;]+)/.exec(storage.connectionString())![1]!;
    const url = new URL(`${endpoint.replace(/\/$/, "")}/?restype=service&comp=properties`);
    const statuses = await Promise.all(
      [one, two, other].map(async (key) => {
        const request = { method: "GET", url, account: "twokeys", rule: "", key: key!, now: new Date() } as const;
        return (await fetch(url, { headers: await authorize({ name: "storageSharedKey" }, request) })).status;
      }),
    );
    expect(statuses).toEqual([200, 200, 403]);
  } finally {
    await storage.stop();
  }
});

describe("a rotation does not start", () => {
  test("if no vault secret stores a key", async () => {
    const account = keys.addStorageAccount();
    for (const { vaultName, secretName } of account.places)
      keys.control.putSecret(vaultName, { name: secretName, value: "something else" });
    const { targets: _, ...request } = account.request;
    expect(await problemOf(rotate(request))).toContain("unknown which key is in use");
    expect(await problemOf(rotate(account.request))).toContain("unknown which key is in use");
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if vault secrets store both keys", async () => {
    const account = keys.addStorageAccount();
    const [, second] = account.places;
    keys.control.putSecret(SECOND_VAULT, { name: second!.secretName, value: keys.currentKey(account.id, "key2") });
    const problem = await problemOf(rotate(account.request));
    expect(problem).toMatch(/notRotatable: Both keys .* stores key1; .* stores key2/);
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if a connection string names another account", async () => {
    const account = keys.addStorageAccount();
    const [, second] = account.places;
    const value = connectionString("stother", keys.currentKey(account.id, "key1"));
    keys.control.putSecret(SECOND_VAULT, { name: second!.secretName, value });
    expect(await problemOf(rotate(account.request))).toContain("does not store key1");
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if a known vault secret contains the other key beside another name or with other text", async () => {
    const account = keys.addStorageAccount();
    const [first, second] = account.places;
    const other = keys.currentKey(account.id, "key2");
    for (const value of [connectionString("stother", other), `${other}\n`, JSON.stringify({ key: other })]) {
      keys.control.putSecret(SECOND_VAULT, { name: second!.secretName, value });
      const request = { ...account.request, targets: [first!] };
      expect(await problemOf(rotate({ ...request, requestedPlace: second! }))).toContain("contains key2");
    }
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if an earlier version contains the other key and a consumer may be pinned to it, unless the request accepts that", async () => {
    const { id, places, request } = keys.addStorageAccount();
    const [first] = places;
    const [inUse, other] = [keys.currentKey(id, "key1"), keys.currentKey(id, "key2")];
    for (const value of [other, inUse]) keys.control.putSecret(VAULT, { name: first!.secretName, value });
    // A discovery has just compared the resource, so only the pinned consumer can stop the rotation.
    const since = keys.world.clock.now().toISOString();
    const comparison = { resourceId: id, since, hasUnread: false };
    await keys.world.tables().put(Comparisons, COMPARISONS, comparisonKey(id), comparison);
    const consumers = new SimulatedConsumers(keys.world);
    consumers.add(`pinned-${id}`, first!.secretName, "willBreak");
    keys.world.consumers = consumers;
    const start = (acceptUnread: boolean) =>
      keys.world.start().begin({ ...request, includeResources: [], acceptUnread }, BOSS);
    try {
      expect(await problemOf(start(false))).toMatch(/Version .* which webApp pinned-.* contains key2/);
      expect((await start(true)).status).toBe("planned");
    } finally {
      keys.world.consumers = unknownConsumers();
    }
    expect(keys.regenerationsOf(id)).toEqual([]);
  });

  test("if a consumer has a literal copy of the other key, unless the request accepts that", async () => {
    const { id, places, request } = keys.addStorageAccount();
    // A discovery has just compared the resource, so only the copy can stop the rotation.
    const since = keys.world.clock.now().toISOString();
    const comparison = { resourceId: id, since, hasUnread: false };
    await keys.world.tables().put(Comparisons, COMPARISONS, comparisonKey(id), comparison);
    const consumers = new SimulatedConsumers(keys.world);
    keys.world.consumers = consumers;
    const start = (acceptUnread: boolean) =>
      keys.world.start().begin({ ...request, includeResources: [], acceptUnread }, BOSS);
    try {
      consumers.add(`copy-${id}`, places[0]!.secretName, "willBreak", { copy: true, keyNames: ["key1", "key2"] });
      expect(await problemOf(start(false))).toMatch(/^notRotatable: webApp copy-.* \(SECRET\) contains key2/);
      expect(keys.regenerationsOf(id)).toEqual([]);
      // A copy of the key in use stays valid.
      consumers.consumersById.clear();
      consumers.add(`copy-${id}`, places[0]!.secretName, "willBreak", { copy: true, keyNames: ["key1"] });
      expect((await start(false)).status).toBe("planned");
    } finally {
      keys.world.consumers = unknownConsumers();
    }
  });

  test("if the secret of an unreadable link stores the other key", async () => {
    const account = keys.addStorageAccount();
    const [first, second] = account.places;
    keys.control.putSecret(SECOND_VAULT, { name: second!.secretName, value: keys.currentKey(account.id, "key2") });
    const row = linkKey({ ...second!, resourceId: account.id });
    await keys.forgeRow("RotationMatches", KEY_LINKS, row, { resourceId: account.id });
    expect(await problemOf(rotate({ ...account.request, targets: [first!] }))).toContain("contains key2");
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if a vault that may store the other key can't be read", async () => {
    const account = keys.addStorageAccount();
    expect((await rotate(account.request)).status).toBe("completed");
    keys.control.addFault({ match: { vault: SECOND_VAULT }, action: { kind: "deny" } });
    expect(await problemOf(rotate({ ...account.request, targets: [account.places[0]!] }))).toContain("can't be read");
    expect(keys.regenerationsOf(account.id)).toHaveLength(1);
  });

  test("for a resource that no recent discovery compared, unless the request accepts that", async () => {
    const { request, id } = keys.addStorageAccount();
    expect(await problemOf(rotate({ ...request, acceptUnread: false }))).toContain(
      "No discovery of the last seven days",
    );
    expect(keys.regenerationsOf(id)).toEqual([]);
    const comparison = {
      resourceId: id,
      since: new Date(keys.world.clock.now().getTime() - 6 * DAY_MS).toISOString(),
      hasUnread: false,
    };
    await keys.world.tables().put(Comparisons, COMPARISONS, comparisonKey(id), comparison);
    expect((await rotate({ ...request, acceptUnread: false })).status).toBe("completed");
  });

  test("for an IoT hub, and for a resource without keys", async () => {
    const hub = keys.control.consumers.resources().find(({ type }) => type.endsWith("IotHubs"))!.id;
    const request: ResourceKeyRequest = {
      issuer: "resourceKey",
      resourceId: hub,
      overlapDays: 0,
      regenerateOld: false,
      acceptUnread: true,
    };
    expect(await problemOf(rotate(request))).toContain("write of the whole hub");
    const vault = keys.control.vaultId(VAULT)!;
    expect(await problemOf(rotate({ ...request, resourceId: vault }))).toContain("invalidRequest");
  });

  test("while another rotation of the resource runs", async () => {
    const account = keys.addStorageAccount();
    const { rotationId } = await keys.world.start().begin(account.request, BOSS);
    const upper = {
      ...account.request,
      resourceId: account.id.toUpperCase().replace("MICROSOFT.STORAGE", "Microsoft.Storage"),
    };
    expect(await problemOf(keys.world.start().begin(upper, BOSS))).toContain("rotationUnfinished");
    await keys.world.run(rotationId);
  });
});

describe("a rotation regenerates nothing", () => {
  /** Starts a rotation, changes something before its first step, and runs it. */
  async function changedAfterPlan(change: (account: ReturnType<typeof keys.addStorageAccount>) => void) {
    const account = keys.addStorageAccount();
    const { rotationId } = await keys.world.start().begin(account.request, BOSS);
    change(account);
    const { row } = await keys.world.run(rotationId);
    return { account, row };
  }

  test("if a vault secret got the other key after the plan", async () => {
    const { account, row } = await changedAfterPlan(({ id, places }) =>
      keys.control.putSecret(SECOND_VAULT, { name: places[1]!.secretName, value: keys.currentKey(id, "key2") }),
    );
    expect([row.status, row.failure?.code]).toEqual(["failed", "targetHoldsOther"]);
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if another known vault secret got the other key with other text after the plan", async () => {
    const account = keys.addStorageAccount();
    const [first, second] = account.places;
    await keys.forgeRow("RotationMatches", KEY_LINKS, linkKey({ ...second!, resourceId: account.id }), {});
    const { rotationId } = await keys.world.start().begin({ ...account.request, targets: [first!] }, BOSS);
    const value = `${keys.currentKey(account.id, "key2")} `;
    keys.control.putSecret(SECOND_VAULT, { name: second!.secretName, value });
    const { row } = await keys.world.run(rotationId);
    expect([row.status, row.failure?.code]).toEqual(["failed", "keyInUse"]);
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("if somebody regenerated the key in use after the plan", async () => {
    const { account, row } = await changedAfterPlan(({ id }) => keys.control.consumers.regenerateKey(id, "key1"));
    expect([row.status, row.failure?.code]).toEqual(["failed", "targetHoldsOther"]);
    expect(keys.regenerationsOf(account.id).map(({ key, regeneration }) => [key, regeneration!.by])).toEqual([
      ["key1", "another client"],
    ]);
  });

  test("if the identity may not regenerate keys", async () => {
    const account = keys.addStorageAccount();
    keys.control.addFault({ match: { operation: "arm.regenerate*" }, action: { kind: "deny" } });
    const row = await rotate(account.request);
    expect([row.status, row.failure?.code]).toEqual(["failed", "accessDenied"]);
    expect(keys.regenerationsOf(account.id)).toEqual([]);
    await keys.expectInvariants(account, row, []);
  });
});

describe("someone without rights", () => {
  test("who writes tags in a vault selects no key and no place", async () => {
    const account = keys.addStorageAccount();
    // The tags say that the second key is in use, and that the secret of a stranger stores a key.
    const stranger = { vaultName: SECOND_VAULT, secretName: `stranger-${account.places[0]!.secretName}` };
    const tags = {
      ProviderAddress: account.id,
      CredentialId: "key2",
      "azure-key-name": "key2",
      "azure-resource-id": account.id,
    };
    keys.control.putSecret(SECOND_VAULT, { name: stranger.secretName, value: "no key", tags });
    keys.control.change(VAULT, "secrets", account.places[0]!.secretName, { tags });
    const links = linksOf();
    await links.store(linkTo(account.id, stranger));
    const { targets: _, ...request } = account.request;
    const row = await rotate({ ...request, requestedPlace: account.places[0]! });
    expect([row.status, row.oldKeyId]).toEqual(["completed", "key1"]);
    expect(keys.regenerationsOf(account.id).map(({ key }) => key)).toEqual(["key2"]);
    expect(keys.storedValue(stranger)).toBe("no key");
  });

  test("who copies the key into a vault of theirs gets no new key", async () => {
    const account = keys.addStorageAccount();
    expect((await rotate(account.request)).status).toBe("completed");
    const copy = { vaultName: VAULT, secretName: `copy-${account.places[0]!.secretName}` };
    const key = keys.currentKey(account.id, "key2");
    const tags = { "rotation-id": "any", "azure-key-name": "key1", ProviderAddress: account.id };
    keys.control.putSecret(VAULT, { name: copy.secretName, value: key, tags });
    await linksOf().store(linkTo(account.id, copy));
    const { targets: _, ...request } = account.request;
    const rotations = keys.world.start();
    const { rotationId, notUpdated } = await rotations.begin(request, BOSS);
    expect(notUpdated).toMatchObject([{ secretName: copy.secretName, reason: "newPlace" }]);
    const { row } = await keys.world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
    expect(row.reasons.join(" ")).toContain(`${VAULT}/${copy.secretName} stores key2 and was not updated`);
    expect(keys.storedValue(copy)).toBe(key);
    await rotations.finish(rotationId, true, BOSS);
    expect((await keys.world.run(rotationId)).row.status).toBe("completed");
  });

  test("who writes rows of links is not believed: an unsigned row counts as none", async () => {
    const account = keys.addStorageAccount();
    const [first] = account.places;
    const row = {
      ...linkTo(account.id, first!),
      rotated: { rotationId: "1", version: "1", at: "2026-01-01T00:00:00Z" },
    };
    await keys.forgeRow("RotationMatches", KEY_LINKS, linkKey(row), row);
    const { targets: _, ...request } = account.request;
    expect(await problemOf(rotate(request))).toContain("unknown which key is in use");
    expect(keys.regenerationsOf(account.id)).toEqual([]);
  });

  test("a link to one pair of keys does not make a consumer of the other pair its own", async () => {
    const { id, places } = keys.addResource("cosmos");
    await linksOf().store({ ...linkTo(id, places[0]!), keyKind: "cosmos", keyName: "primaryReadonly" });
    const found: string[][] = [];
    for await (const { places: linked, keys: listed } of linksOf().keysOfLinks())
      if (linked.some(({ secretName }) => secretName === places[0]!.secretName))
        found.push(listed.map(({ name }) => name));
    expect(found).toEqual([["primaryReadonly", "secondaryReadonly"]]);
  });

  const linkTo = (resourceId: string, place: { vaultName: string; secretName: string }) => ({
    ...place,
    vaultId: keys.control.vaultId(place.vaultName)!,
    resourceId,
    keyKind: "storage",
    keyName: "key2",
    version: "1",
    comparedAt: new Date().toISOString(),
    by: "test",
  });
  const linksOf = () => {
    const { config, log } = keys.world;
    return createKeyLinks({
      tables: keys.world.tables(),
      config,
      vaults: undefined as never,
      keys: createKeysClient(
        createArm({ config, identity: createIdentity(config), log, limits: SHORT_WAITS }),
        config.cloud,
      ),
      index: { findSecrets: async () => [] },
      log,
    });
  };
});
