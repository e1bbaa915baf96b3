import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { type PlantedLink, plantedCompany } from "./planted-credentials.ts";

/**
 * Tests over HTTP of credentials of Azure resources: which vault secrets store which keys. The company has 500 pairs of keys of
 * all kinds in 40 resource groups, and decoys.
 */

const BASE = "/api/automation/rotation/credentials";
const { company, links, secrets, resources } = plantedCompany(500);
const vaultNames = company.subscriptions[0]!.vaults!.map(({ name }) => name);

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() }, tableProxy: true, shortWaits: true });
  await service.scan();
}, 300_000);
afterAll(() => service?.stop());

/** Starts a discovery and returns its last state. */
async function discover() {
  const started = await service.admin("POST", `${BASE}/discover`);
  expect(started.status, started.text).toBe(201);
  expect(started.headers.get("location")).toBe(`${BASE}/runs/${started.body.runId}`);
  const ended = async () => {
    const { body } = await service.admin("GET", `${BASE}/runs/${started.body.runId}`);
    expect(body.status).not.toBe("running");
    return body;
  };
  return await vi.waitFor(ended, { timeout: 120_000, interval: 200 });
}

/** One line for each link, to compare. */
const lineOf = ({ vaultName, secretName, resourceId, kind, keyName }: PlantedLink) =>
  `${vaultName}/${secretName}: ${kind} ${resourceId.toLowerCase()} ${keyName}`;
async function foundLines(): Promise<string[]> {
  const credentials = await service.listAll(BASE);
  return credentials
    .flatMap(({ places, resourceId, kind }) =>
      places.map((place: PlantedLink) => lineOf({ ...place, resourceId, kind })),
    )
    .sort();
}

test("a discovery finds every planted key of 500, no decoy, and reads each secret and each list of keys once", async () => {
  expect(new Set(links.map(({ kind }) => kind)).size).toBe(18);
  expect(await service.listAll(BASE)).toEqual([]);
  service.cloud.control.resetCounts();
  service.clearTableRequests();
  const run = await discover();
  const counts = service.cloud.control.counts();
  const tableRequests = service.tableRequests().length;
  expect(run).toMatchObject({
    status: "completed",
    failures: [],
    resources,
    resourcesDenied: 0,
    secrets,
    secretsDenied: 0,
    links: links.length,
    removed: 0,
  });
  expect(await foundLines()).toEqual(links.map(lineOf).sort());
  expect(await service.listAll(BASE)).toHaveLength(500);

  const keyLists = Object.entries(counts).filter(([name]) => /^arm\.list\w+Keys$/.test(name));
  const listed = keyLists.reduce((sum, [, count]) => sum + count, 0);
  // The keys of an App Configuration store are on two pages.
  const stores = new Set(links.flatMap(({ kind, resourceId }) => (kind === "appConfiguration" ? resourceId : [])));
  expect([counts["keyvault.getSecret"], listed]).toEqual([secrets, resources + stores.size]);
  const others = Object.entries(counts).filter(
    ([name]) => name.startsWith("arm.") && !keyLists.some(([one]) => one === name),
  );
  console.log(
    `500 pairs of keys of ${resources} resources in 40 resource groups, ${secrets} secrets with ${links.length} links and ${secrets - links.length} decoys: ${counts.total} cloud calls (${listed} lists of keys, ${counts["keyvault.getSecret"]} secrets, ${others.map(([name, count]) => `${count} ${name}`).join(", ")}) and ${tableRequests} table requests`,
  );
});

test("the list has filters for kind, vault, resource and expiry, and pages", async () => {
  const credentialsOf = (query: string) => service.listAll(`${BASE}?${query}`);
  const pairsWhere = (matches: (link: PlantedLink) => boolean) => {
    const pairs = links.filter(matches).map(({ resourceId, keyName }) => `${resourceId} ${/read/i.test(keyName)}`);
    return new Set(pairs).size;
  };
  expect(await credentialsOf("kind=storage")).toHaveLength(pairsWhere(({ kind }) => kind === "storage"));
  const [vaultName] = vaultNames;
  const inVault = await credentialsOf(`vaultName=${vaultName!.toUpperCase()}`);
  expect(inVault).toHaveLength(pairsWhere((link) => link.vaultName === vaultName));
  const { resourceId } = links.find(({ kind }) => kind === "cosmos")!;
  const cosmos = await credentialsOf(`resourceId=${encodeURIComponent(resourceId.toUpperCase())}`);
  expect(cosmos.map(({ keys }) => keys)).toEqual([
    ["primary", "secondary"],
    ["primaryReadonly", "secondaryReadonly"],
  ]);
  // The secrets expire in 20, 21, 22 … days.
  expect(await credentialsOf("due=19")).toHaveLength(0);
  const due = await credentialsOf("due=25");
  expect(due).toHaveLength(6);
  expect(due.every(({ expiresOn }) => Date.parse(expiresOn) < Date.now() + 26 * 86_400_000)).toBe(true);

  const first = await service.admin("GET", `${BASE}?limit=3&kind=storage`);
  const second = await service.admin("GET", `${BASE}?limit=3&kind=storage&cursor=${first.body.nextCursor}`);
  const all = await credentialsOf("kind=storage");
  expect([...first.body.items, ...second.body.items]).toEqual(all.slice(0, 6));
});

test("a credential names its resource, its keys and the places that store one", async () => {
  const [{ credentialId }] = await service.listAll(`${BASE}?kind=serviceBusQueue`);
  const { body } = await service.admin("GET", `${BASE}/${credentialId}`);
  const planted = links.filter(({ resourceId }) => resourceId === body.resourceId);
  expect(body).toMatchObject({
    credentialId,
    issuer: "resourceKey",
    kind: "serviceBusQueue",
    resourceName: expect.stringMatching(/^servicebusqueue\d+\/orders\/app$/),
    resourceGroup: expect.stringMatching(/^rg-\d+$/),
    keys: ["PrimaryKey", "SecondaryKey"],
    keyInUse: planted[0]!.keyName,
    rotationId: null,
  });
  expect(body.places.map(({ assetId }: { assetId: string }) => assetId).sort()).toEqual(
    planted.map(({ vaultName, secretName }) => `${vaultName}.secret.${secretName}`).sort(),
  );
  for (const id of ["none", `${credentialId.slice(0, -1)}9`, "0".repeat(32)])
    expect((await service.admin("GET", `${BASE}/${id}`)).status).toBe(404);
});

test("the issuers name each kind with its keys and the smallest set of actions", async () => {
  const { body } = await service.admin("GET", "/api/automation/rotation/issuers");
  const { kinds } = body.items.find(({ kind }: { kind: string }) => kind === "resourceKey");
  const planted = new Set(links.map(({ kind }) => kind));
  const rotatable = kinds.filter((kind: { rotatable: boolean }) => kind.rotatable);
  expect(rotatable.map(({ name }: { name: string }) => name).sort()).toEqual([...planted].sort());
  expect(kinds.find(({ name }: { name: string }) => name === "storage")).toMatchObject({
    pairs: [["key1", "key2"]],
    actions: [
      "Microsoft.Storage/storageAccounts/read",
      "Microsoft.Storage/storageAccounts/listkeys/action",
      "Microsoft.Storage/storageAccounts/regeneratekey/action",
    ],
    proof: "request",
    reason: null,
  });
  expect(kinds.find(({ name }: { name: string }) => name === "iotHub").reason).toContain("whole hub");
  const byName = new Map(kinds.map((kind: { name: string }) => [kind.name, kind]));
  expect(byName.get("search")).toMatchObject({
    proof: "request",
    proofRequest: "GET /servicestats",
    proofReason: null,
  });
  expect(byName.get("iotHub")).toMatchObject({ proof: null, proofRequest: null, proofDocumentation: null });
  const byList = rotatable.filter(({ proof }: { proof: string }) => proof === "list");
  expect(byList.map(({ name }: { name: string }) => name)).toEqual(["redis", "managedRedis", "eventGrid"]);
  for (const { proofRequest, proofReason, proofDocumentation } of byList)
    expect([proofRequest, typeof proofReason, typeof proofDocumentation]).toEqual([null, "string", "string"]);
});

test("a row that another program wrote adds no credential, and does not keep one from being planned", async () => {
  const before = await foundLines();
  const storage = service.azurite.connectionString();
  const rows = TableClient.fromConnectionString(storage, "RotationMatches", { allowInsecureConnection: true });
  const [{ credentialId, resourceId }] = await service.listAll(`${BASE}?kind=maps`);
  const filter = "PartitionKey eq 'keyLinks'";
  for await (const row of rows.listEntities<{ resourceId: string }>({ queryOptions: { filter } })) {
    if (row.resourceId.toLowerCase() !== resourceId.toLowerCase()) continue;
    // A copy of the row with its signature, for a secret of the attacker.
    await rows.upsertEntity({ ...row, rowKey: `${row.rowKey}-copy`, secretName: "copied" } as never);
    break;
  }
  expect(await foundLines()).toEqual(before);
  const plan = await service.admin("POST", `${BASE}/${credentialId}/rotate`, { dryRun: true });
  expect([plan.status, plan.body.needs]).toEqual([200, []]);
});

test("the asset of a secret that stores a key needs no new value", async () => {
  const link = links.find(({ kind }) => kind === "search")!;
  const { status, body } = await service.admin(
    "POST",
    `/api/assets/dependencies/rotate/${link.vaultName}.secret.${link.secretName}`,
    { dryRun: true },
  );
  expect([status, body.resourceId.toLowerCase(), body.keyKind, body.needs]).toEqual([
    200,
    link.resourceId.toLowerCase(),
    "search",
    [],
  ]);
});

test("no row contains a key or a connection string", async () => {
  const storage = service.azurite.connectionString();
  const rows = TableClient.fromConnectionString(storage, "RotationMatches", { allowInsecureConnection: true });
  let text = "";
  for await (const row of rows.listEntities()) text += JSON.stringify(row);
  const values = company.subscriptions[0]!.vaults!.flatMap((vault) => vault.secrets!.map(({ value }) => value!));
  expect(text).toContain(links[0]!.secretName);
  for (const value of values) expect(text.includes(value) || text.includes(JSON.stringify(value))).toBe(false);
});

test("the next discovery removes the link of a secret that stores another value now, and finds the moved key", async () => {
  const before = await foundLines();
  const [moved, kept] = [links[4]!, links[5]!];
  const value = company.subscriptions[0]!.vaults!.flatMap((vault) => vault.secrets!).find(
    ({ name }) => name === moved.secretName,
  )!.value!;
  service.cloud.control.putSecret(moved.vaultName, { name: moved.secretName, value: "of another system" });
  service.cloud.control.putSecret(kept.vaultName, { name: "moved-here", value });
  await service.scan();
  expect(await discover()).toMatchObject({ status: "completed", links: links.length, removed: 1 });
  const added = lineOf({ ...moved, vaultName: kept.vaultName, secretName: "moved-here" });
  const expected = [...before.filter((line) => line !== lineOf(moved)), added];
  expect(await foundLines()).toEqual(expected.sort());
});

test("the next discovery removes the links of a deleted secret and of a deleted resource", async () => {
  const before = await foundLines();
  const [secret, other] = [links[6]!, links.find(({ kind }) => kind === "batch")!];
  const { control } = service.cloud;
  expect(control.remove(secret.vaultName, "secrets", secret.secretName)).toBe(true);
  expect(control.consumers.remove(other.resourceId)).toBe(true);
  await service.scan();
  const ofResource = links.filter(({ resourceId }) => resourceId === other.resourceId);
  const gone = new Set([secret, ...ofResource].map(lineOf));
  expect(await discover()).toMatchObject({ status: "completed", failures: [], removed: gone.size });
  expect(await foundLines()).toEqual(before.filter((line) => !gone.has(line)));
});

test("resources and secrets that the identity may not read are counted, and their links stay", async () => {
  const before = await foundLines();
  const vaultName = vaultNames[1]!;
  const storage = links.find(({ kind }) => kind === "storage")!;
  const { control } = service.cloud;
  control.addFault({ match: { operation: "arm.listStorageAccountKeys" }, action: { kind: "deny" } });
  control.addFault({ match: { operation: "keyvault.getSecret", vault: vaultName }, action: { kind: "deny" } });
  const run = await discover();
  control.clearFaults();
  const denied = new Set(links.flatMap(({ kind, resourceId }) => (kind === "storage" ? resourceId : []))).size;
  expect(run).toMatchObject({
    status: "completed",
    failures: [],
    resourcesDenied: denied,
    // One was deleted.
    resources: resources - denied - 1,
  });
  expect(run.secretsDenied).toBeGreaterThan(0);
  expect(await foundLines()).toEqual(before);
  expect(before).toContain(lineOf(storage));

  // One of the secrets that could not be read may store the key that a rotation would regenerate.
  const [other] = await service.listAll(`${BASE}?kind=cosmos`);
  const plan = async (body: object) =>
    (await service.admin("POST", `${BASE}/${other.credentialId}/rotate`, { dryRun: true, ...body })).body.needs;
  expect(await plan({})).toMatchObject([
    {
      code: "notRotatable",
      message: expect.stringContaining("could not read all vault secrets"),
      send: [{ acceptUnread: true }],
    },
  ]);
  expect(await plan({ acceptUnread: true })).toEqual([]);
});

test("a rotation of a credential regenerates the key that is not in use, and its secret then stores that key", async () => {
  const link = links.find(
    ({ kind, resourceId }) => kind === "storage" && links.filter((one) => one.resourceId === resourceId).length === 1,
  )!;
  const [{ credentialId, keyInUse, places }] = await service.listAll(
    `${BASE}?resourceId=${encodeURIComponent(link.resourceId)}`,
  );
  const path = `${BASE}/${credentialId}/rotate`;
  const { control } = service.cloud;
  const regenerated = () =>
    control.consumers.keys(link.resourceId).flatMap(({ key, regeneration }) => (regeneration ? key : []));
  const plan = await service.admin("POST", path, { dryRun: true, overlapDays: 30 });
  expect([plan.status, plan.body]).toMatchObject([
    200,
    {
      rotationId: null,
      needs: [],
      resourceId: link.resourceId,
      keyKind: "storage",
      oldKeyId: keyInUse,
      targets: [{ secretName: link.secretName, state: "planned" }],
    },
  ]);
  expect(regenerated()).toEqual([]);

  const headers = { "Idempotency-Key": "rotate-once" };
  const token = await service.signIn(ADMIN);
  const start = () => service.call("POST", path, { token, headers, body: { overlapDays: 30 } });
  const [first, repeated] = [await start(), await start()];
  expect([first.status, repeated.status, repeated.body.rotationId]).toEqual([201, 201, first.body.rotationId]);
  const { rotationId } = first.body;
  expect((await service.admin("GET", `${BASE}/${credentialId}`)).body.rotationId).toBe(rotationId);
  const second = await service.admin("POST", path, {});
  expect([second.status, second.body.code, second.body.rotationId]).toEqual([409, "rotationUnfinished", rotationId]);
  const overlapping = async () => {
    const { body } = await service.admin("GET", `/api/automation/rotation/rotations/${rotationId}`);
    expect(body.status, JSON.stringify(body)).toBe("overlapping");
    return body;
  };
  const rotation = await vi.waitFor(overlapping, { timeout: 120_000, interval: 500 });
  const newKey = keyInUse === "key1" ? "key2" : "key1";
  expect([rotation.oldKeyId, rotation.newKeyId, regenerated()]).toEqual([keyInUse, newKey, [newKey]]);
  const value = control.consumers.keys(link.resourceId).findLast(({ key }) => key === newKey)!.value;
  expect(places).toHaveLength(1);
  const stored = control.secretValue(link.vaultName, link.secretName)!;
  expect(stored === value || stored.includes(`AccountKey=${value};`)).toBe(true);
  const history = await service.admin(
    "GET",
    `/api/automation/rotation/history?resourceId=${encodeURIComponent(link.resourceId)}`,
  );
  expect(history.body.items.map((one: { rotationId: string }) => one.rotationId)).toEqual([rotationId]);
});
