import { setTimeout as delay } from "node:timers/promises";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf, objectIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createGraph, type Graph } from "../../shared/platform/azure/graph.ts";
import { readKeySet } from "../../shared/platform/azure/graph-answers.ts";
import { graphFailure } from "../../shared/platform/azure/graph-failures.ts";
import type { ApplicationChanges } from "../../shared/platform/azure/graph-objects.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createSignInProof, type ProveSignIn } from "../../shared/platform/azure/sign-in-proof.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { configFor, startTestCloud } from "./live-cloud.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { collectItems, expectFailure, fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "./services.ts";

/** Tests of the Microsoft Graph client, and of the sign-in that proves whether a client secret is valid. */

const DAY_SECONDS = 86_400;

const company: Company = {
  subscriptions: [],
  applications: [
    {
      name: "Payments",
      owners: ["ada@acme.example", "grace@acme.example"],
      secrets: [
        { name: "old", expiresInDays: -1, createdDaysAgo: 100 },
        { name: "live", expiresInDays: 20 },
      ],
      certificates: [
        { name: "one", expiresInDays: 50 },
        { name: "two", expiresInDays: 60 },
      ],
      federated: [{ name: "main", issuer: "https://issuer.example", subject: "repo:a/b" }],
    },
    { name: "Foreign", serviceOwns: false, secrets: [{ name: "only", expiresInDays: 3 }] },
    {
      name: "Personal",
      audience: "AzureADandPersonalMicrosoftAccount",
      secrets: [
        { name: "a", expiresInDays: 3 },
        { name: "b", expiresInDays: 30 },
      ],
    },
    { name: "Saml", samlSigning: { expiresInDays: 90 } },
    { name: "Disabled", signIn: "disabled", secrets: [{ name: "s", expiresInDays: 3 }] },
    { name: "Nowhere", signIn: "none", secrets: [{ name: "s", expiresInDays: 3 }] },
    { name: "Blocked", signIn: "blocked", secrets: [{ name: "s", expiresInDays: 3 }] },
    { name: "Young", createdDaysAgo: 5, secrets: [] },
  ],
};
const payments = objectIdOf("Payments");

let server: FakeServer;
let cloud: Cloud;
let config: Config;
let log: ReturnType<typeof recordingLog>;
let graph: Graph;
let proveSignIn: (appId: string, secret: string) => ReturnType<ProveSignIn>;

beforeAll(async () => {
  // The fake server starts first: its certificate must be trusted before the first connection reads the trusted authorities.
  server = await startFakeServer();
  ({ cloud, config } = await startTestCloud({ company }));
  log = recordingLog();
  const ownConfig = configFor(cloud, cloud.app.clientSecret);
  graph = createGraph({ config: ownConfig, identity: createIdentity(ownConfig), log, limits: SHORT_WAITS });
  const signIn = createSignInProof(config);
  proveSignIn = (appId, secret) => signIn(appId, secret, cloud.app.tenantId);
});
const readSettings = () => structuredClone(cloud.control.directory.settings());
let settingsBefore: ReturnType<typeof readSettings>;
beforeEach(() => {
  settingsBefore = readSettings();
  cloud.control.resetCounts();
});
afterEach(() => {
  cloud.control.clearFaults();
  // `set` merges. The earlier settings have no policy, so without this member a test's policy would stay.
  cloud.control.directory.set({ policy: undefined as never, ...settingsBefore });
});
afterAll(async () => {
  await cloud?.stop();
  await server?.stop();
});

const daysFromNow = (days: number) => Math.floor(Date.parse(cloud.control.now()) / 1000) + days * DAY_SECONDS;
const addSecret = (objectId: string, displayName = "new", days = 90) =>
  graph.addPassword(objectId, { displayName, expiresOn: daysFromNow(days) });
const countOf = (operation: string) => cloud.control.counts()[`graph.${operation}`] ?? 0;
const secretsOf = (name: string) =>
  cloud.control.directory.secrets(appIdOf(name)).filter(({ removedAt }) => removedAt === undefined);

describe("reading applications", () => {
  test("applications are listed with their credentials and owners", async () => {
    const applications = await collectItems(graph.applications());
    expect(applications.map(({ displayName }) => displayName)).toEqual(company.applications!.map(({ name }) => name));
    const [first] = applications;
    expect(first).toMatchObject({ kind: "application", objectId: payments, appId: appIdOf("Payments") });
    expect(first!.signInAudience).toBe("AzureADMyOrg");
    expect(first!.passwords).toEqual([
      expect.objectContaining({ keyId: keyIdOf("Payments", "old"), displayName: "old" }),
      {
        keyId: keyIdOf("Payments", "live"),
        displayName: "live",
        hint: secretValueOf("Payments", "live").slice(0, 3),
        startsOn: expect.any(Number),
        expiresOn: expect.any(Number),
      },
    ]);
    expect(first!.passwords[1]!.expiresOn! - first!.passwords[1]!.startsOn!).toBe(50 * DAY_SECONDS);
    expect(first!.keys.map(({ thumbprint }) => thumbprint)).toEqual([
      expect.stringMatching(/^[0-9A-F]{40}$/),
      expect.stringMatching(/^[0-9A-F]{40}$/),
    ]);
    expect(first!.owners?.map(({ mail }) => mail)).toEqual([
      "ada@acme.example",
      "grace@acme.example",
      // The identity that made this call.
      undefined,
    ]);
    expect(countOf("listApplications")).toBe(1);
  });

  test("an application is found by either ID, and an unknown ID returns undefined", async () => {
    expect((await graph.findApplication({ objectId: payments }))?.displayName).toBe("Payments");
    expect((await graph.findApplication({ appId: appIdOf("Payments") }))?.objectId).toBe(payments);
    expect(await graph.findApplication({ objectId: appIdOf("Payments") })).toBeUndefined();
  });

  test("only service principals with their own credentials are listed", async () => {
    const principals = await collectItems(graph.servicePrincipals());
    expect(principals.map(({ displayName, keys }) => [displayName, keys.map(({ usage }) => usage)])).toEqual([
      ["Saml", ["Sign", "Verify"]],
    ]);
  });

  test("federated credentials and owners of one application are read", async () => {
    expect(await graph.federatedCredentials(payments)).toEqual([
      {
        id: expect.any(String),
        name: "main",
        issuer: "https://issuer.example",
        subject: "repo:a/b",
        audiences: ["api://AzureADTokenExchange"],
      },
    ]);
    expect((await graph.owners(payments)).map(({ id }) => id)).toContain(cloud.app.objectId);
  });

  test("a federated credential is added once by its name, and removed by its ID", async () => {
    const audiences = ["api://AzureADTokenExchange"];
    const credential = { name: "second-one", issuer: "https://issuer.example", subject: "repo:a/c", audiences };
    await graph.putFederatedCredential(payments, credential);
    await graph.putFederatedCredential(payments, credential);
    const listed = (await graph.federatedCredentials(payments)).filter(({ name }) => name === "second-one");
    expect(listed).toEqual([{ id: expect.any(String), ...credential }]);
    const duplicate = { ...credential, name: "third-one" };
    await expect(graph.putFederatedCredential(payments, duplicate)).rejects.toMatchObject({ code: "conflict" });
    expect(await graph.removeFederatedCredential(payments, listed[0]!.id)).toBe("removed");
    expect(await graph.removeFederatedCredential(payments, listed[0]!.id)).toBe("absent");
  });

  test("applications with federated credentials are found with one request", async () => {
    expect(await collectItems(graph.federatedApplications())).toEqual([payments]);
    expect(cloud.control.requests({ operation: "graph.listFederatedApplications" })).toHaveLength(1);
  });

  test("a delta link returns each change once, also deletions", async () => {
    const link = (await collectPages(graph.changes(undefined))).at(-1)!.deltaLink!;
    const { control } = cloud;
    const appId = control.directory.putApplication({ name: "Fleeting" });
    control.directory.addSecret(appIdOf("Payments"), { name: "by hand", expiresInDays: 1 });
    const first = await collectPages(graph.changes(link));
    expect(first.flatMap(({ changed }) => changed.map(({ displayName }) => displayName))).toEqual([
      "Fleeting",
      "Payments",
    ]);
    control.directory.removeApplication(appId);
    const second = await collectPages(graph.changes(first.at(-1)!.deltaLink!));
    expect(second.flatMap(({ changed }) => changed)).toEqual([]);
    expect(second.flatMap(({ removed }) => removed)).toEqual([objectIdOf("Fleeting")]);
    expect(await collectPages(graph.changes(second.at(-1)!.deltaLink!))).toMatchObject([{ changed: [], removed: [] }]);
  });

  test("an expired delta link requires a new complete listing", async () => {
    const link = (await collectPages(graph.changes(undefined)))[0]!.deltaLink!;
    cloud.control.directory.forgetDeltaLinks();
    expect((await expectFailure(collectPages(graph.changes(link)))).code).toBe("resyncRequired");
    cloud.control.addFault({
      match: { operation: "graph.applicationsDelta" },
      action: { kind: "refuse", as: "syncStateNotFound" },
    });
    expect((await expectFailure(collectPages(graph.changes(undefined)))).code).toBe("resyncRequired");
  });

  test("a next-page link to another host is not followed", async () => {
    cloud.control.addFault({ match: { operation: "graph.listApplications" }, action: { kind: "foreignNextLink" } });
    expect((await expectFailure(collectItems(graph.applications()))).code).toBe("foreignHost");
    expect(cloud.control.foreignRequests()).toEqual([]);
  });

  test("a delta link to another host is not followed", async () => {
    // The path is that of a list that the client reads, so that only the host is wrong.
    const { port } = new URL(config.cloud.graph);
    const link = `https://evil.localhost:${port}/v1.0/applications/delta?$deltatoken=x`;
    const failure = await expectFailure(collectPages(graph.changes(link)));
    expect([failure.code, cloud.control.foreignRequests()]).toEqual(["foreignHost", []]);
  });

  test("a delta link to a resource that the client does not read is not followed", async () => {
    const link = `${config.cloud.graph}/v1.0/users/delta?$deltatoken=x`;
    const failure = await expectFailure(collectPages(graph.changes(link)));
    // The answer to the request would be a `badResponse` too.
    expect([failure.code, cloud.control.requests({ operation: "unknown" })]).toEqual(["badResponse", []]);
  });

  test("a denied request fails with the permission that is missing", async () => {
    cloud.control.directory.set({ permissions: ["Application.ReadWrite.OwnedBy"] });
    expect(await collectItems(graph.applications())).not.toEqual([]);
    const delta = await expectFailure(collectPages(graph.changes(undefined)));
    expect([delta.code, delta.remedy]).toEqual(["accessDenied", expect.stringContaining("Application.Read.All")]);
    expect(await graph.passwordPolicy(payments)).toBe("unknown");
  });

  test("the service's own permissions are read from its token", async () => {
    const { objectId, permissions } = await graph.grantedPermissions();
    expect(objectId).toBe(cloud.app.objectId);
    expect(permissions).toEqual(cloud.control.directory.settings().permissions);
  });
});

describe("password policies", () => {
  test("there is no limit without policies", async () => {
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true });
  });

  test("an application's policy replaces the tenant's policy", async () => {
    cloud.control.directory.set({ policy: { longestDays: 60 } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true, longestDays: 60 });
    cloud.control.directory.changeApplication(payments, { policy: { longestDays: 120, additionRefused: true } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: false, longestDays: 120 });
    cloud.control.directory.changeApplication(payments, { policy: {} });
    cloud.control.directory.set({ policy: { longestDays: 60, forAppsCreatedInLastDays: 30 } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true });
    expect(await graph.passwordPolicy(objectIdOf("Young"))).toEqual({ allowed: true, longestDays: 60 });
  });

  test("a secret that a policy rejects fails with the code of the policy", async () => {
    cloud.control.directory.set({ policy: { longestDays: 60 } });
    expect((await expectFailure(addSecret(payments))).code).toBe("lifetimePolicy");
    cloud.control.directory.set({ policy: { additionRefused: true } });
    expect((await expectFailure(addSecret(payments, "new", 30))).code).toBe("typePolicy");
    expect(countOf("addPassword")).toBe(2);
  });
});

describe("adding and removing secrets", () => {
  test("an added secret signs in until it is removed", async () => {
    const added = await addSecret(payments, "test secret");
    expect(added).toEqual({
      keyId: expect.any(String),
      displayName: "test secret",
      hint: added.secretText.slice(0, 3),
      startsOn: expect.any(Number),
      expiresOn: aboutDaysFromNow(90),
      secretText: expect.stringMatching(/^[0-9A-Za-z]{3}[0-9]Q~[0-9A-Za-z_.~-]{34}$/),
    });
    expect(await proveSignIn(appIdOf("Payments"), added.secretText)).toEqual({ kind: "accepted" });
    expect(await graph.removePassword(payments, added.keyId)).toBe("removed");
    expect(await proveSignIn(appIdOf("Payments"), added.secretText)).toEqual({ kind: "notYet" });
    expect(await graph.removePassword(payments, added.keyId)).toBe("absent");
    expect(log.lines.join("")).not.toContain(added.secretText);
  });

  // Responses of Microsoft Graph to a write during another write in the tenant, with the status 400 or 409.
  test.each(["concurrent400", "concurrentViolation400", "concurrentViolation409"])(
    "a request is retried after %s",
    async (as) => {
      cloud.control.addFault({ match: { operation: "graph.addPassword" }, action: { kind: "refuse", as }, times: 3 });
      const { keyId } = await addSecret(payments);
      expect(countOf("addPassword")).toBe(4);
      cloud.control.clearFaults();
      cloud.control.addFault({ match: { operation: "graph.removePassword" }, action: { kind: "refuse", as } });
      expect((await expectFailure(graph.removePassword(payments, keyId))).code).toBe("concurrency");
      expect(countOf("removePassword")).toBe(4);
    },
  );

  test("a throttled request is retried", async () => {
    cloud.control.addFault({
      match: { operation: "graph.addPassword" },
      action: { kind: "throttle", retryAfterSeconds: 0 },
      times: 2,
    });
    await addSecret(payments);
    expect(countOf("addPassword")).toBe(3);
  });

  test.each([
    { kind: "loseAnswer" },
    { kind: "cutAnswer" },
    { kind: "failAfter", status: 500 },
    { kind: "failAfter", status: 503 },
    { kind: "garbage", as: "html" },
  ] as const)("a request with an unknown outcome is not retried: %o", async (action) => {
    const countBefore = secretsOf("Payments").length;
    cloud.control.addFault({ match: { operation: "graph.addPassword" }, action, times: 1 });
    const failure = await expectFailure(addSecret(payments, "lost"));
    expect(failure.unclear).toBe(true);
    expect(countOf("addPassword")).toBe(1);
    expect(secretsOf("Payments").length).toBe(action.kind === "garbage" ? countBefore : countBefore + 1);
  });

  test("a secret beyond the limit fails with noRoomForSecret", async () => {
    expect((await expectFailure(addSecret(objectIdOf("Personal")))).code).toBe("noRoomForSecret");
    for (const as of ["twoCredentials", "credentialLimit", "tooLarge"]) {
      cloud.control.clearFaults();
      cloud.control.addFault({ match: { operation: "graph.addPassword" }, action: { kind: "refuse", as } });
      expect((await expectFailure(addSecret(payments))).code).toBe("noRoomForSecret");
    }
    expect(secretsOf("Personal")).toHaveLength(2);
  });

  test("a change of another owner's application fails with the permission that is missing", async () => {
    const failure = await expectFailure(addSecret(objectIdOf("Foreign")));
    expect(failure.code).toBe("accessDenied");
    expect(failure.remedy).toContain("an owner of the application");
    cloud.control.directory.set({ permissions: ["Application.ReadWrite.All"] });
    expect(await graph.removePassword(objectIdOf("Foreign"), keyIdOf("Foreign", "only"))).toBe("removed");
  });
});

describe("sign-in proof", () => {
  const live = () => secretValueOf("Payments", "live");

  test("the outcome follows the error code of Entra ID", async () => {
    expect(await proveSignIn(appIdOf("Payments"), live())).toEqual({ kind: "accepted" });
    expect(await proveSignIn(appIdOf("Payments"), `${live()}x`)).toEqual({ kind: "notYet" });
    expect(await proveSignIn(appIdOf("Payments"), secretValueOf("Payments", "old"))).toEqual({ kind: "expired" });
    expect(await proveSignIn(appIdOf("Unheard of"), live())).toMatchObject({ kind: "impossible", code: 700016 });
    expect(await proveSignIn(appIdOf("Disabled"), secretValueOf("Disabled", "s"))).toMatchObject({ code: 7000112 });
    expect(await proveSignIn(appIdOf("Nowhere"), secretValueOf("Nowhere", "s"))).toMatchObject({ code: 7000229 });
    const elsewhere = createSignInProof(config)(appIdOf("Payments"), live(), "0b1c8e7e-0000-4000-8000-000000000000");
    expect(await elsewhere).toMatchObject({ kind: "impossible", code: 90002 });
  });

  test("the secret of a blocked application is accepted because Entra ID checks it first", async () => {
    expect(await proveSignIn(appIdOf("Blocked"), secretValueOf("Blocked", "s"))).toEqual({ kind: "accepted" });
    expect(await proveSignIn(appIdOf("Blocked"), "wrong")).toEqual({ kind: "notYet" });
  });

  test.each([
    { kind: "throttle" },
    { kind: "fail", status: 503 },
    { kind: "reset" },
    { kind: "garbage", as: "html" },
    { kind: "garbage", as: "otherShape" },
  ] as const)("a response that does not concern the secret is unclear: %o", async (action) => {
    cloud.control.addFault({ match: { operation: "entra.token", item: appIdOf("Payments") }, action });
    expect(await proveSignIn(appIdOf("Payments"), live())).toEqual({ kind: "unclear" });
  });

  test("a secret that is expired by the cloud's clock is reported as expired", async () => {
    const added = await addSecret(payments, "short", 1);
    cloud.control.moveClock(2 * DAY_SECONDS * 1000);
    expect(await proveSignIn(appIdOf("Payments"), added.secretText)).toEqual({ kind: "expired" });
  });
});

describe("undocumented responses", () => {
  const JSON_TYPE = { "content-type": "application/json" };
  const faultyGraph = () =>
    createGraph({
      config: testConfig({ AZURE_GRAPH_ENDPOINT: `https://graph.localhost:${server.port}` }),
      identity: fakeIdentity,
      log,
      limits: SHORT_WAITS,
    });

  test("an application without its IDs fails the list", async () => {
    const entry = { id: payments, appId: appIdOf("Payments"), passwordCredentials: [], keyCredentials: [] };
    server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify({ value: [entry] })));
    expect(await collectItems(faultyGraph().applications())).toMatchObject([
      { displayName: "", passwords: [], keys: [] },
    ]);
    const { appId: _, ...without } = entry;
    server.setResponse((_request, response) =>
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ value: [without] })),
    );
    expect((await expectFailure(collectItems(faultyGraph().applications()))).code).toBe("badResponse");
  });

  test("an undocumented response about one application is a bad response", async () => {
    server.setResponse((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify({ id: payments })));
    expect((await expectFailure(faultyGraph().findApplication({ objectId: payments }))).code).toBe("badResponse");
    expect((await expectFailure(faultyGraph().grantedPermissions())).code).toBe("badResponse");
  });

  test("a change that fails with 503 may have been applied and is not retried", async () => {
    server.setResponse((_, response) => response.writeHead(503, { ...JSON_TYPE, "retry-after": "0" }).end("{}"));
    const failure = await expectFailure(
      faultyGraph().addPassword(payments, { displayName: "new", expiresOn: daysFromNow(90) }),
    );
    expect([failure.unclear, server.requests.length]).toEqual([true, 1]);
  });

  test("each sign-in uses a new connection", async () => {
    const connections = new Set<unknown>();
    server.setResponse((request, response) => {
      connections.add(request.socket);
      response.writeHead(200, JSON_TYPE).end(JSON.stringify({ token_type: "Bearer", access_token: "a.b.c" }));
    });
    const signIn = createSignInProof(
      testConfig({
        AZURE_AUTHORITY_HOST: `https://login.localhost:${server.port}`,
        AZURE_GRAPH_ENDPOINT: `https://graph.localhost:${server.port}`,
      }),
    );
    for (let times = 0; times < 3; times++) {
      // The wait gives a reusable connection the time to become free.
      await delay(20);
      expect(await signIn(appIdOf("Payments"), "a~secret+with/odd=parts", "tenant")).toEqual({ kind: "accepted" });
    }
    expect(connections.size).toBe(3);
  });
});

async function collectPages(pages: AsyncIterable<ApplicationChanges>): Promise<ApplicationChanges[]> {
  const collected: ApplicationChanges[] = [];
  for await (const page of pages) collected.push(page);
  return collected;
}

/** Matches a time, in seconds since 1970, that differs from the given number of days from now by less than a minute. */
function aboutDaysFromNow(days: number): number {
  const wanted = daysFromNow(days);
  return expect.toSatisfy((value: number) => Math.abs(value - wanted) < 60) as number;
}

test("a response with status 429 is throttling although its body names another error", () => {
  const body = JSON.stringify({ error: { code: "Directory_ConcurrencyViolation" } });
  const header = (name: string) => (name === "retry-after" ? "7" : undefined);
  const target = { operation: "add a secret", resource: "application" };
  expect(graphFailure({ status: 429, body, header }, target)).toMatchObject({
    code: "throttled",
    retryAfterSeconds: 7,
    remedy: "No action needed: the service retries later.",
  });
});

test("a key of a B2C custom policy has its thumbprint in upper-case hexadecimal", () => {
  const x5t = Buffer.from("00ab".repeat(10), "hex").toString("base64url");
  const key = { kid: "k", kty: "RSA", nbf: 1_700_000_000, exp: 0 };
  const keys = [{ ...key, x5t, x5c: ["MII"] }, { ...key, x5t: "AAA" }, key];
  expect(readKeySet({ id: "set", keys }).keys).toEqual([
    {
      kid: "k",
      keyType: "RSA",
      startsOn: 1_700_000_000,
      certificate: true,
      thumbprint: "00AB".repeat(10),
      enabled: true,
    },
    { kid: "k", keyType: "RSA", startsOn: 1_700_000_000, certificate: false, enabled: true },
    { kid: "k", keyType: "RSA", startsOn: 1_700_000_000, certificate: false, enabled: true },
  ]);
});
