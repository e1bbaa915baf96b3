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
import { configIn, liveIn } from "./live-cloud.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

const DAY = 86_400;

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

let server: OddServer;
let cloud: Cloud;
let config: Config;
let log: ReturnType<typeof recordingLog>;
let graph: Graph;
let prove: (appId: string, secret: string) => ReturnType<ProveSignIn>;

beforeAll(async () => {
  // Before the first connection: the trusted authorities are read then.
  server = await startOddServer();
  ({ cloud, config } = await liveIn({ company }));
  log = recordingLog();
  const own = configIn(cloud, cloud.app.clientSecret);
  graph = createGraph({ config: own, identity: createIdentity(own), log, limits: IMPATIENT });
  const signIn = createSignInProof(config);
  prove = (appId, secret) => signIn(appId, secret, cloud.app.tenantId);
});
const defaults = () => structuredClone(cloud.control.directory.settings());
let before: ReturnType<typeof defaults>;
beforeEach(() => {
  before = defaults();
  cloud.control.resetCounts();
});
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.directory.set({ policy: undefined as never, ...before });
});
afterAll(async () => {
  await cloud?.stop();
  await server?.stop();
});

const inDays = (days: number) => Math.floor(Date.parse(cloud.control.now()) / 1000) + days * DAY;
const add = (objectId: string, displayName = "new", days = 90) =>
  graph.addPassword(objectId, { displayName, expiresOn: inDays(days) });
const countOf = (operation: string) => cloud.control.counts()[`graph.${operation}`] ?? 0;
const secretsOf = (name: string) =>
  cloud.control.directory.secrets(appIdOf(name)).filter(({ removedAt }) => removedAt === undefined);

describe("reading", () => {
  test("all applications come with their credentials and owners, thumbprints in one form", async () => {
    const found = await all(graph.applications());
    expect(found.map(({ displayName }) => displayName)).toEqual(company.applications!.map(({ name }) => name));
    const [first] = found;
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
    expect(first!.passwords[1]!.expiresOn! - first!.passwords[1]!.startsOn!).toBe(50 * DAY);
    expect(first!.keys.map(({ thumbprint }) => thumbprint)).toEqual([
      expect.stringMatching(/^[0-9A-F]{40}$/),
      expect.stringMatching(/^[0-9A-F]{40}$/),
    ]);
    expect(first!.owners?.map(({ mail }) => mail)).toEqual([
      "ada@acme.example",
      "grace@acme.example",
      undefined,
      undefined,
    ]);
    expect(countOf("listApplications")).toBe(1);
  });

  test("an application is found by either ID, and an unknown ID returns undefined", async () => {
    expect((await graph.application({ objectId: payments }))?.displayName).toBe("Payments");
    expect((await graph.application({ appId: appIdOf("Payments") }))?.objectId).toBe(payments);
    expect(await graph.application({ objectId: appIdOf("Payments") })).toBeUndefined();
  });

  test("only service principals with credentials of their own are listed", async () => {
    const found = await all(graph.servicePrincipals());
    expect(found.map(({ displayName, keys }) => [displayName, keys.map(({ usage }) => usage)])).toEqual([
      ["Saml", ["Sign", "Verify"]],
    ]);
  });

  test("federated credentials and owners of one application", async () => {
    expect(await graph.federatedCredentials(payments)).toEqual([
      { id: expect.any(String), name: "main", issuer: "https://issuer.example", subject: "repo:a/b" },
    ]);
    expect((await graph.owners(payments)).map(({ id }) => id)).toContain(cloud.app.objectId);
  });

  test("applications with federated credentials are found with one request", async () => {
    expect(await all(graph.federatedApplications())).toEqual([payments]);
    expect(cloud.control.requests({ operation: "graph.listFederatedApplications" })).toHaveLength(1);
  });

  test("changes since a link are returned once, with the deleted objects", async () => {
    const link = (await pagesOf(graph.changes(undefined))).at(-1)!.deltaLink!;
    const { control } = cloud;
    const appId = control.directory.putApplication({ name: "Fleeting" });
    control.directory.addSecret(appIdOf("Payments"), { name: "by hand", expiresInDays: 1 });
    const first = await pagesOf(graph.changes(link));
    expect(first.flatMap(({ changed }) => changed.map(({ displayName }) => displayName))).toEqual([
      "Fleeting",
      "Payments",
    ]);
    control.directory.removeApplication(appId);
    const second = await pagesOf(graph.changes(first.at(-1)!.deltaLink!));
    expect(second.flatMap(({ changed }) => changed)).toEqual([]);
    expect(second.flatMap(({ removed }) => removed)).toEqual([objectIdOf("Fleeting")]);
    expect(await pagesOf(graph.changes(second.at(-1)!.deltaLink!))).toMatchObject([{ changed: [], removed: [] }]);
  });

  test("an expired delta link requires a new complete listing", async () => {
    const link = (await pagesOf(graph.changes(undefined)))[0]!.deltaLink!;
    cloud.control.directory.forgetDeltaLinks();
    expect((await failureOf(pagesOf(graph.changes(link)))).code).toBe("resyncRequired");
    cloud.control.addFault({
      match: { operation: "graph.applicationsDelta" },
      action: { kind: "refuse", as: "syncStateNotFound" },
    });
    expect((await failureOf(pagesOf(graph.changes(undefined)))).code).toBe("resyncRequired");
  });

  test("a link to another host is not followed", async () => {
    cloud.control.addFault({ match: { operation: "graph.listApplications" }, action: { kind: "foreignNextLink" } });
    expect((await failureOf(all(graph.applications()))).code).toBe("foreignHost");
    expect(cloud.control.foreignRequests()).toEqual([]);
    const elsewhere = `${config.cloud.graph}/v1.0/users/delta?$deltatoken=x`;
    expect((await failureOf(pagesOf(graph.changes(elsewhere)))).code).toBe("badResponse");
  });

  test("the failure names the missing permission", async () => {
    cloud.control.directory.set({ permissions: ["Application.ReadWrite.OwnedBy"] });
    expect(await all(graph.applications())).not.toEqual([]);
    const delta = await failureOf(pagesOf(graph.changes(undefined)));
    expect([delta.code, delta.remedy]).toEqual(["accessDenied", expect.stringContaining("Application.Read.All")]);
    expect(await graph.passwordPolicy(payments)).toBe("unknown");
  });

  test("its own permissions are read from its token", async () => {
    const { objectId, permissions } = await graph.rights();
    expect(objectId).toBe(cloud.app.objectId);
    expect(permissions).toEqual(cloud.control.directory.settings().permissions);
  });
});

describe("policies", () => {
  test("there is no limit without policies", async () => {
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true });
  });

  test("the application's policy replaces the tenant's, and neither applies to older applications than it says", async () => {
    cloud.control.directory.set({ policy: { longestDays: 60 } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true, longestDays: 60 });
    cloud.control.directory.changeApplication(payments, { policy: { longestDays: 120, additionRefused: true } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: false, longestDays: 120 });
    cloud.control.directory.changeApplication(payments, { policy: {} });
    cloud.control.directory.set({ policy: { longestDays: 60, forAppsCreatedInLastDays: 30 } });
    expect(await graph.passwordPolicy(payments)).toEqual({ allowed: true });
    expect(await graph.passwordPolicy(objectIdOf("Young"))).toEqual({ allowed: true, longestDays: 60 });
  });

  test("a secret that a policy rejects is reported as rejected by the policy", async () => {
    cloud.control.directory.set({ policy: { longestDays: 60 } });
    expect((await failureOf(add(payments))).code).toBe("lifetimePolicy");
    cloud.control.directory.set({ policy: { additionRefused: true } });
    expect((await failureOf(add(payments, "new", 30))).code).toBe("typePolicy");
    expect(countOf("addPassword")).toBe(2);
  });
});

describe("writing", () => {
  test("a secret is added, signs in, and is removed once", async () => {
    const made = await add(payments, "with room");
    expect(made).toEqual({
      keyId: expect.any(String),
      displayName: "with room",
      hint: made.secretText.slice(0, 3),
      startsOn: expect.any(Number),
      expiresOn: inDaysAbout(90),
      secretText: expect.stringMatching(/^[0-9A-Za-z]{3}[0-9]Q~[0-9A-Za-z_.~-]{34}$/),
    });
    expect(await prove(appIdOf("Payments"), made.secretText)).toEqual({ kind: "accepted" });
    expect(await graph.removePassword(payments, made.keyId)).toBe("removed");
    expect(await prove(appIdOf("Payments"), made.secretText)).toEqual({ kind: "notYet" });
    expect(await graph.removePassword(payments, made.keyId)).toBe("absent");
    expect(log.lines.join("")).not.toContain(made.secretText);
  });

  test.each(["concurrent400", "concurrentViolation400", "concurrentViolation409"])(
    "is tried again after %s",
    async (as) => {
      cloud.control.addFault({ match: { operation: "graph.addPassword" }, action: { kind: "refuse", as }, times: 3 });
      const { keyId } = await add(payments);
      expect(countOf("addPassword")).toBe(4);
      cloud.control.clearFaults();
      cloud.control.addFault({ match: { operation: "graph.removePassword" }, action: { kind: "refuse", as } });
      expect((await failureOf(graph.removePassword(payments, keyId))).code).toBe("concurrency");
      expect(countOf("removePassword")).toBe(4);
    },
  );

  test("waits as long as the answer says", async () => {
    cloud.control.addFault({
      match: { operation: "graph.addPassword" },
      action: { kind: "throttle", retryAfterSeconds: 0 },
      times: 2,
    });
    await add(payments);
    expect(countOf("addPassword")).toBe(3);
  });

  test.each([
    { kind: "loseAnswer" },
    { kind: "cutAnswer" },
    { kind: "failAfter", status: 500 },
    { kind: "failAfter", status: 503 },
    { kind: "garbage", as: "html" },
  ] as const)("is never retried if the outcome is unknown: %o", async (action) => {
    const had = secretsOf("Payments").length;
    cloud.control.addFault({ match: { operation: "graph.addPassword" }, action, times: 1 });
    const failure = await failureOf(add(payments, "lost"));
    expect(failure.unclear).toBe(true);
    expect(countOf("addPassword")).toBe(1);
    expect(secretsOf("Payments").length).toBe(action.kind === "garbage" ? had : had + 1);
  });

  test("a third secret of an application with personal accounts is rejected as noRoomForSecret, in every form of the answer", async () => {
    expect((await failureOf(add(objectIdOf("Personal")))).code).toBe("noRoomForSecret");
    for (const as of ["twoCredentials", "credentialLimit", "tooLarge"]) {
      cloud.control.clearFaults();
      cloud.control.addFault({ match: { operation: "graph.addPassword" }, action: { kind: "refuse", as } });
      expect((await failureOf(add(payments))).code).toBe("noRoomForSecret");
    }
    expect(secretsOf("Personal")).toHaveLength(2);
  });

  test("an application of another owner is not changed, and the failure names the permission", async () => {
    const failure = await failureOf(add(objectIdOf("Foreign")));
    expect(failure.code).toBe("accessDenied");
    expect(failure.remedy).toContain("an owner of the application");
    cloud.control.directory.set({ permissions: ["Application.ReadWrite.All"] });
    expect(await graph.removePassword(objectIdOf("Foreign"), keyIdOf("Foreign", "only"))).toBe("removed");
  });
});

describe("proving", () => {
  const live = () => secretValueOf("Payments", "live");

  test("Entra's code decides", async () => {
    expect(await prove(appIdOf("Payments"), live())).toEqual({ kind: "accepted" });
    expect(await prove(appIdOf("Payments"), `${live()}x`)).toEqual({ kind: "notYet" });
    expect(await prove(appIdOf("Payments"), secretValueOf("Payments", "old"))).toEqual({ kind: "expired" });
    expect(await prove(appIdOf("Unheard of"), live())).toMatchObject({ kind: "impossible", code: 700016 });
    expect(await prove(appIdOf("Disabled"), secretValueOf("Disabled", "s"))).toMatchObject({ code: 7000112 });
    expect(await prove(appIdOf("Nowhere"), secretValueOf("Nowhere", "s"))).toMatchObject({ code: 7000229 });
    const elsewhere = createSignInProof(config)(appIdOf("Payments"), live(), "0b1c8e7e-0000-4000-8000-000000000000");
    expect(await elsewhere).toMatchObject({ kind: "impossible", code: 90002 });
  });

  test("an application that is blocked after authentication has a valid secret", async () => {
    expect(await prove(appIdOf("Blocked"), secretValueOf("Blocked", "s"))).toEqual({ kind: "accepted" });
    expect(await prove(appIdOf("Blocked"), "wrong")).toEqual({ kind: "notYet" });
  });

  test.each([
    { kind: "throttle" },
    { kind: "fail", status: 503 },
    { kind: "reset" },
    { kind: "garbage", as: "html" },
    { kind: "garbage", as: "otherShape" },
  ] as const)("an answer that says nothing about the secret is no evidence: %o", async (action) => {
    cloud.control.addFault({ match: { operation: "entra.token", item: appIdOf("Payments") }, action });
    expect(await prove(appIdOf("Payments"), live())).toEqual({ kind: "unclear" });
  });

  test("a secret that is expired by the cloud's clock is reported as expired", async () => {
    const made = await add(payments, "short", 1);
    cloud.control.moveClock(2 * DAY * 1000);
    expect(await prove(appIdOf("Payments"), made.secretText)).toEqual({ kind: "expired" });
  });
});

describe("an odd server", () => {
  const JSON_TYPE = { "content-type": "application/json" };
  const faultyGraph = () =>
    createGraph({
      config: testConfig({ AZURE_GRAPH_ENDPOINT: `https://graph.localhost:${server.port}` }),
      identity: plainIdentity,
      log,
      limits: IMPATIENT,
    });

  test("an application without its IDs fails the list, and other missing members do not", async () => {
    const entry = { id: payments, appId: appIdOf("Payments"), passwordCredentials: [], keyCredentials: [] };
    server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify({ value: [entry] })));
    expect(await all(faultyGraph().applications())).toMatchObject([{ displayName: "", passwords: [], keys: [] }]);
    const { appId: _, ...without } = entry;
    server.answer((_request, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify({ value: [without] })));
    expect((await failureOf(all(faultyGraph().applications()))).code).toBe("badResponse");
  });

  test("an undocumented answer about one application is a bad response, not an error of this program", async () => {
    server.answer((_, response) => response.writeHead(200, JSON_TYPE).end(JSON.stringify({ id: payments })));
    expect((await failureOf(faultyGraph().application({ objectId: payments }))).code).toBe("badResponse");
    expect((await failureOf(faultyGraph().rights())).code).toBe("badResponse");
  });

  test("after an answer that asks for a retry, the change may have been applied", async () => {
    server.answer((_, response) => response.writeHead(503, { ...JSON_TYPE, "retry-after": "0" }).end("{}"));
    const failure = await failureOf(faultyGraph().addPassword(payments, { displayName: "new", expiresOn: inDays(90) }));
    expect([failure.unclear, server.requests.length]).toEqual([true, 1]);
  });

  test("each sign-in uses a connection of its own", async () => {
    const connections = new Set<unknown>();
    server.answer((request, response) => {
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
      // A kept connection would be free by then.
      await delay(20);
      expect(await signIn(appIdOf("Payments"), "a~secret+with/odd=parts", "tenant")).toEqual({ kind: "accepted" });
    }
    expect(connections.size).toBe(3);
  });
});

async function pagesOf(pages: AsyncIterable<ApplicationChanges>): Promise<ApplicationChanges[]> {
  const found: ApplicationChanges[] = [];
  for await (const page of pages) found.push(page);
  return found;
}

/** Times of the last minute. */
function inDaysAbout(days: number): number {
  const wanted = inDays(days);
  return expect.toSatisfy((value: number) => Math.abs(value - wanted) < 60) as number;
}

test("a limit of Graph is throttling, whatever else the answer says", () => {
  const body = JSON.stringify({ error: { code: "Directory_ConcurrencyViolation" } });
  const header = (name: string) => (name === "retry-after" ? "7" : undefined);
  const target = { operation: "add a secret", resource: "application" };
  expect(graphFailure({ status: 429, body, header }, target)).toMatchObject({
    code: "throttled",
    retryAfterSeconds: 7,
    remedy: "No action needed: the service retries later.",
  });
});

test("a key of a custom policy has its certificate's thumbprint in upper-case hexadecimal", () => {
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
