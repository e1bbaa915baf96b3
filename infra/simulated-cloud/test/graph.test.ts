import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { trust } from "../../../test/support/trust.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import { appIdOf, objectIdOf, secretValueOf } from "../company/applications.ts";
import type { Company } from "../company/company.ts";

const company: Company = {
  subscriptions: [
    { name: "Main", vaults: [{ name: "kv-main", secrets: [{ name: "shop", value: secretValueOf("Shop", "first") }] }] },
  ],
  applications: [
    { name: "Shop", secrets: [{ name: "first", expiresInDays: 30 }] },
    ...Array.from({ length: 4 }, (_, index) => ({ name: `Other ${index}` })),
  ],
};
const [shop, shopId] = [objectIdOf("Shop"), appIdOf("Shop")];
const DAY_MS = 86_400_000;

let data: string;
let cloud: Cloud;
let token: string;
beforeAll(async () => {
  data = await mkdtemp(join(tmpdir(), "cloud-test-"));
  cloud = await startCloud({ data, company });
  trust(cloud.environment.NODE_EXTRA_CA_CERTS!);
  const answer = await signIn(cloud.app.clientId, cloud.app.clientSecret);
  token = answer.access_token!;
});
let settings: ReturnType<Cloud["control"]["directory"]["settings"]>;
beforeEach(() => {
  settings = cloud.control.directory.settings();
});
afterEach(() => {
  cloud.control.directory.set(settings);
  cloud.control.clearFaults();
});
afterAll(async () => {
  await cloud?.stop();
  await rm(data, { recursive: true });
});

async function signIn(id: string, secret: string): Promise<{ access_token?: string; error_codes?: number[] }> {
  const { AZURE_AUTHORITY_HOST: authority, AZURE_TENANT_ID: tenant, AZURE_GRAPH_ENDPOINT: graph } = cloud.environment;
  const form = { grant_type: "client_credentials", client_id: id, client_secret: secret, scope: `${graph}/.default` };
  const response = await fetch(`${authority}/${tenant}/oauth2/v2.0/token`, {
    method: "POST",
    body: new URLSearchParams(form),
  });
  return (await response.json()) as Awaited<ReturnType<typeof signIn>>;
}

const worked = async (secret: string) => (await signIn(shopId, secret)).access_token !== undefined;
const codeOf = async (secret: string) => (await signIn(shopId, secret)).error_codes?.[0];

/** biome-ignore lint/suspicious/noExplicitAny: answers of many shapes, which each test looks into */
type Answer = { status: number; body: any };

async function graph(path: string, body?: object): Promise<Answer> {
  const address = path.startsWith("https:") ? path : `${cloud.environment.AZURE_GRAPH_ENDPOINT}/v1.0/${path}`;
  const response = await fetch(address, {
    method: body ? "POST" : "GET",
    headers: { authorization: `Bearer ${token}`, "client-request-id": "of-the-test" },
    ...(body && { body: JSON.stringify(body) }),
  });
  expect(response.headers.get("client-request-id")).toBe("of-the-test");
  return { status: response.status, body: response.status === 204 ? undefined : await response.json() };
}

async function add(): Promise<{ keyId: string; secretText: string }> {
  const { status, body } = await graph(`applications/${shop}/addPassword`, {
    passwordCredential: { displayName: "made", endDateTime: new Date(Date.parse(cloud.control.now()) + 90 * DAY_MS) },
  });
  expect(status).toBe(200);
  return body;
}
const remove = (keyId: string) => graph(`applications/${shop}/removePassword`, { keyId });
const keyIds = async (): Promise<string[]> =>
  (await graph(`applications/${shop}?$select=passwordCredentials`)).body.passwordCredentials.map(
    ({ keyId }: { keyId: string }) => keyId,
  );

/** Sends an advanced query without its required header. */
const COUNT = "$filter=federatedIdentityCredentials/$count ne 0&$count=true";

test("lists have pages of at most 999 entries with absolute next links", async () => {
  const first = await graph("applications?$select=displayName&$top=2");
  expect(first.body.value).toEqual([{ displayName: "Shop" }, { displayName: "Other 0" }]);
  const second = await graph(first.body["@odata.nextLink"]);
  expect(second.body.value).toEqual([{ displayName: "Other 1" }, { displayName: "Other 2" }]);
  const last = await graph(second.body["@odata.nextLink"]);
  expect(last.body.value).toHaveLength(1);
  expect(last.body).not.toHaveProperty("@odata.nextLink");
  for (const query of ["$top=1000", "$top=0", "$select=nothing", "$search=x", "$filter=displayName eq 'Shop'", COUNT]) {
    expect(await graph(`applications?${query}`)).toMatchObject({
      status: 400,
      body: { error: { code: "Request_UnsupportedQuery", innerError: { "client-request-id": "of-the-test" } } },
    });
  }
});

test("only the response to addPassword contains the secret's value", async () => {
  const made = await add();
  expect(made.secretText).toHaveLength(40);
  const { body } = await graph(`applications/${shop}`);
  const [first, second] = body.passwordCredentials;
  expect([first.secretText, second.secretText]).toEqual([null, null]);
  expect(second).toMatchObject({ keyId: made.keyId, hint: made.secretText.slice(0, 3) });
  expect(JSON.stringify(body)).not.toContain(made.secretText);
  expect((await remove(made.keyId)).status).toBe(204);
  expect(await remove(made.keyId)).toMatchObject({ status: 400, body: { error: { code: "Request_BadRequest" } } });
});

test("missing permission, missing ownership and missing token are rejected", async () => {
  cloud.control.directory.set({ permissions: [] });
  expect((await graph("applications")).status).toBe(403);
  cloud.control.directory.set({ permissions: ["Application.ReadWrite.OwnedBy"] });
  cloud.control.directory.changeApplication(shop, { serviceOwns: false });
  expect(await graph(`applications/${shop}/addPassword`, {})).toMatchObject({
    status: 403,
    body: { error: { code: "Authorization_RequestDenied" } },
  });
  cloud.control.directory.changeApplication(shop, { serviceOwns: true });
  const anonymous = await fetch(`${cloud.environment.AZURE_GRAPH_ENDPOINT}/v1.0/applications`);
  expect([anonymous.status, anonymous.headers.get("www-authenticate")]).toEqual([
    401,
    expect.stringMatching(/^Bearer /),
  ]);
});

test("reads lag behind writes and can go back in time until all replicas are current", async () => {
  cloud.control.directory.set({ readLagSeconds: 60 });
  const { keyId } = await add();
  const seen = async () => Promise.all([keyIds(), keyIds(), keyIds()]);
  const whether = (all: string[][]) => all.map((ids) => ids.includes(keyId)).sort();
  expect(whether(await seen())).toEqual([false, false, true]);
  cloud.control.moveClock(45_000);
  expect(whether(await seen())).toEqual([false, true, true]);
  cloud.control.moveClock(20_000);
  expect(whether(await seen())).toEqual([true, true, true]);
  await remove(keyId);
});

test("with lagging writes, a secret that the replica does not know yet can't be removed", async () => {
  cloud.control.directory.set({ readLagSeconds: 60, writesLag: true });
  const made = [await add(), await add(), await add()];
  const statuses: number[] = [];
  for (const { keyId } of made) statuses.push((await remove(keyId)).status);
  expect(statuses.sort()).toEqual([204, 400, 400]);
  cloud.control.directory.set({ readLagSeconds: 0 });
  for (const { keyId } of made) await remove(keyId);
});

test("a new secret can sign in only after its delay, and a removed secret can't sign in", async () => {
  cloud.control.directory.set({ signInDelaySeconds: 300 });
  const { keyId, secretText } = await add();
  expect(await codeOf(secretText)).toBe(7000215);
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(false);
  cloud.control.moveClock(301_000);
  expect(await worked(secretText)).toBe(true);
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(true);
  await remove(keyId);
  expect(await codeOf(secretText)).toBe(7000215);
});

test("an unstable secret becomes stable after three spread successes, not after three close ones", async () => {
  cloud.control.directory.set({ flappingSeconds: 3600 });
  const { keyId, secretText } = await add();
  const tried: boolean[] = [];
  for (let times = 0; times < 10; times++) tried.push(await worked(secretText));
  expect(tried).toEqual([true, false, true, true, false, false, true, true, true, false]);
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(false);
  for (const wait of [0, 8_000, 8_000]) {
    cloud.control.moveClock(wait);
    expect(await worked(secretText)).toBe(true);
  }
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(true);
  for (let times = 0; times < 10; times++) expect(await worked(secretText)).toBe(true);
  await remove(keyId);
});

test("successes with a failure between them do not make a secret stable", async () => {
  cloud.control.directory.set({ flappingSeconds: 3600 });
  const { keyId, secretText } = await add();
  for (let times = 0; times < 4; times++) {
    await worked(secretText);
    cloud.control.moveClock(8_000);
  }
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(false);
  await remove(keyId);
});

test("a secret that is not known yet is reported as expired when all other secrets are expired", async () => {
  const { keyId: old } = cloud.control.directory.secrets(shopId)[0]!;
  cloud.control.directory.expireSecret(shopId, old, -1);
  expect(await codeOf(secretValueOf("Shop", "first"))).toBe(7000222);
  cloud.control.directory.set({ signInDelaySeconds: 60 });
  const { keyId, secretText } = await add();
  expect(await codeOf(secretText)).toBe(7000222);
  cloud.control.directory.expireSecret(shopId, old, 30);
  await remove(keyId);
});

test("a target has a gap exactly while its value does not sign in", async () => {
  const { control } = cloud;
  control.directory.watchTarget({ appId: shopId, vault: "kv-main", secret: "shop" });
  const [first] = control.directory.secrets(shopId);
  const write = (value: string) => control.putSecret("kv-main", { name: "shop", value });
  expect(control.directory.gaps()).toEqual([]);
  control.directory.set({ signInDelaySeconds: 60 });
  const next = await add();
  control.moveClock(61_000);
  write(next.secretText);
  await remove(first!.keyId);
  expect(control.directory.gaps()).toEqual([]);

  const early = await add();
  write(early.secretText);
  control.moveClock(61_000);
  expect(control.directory.gaps()).toMatchObject([{ why: "notYet", keyId: early.keyId }]);
  await remove(early.keyId);
  write(next.secretText);
  control.moveClock(100 * DAY_MS);
  write("something else");
  control.remove("kv-main", "secrets", "shop");
  const gaps = control.directory.gaps().map(({ why, keyId, to }) => [why, keyId, to !== undefined]);
  expect(gaps).toEqual([
    ["notYet", early.keyId, true],
    ["removed", early.keyId, true],
    ["expired", next.keyId, true],
    ["unknown", undefined, true],
    ["absent", undefined, false],
  ]);
});

test("a delta link expires after seven days", async () => {
  const { body } = await graph("applications/delta?$deltatoken=latest");
  const link = body["@odata.deltaLink"];
  cloud.control.moveClock(6 * DAY_MS);
  expect((await graph(link)).status).toBe(200);
  cloud.control.moveClock(2 * DAY_MS);
  expect(await graph(link)).toMatchObject({ status: 410, body: { error: { code: "resyncRequired" } } });
});

test("a delta query without a token lists everything first", async () => {
  cloud.control.directory.putApplication({ name: "Gone" });
  cloud.control.directory.removeApplication(appIdOf("Gone"));
  const { body } = await graph("applications/delta?$select=displayName");
  expect(body.value).toHaveLength(5);
  expect(body.value[0]).toEqual({ id: shop, displayName: "Shop" });
  expect((await graph(body["@odata.deltaLink"])).body.value).toEqual([]);
});

test("writes that are too close are rejected as concurrent, if that is configured", async () => {
  cloud.control.directory.set({ writeGapMilliseconds: 300 });
  cloud.control.moveClock(1_000);
  const { keyId } = await add();
  expect(await remove(keyId)).toMatchObject({
    status: 409,
    body: { error: { code: "Directory_ConcurrencyViolation" } },
  });
  cloud.control.moveClock(300);
  expect((await remove(keyId)).status).toBe(204);
});

test("changes survive a restart", async () => {
  const { secretText } = await add();
  const was = cloud.control.directory.secrets(shopId);
  await cloud.stop();
  cloud = await startCloud({ data });
  expect(cloud.control.directory.secrets(shopId)).toEqual(was);
  expect(cloud.control.directory.signsIn(shopId, secretText)).toBe(true);
});

test("the control API has the same operations over HTTP", async () => {
  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${cloud.controlUrl}/${path}`, {
      method,
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  expect((await call("PUT", "graph", { flappingSeconds: 7 })).body).toMatchObject({ flappingSeconds: 7 });
  const { appId } = (await call("POST", "applications", { name: "By HTTP" })).body;
  const { keyId } = (await call("POST", `applications/${appId}/secrets`, { name: "s", expiresInDays: 1 })).body;
  expect((await call("GET", `applications/${appId}/secrets`)).body).toMatchObject([{ keyId, madeBy: "control" }]);
  expect((await call("PATCH", `applications/${appId}/secrets/${keyId}`, { expiresInDays: 2 })).status).toBe(200);
  expect((await call("POST", `applications/${appId}/signs-in`, { value: "x" })).body).toEqual({ signsIn: false });
  expect((await call("DELETE", `applications/${appId}/secrets/${keyId}`)).status).toBe(200);
  expect((await call("PATCH", `applications/${appId}`, { signIn: "disabled" })).status).toBe(200);
  expect((await call("DELETE", `applications/${appId}`)).status).toBe(200);
  expect((await call("DELETE", `applications/${appId}`)).status).toBe(404);
  const before = Date.parse(cloud.control.now());
  await call("POST", "clock", { moveMilliseconds: 60_000 });
  expect(Date.parse(cloud.control.now()) - before).toBeGreaterThanOrEqual(60_000);
  await call("POST", "targets", { appId: shopId, vault: "kv-main", secret: "none" });
  expect((await call("GET", "targets/gaps")).body).toMatchObject([{ why: "absent" }]);
});
