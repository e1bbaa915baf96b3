import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createRegistrationIdentity } from "../../shared/platform/azure/registration-identity.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { configIn, liveIn } from "./live-cloud.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { failureOf } from "./services.ts";

let cloud: Cloud;
let config: Config;
let server: OddServer;

beforeAll(async () => {
  server = await startOddServer();
  ({ cloud, config } = await liveIn({ company: "small" }));
});
afterAll(async () => {
  await cloud?.stop();
  await server?.stop();
});
beforeEach(() => cloud.control.resetCounts());
afterEach(() => cloud.control.clearFaults());

const SCOPE = "https://vault.localhost/.default";

test("parallel first calls for a scope share one token request, and later ones need none", async () => {
  const credential = await createIdentity(configIn(cloud, cloud.app.clientSecret)).credential();
  const tokens = await Promise.all(Array.from({ length: 20 }, () => credential.getToken(SCOPE)));
  await credential.getToken([SCOPE]);
  expect(new Set(tokens.map((token) => token?.token)).size).toBe(1);
  expect(cloud.control.counts()["entra.token"]).toBe(1);
});

test("the next call requests a token again after a failed request", async () => {
  const credential = await createIdentity(configIn(cloud, cloud.app.clientSecret)).credential();
  const fault = cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "deny" } });
  expect((await failureOf(credential.getToken(SCOPE))).code).toBe("unauthenticated");
  cloud.control.removeFault(fault);
  expect((await credential.getToken(SCOPE))?.token).toBeTruthy();
});

test("the application is described by its token's claims and never by the token", async () => {
  const description = await createIdentity(configIn(cloud, cloud.app.clientSecret)).describe();
  expect(description).toMatchObject({
    credentialType: "clientSecret",
    tenantId: cloud.app.tenantId,
    clientId: cloud.app.clientId,
    objectId: cloud.app.objectId,
    cloud: "AzureCloud",
    authorityHost: cloud.environment.AZURE_AUTHORITY_HOST,
  });
  expect(Date.parse(description.tokenExpiresAt)).toBeGreaterThan(Date.now());
  expect(JSON.stringify(description)).not.toContain("eyJ");
});

/** Returns the configuration of an application whose sign-in service answers this token. */
function signedInAs(token: object): Config {
  server.answer((request, response) => {
    const tenant = `https://${request.headers.host}/${cloud.app.tenantId}`;
    const endpoints = { token_endpoint: `${tenant}/token`, authorization_endpoint: `${tenant}/authorize` };
    const known = { ...endpoints, issuer: `${tenant}/v2.0`, jwks_uri: `${tenant}/keys` };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(request.method === "GET" ? known : { token_type: "Bearer", ...token }));
  });
  const own = configIn(cloud, cloud.app.clientSecret);
  return { ...own, cloud: { ...own.cloud, authorityHost: `https://login.localhost:${server.port}` } };
}

test.each([
  [{ upn: "ada@acme.example", unique_name: "ada" }, "ada@acme.example"],
  [{ unique_name: "ada", app_displayname: "Lifecycle" }, "ada"],
  [{ app_displayname: "Lifecycle", xms_mirid: "/subscriptions/1/userAssignedIdentities/id-app" }, "Lifecycle"],
  [{ xms_mirid: "/subscriptions/1/userAssignedIdentities/id-app" }, "id-app"],
  [{}, undefined],
])("an identity with the claims %j has the name %s", async (claims, name) => {
  const token = `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.`;
  const description = await createIdentity(signedInAs({ access_token: token, expires_in: 3600 })).describe();
  expect(description.name).toBe(name);
});

test("a valid token is used until it expires if there is no newer one", async () => {
  const credential = await createIdentity(signedInAs({ access_token: "first", expires_in: 60 })).credential();
  expect((await credential.getToken(SCOPE))?.token).toBe("first");
  server.answer((_, response) => response.writeHead(400, { "content-type": "application/json" }).end("{}"));
  expect((await credential.getToken(SCOPE))?.token).toBe("first");
  expect(server.requests.length).toBeGreaterThan(0);
  const later = Date.now() + 61_000;
  const clock = vi.spyOn(Date, "now").mockReturnValue(later);
  onTestFinished(() => clock.mockRestore());
  expect((await failureOf(credential.getToken(SCOPE))).code).toBe("unauthenticated");
});

test.each([
  [360, 1],
  [300, 2],
])("another tenant's token that expires in %i seconds is requested by %i of two calls", async (seconds, requests) => {
  const registration = { tenantId: cloud.app.tenantId, clientId: cloud.app.clientId, clientSecret: "secret" };
  const there = signedInAs({ access_token: "token", expires_in: seconds });
  const credential = await createRegistrationIdentity(there, registration).credential();
  for (const _ of [1, 2]) expect((await credential.getToken(SCOPE))?.token).toBe("token");
  expect(server.requests).toHaveLength(requests);
});

test("the managed identity is used if the platform's identity endpoint is in the environment", async () => {
  const description = await createIdentity(config).describe();
  expect(description).toMatchObject({ credentialType: "managedIdentity", tenantId: cloud.app.tenantId });
  expect(description.clientId).not.toBe(cloud.app.clientId);
  expect(cloud.control.counts()["identity.token"]).toBe(1);
  expect(cloud.control.counts()["entra.token"]).toBeUndefined();
});

test("a user-assigned identity is requested by its client ID", async () => {
  const other = "11111111-2222-4333-8444-555555555555";
  const credential = await createIdentity({ ...config, AZURE_CLIENT_ID: other }).credential();
  const failure = await failureOf(credential.getToken(SCOPE));
  expect([failure.code, failure.remedy]).toEqual(["unauthenticated", expect.stringContaining("managed identity")]);
  expect(cloud.control.requests({ operation: "identity.token" })[0]?.path).toContain(`client_id=${other}`);
});

test("a wrong client secret is unauthenticated, with Entra's code and without the secret", async () => {
  const credential = await createIdentity(configIn(cloud, "planted-wrong-secret")).credential();
  const failure = await failureOf(credential.getToken(SCOPE));
  expect([failure.code, failure.cloudCode]).toEqual(["unauthenticated", "AADSTS7000215"]);
  expect(failure.message).toContain(cloud.app.clientId);
  expect(failure.remedy).toContain("application's secret");
  expect(`${failure.stack}${JSON.stringify(failure)}`).not.toContain("planted");
});

test("without any sign-in, the remedy names az login first", async () => {
  const { IDENTITY_ENDPOINT: endpoint, PATH: programs } = process.env;
  delete process.env.IDENTITY_ENDPOINT;
  // Hides the tools and the network of this machine.
  Object.assign(process.env, { PATH: "", AZURE_TOKEN_CREDENTIALS: "dev" });
  try {
    const failure = await failureOf((await createIdentity(config).credential()).getToken(SCOPE));
    expect([failure.code, failure.remedy]).toEqual(["unauthenticated", expect.stringMatching(/^Sign in .*az login/)]);
  } finally {
    delete process.env.AZURE_TOKEN_CREDENTIALS;
    Object.assign(process.env, { PATH: programs, IDENTITY_ENDPOINT: endpoint });
  }
});

test("a sign-in service where nobody listens is unreachable", async () => {
  const there = configIn(cloud, cloud.app.clientSecret);
  const nowhere = { ...there, cloud: { ...there.cloud, authorityHost: "https://login.localhost:1" } };
  const failure = await failureOf((await createIdentity(nowhere).credential()).getToken(SCOPE));
  expect(failure.code).toBe("unreachable");
});

test("a sign-in service that hangs is unreachable after the time limit", async () => {
  cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "hang" } });
  const identity = createIdentity(configIn(cloud, cloud.app.clientSecret), { timeoutMs: 200 });
  const failure = await failureOf((await identity.credential()).getToken(SCOPE));
  expect([failure.code, failure.message]).toEqual(["unreachable", expect.stringContaining("within 0.2 s")]);
});

test("one caller's abort ends its own wait and not the others'", async () => {
  cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "latency", milliseconds: 200 } });
  const credential = await createIdentity(configIn(cloud, cloud.app.clientSecret)).credential();
  const controller = new AbortController();
  const aborted = failureOf(credential.getToken(SCOPE, { abortSignal: controller.signal }));
  const other = credential.getToken(SCOPE);
  controller.abort();
  expect((await aborted).code).toBe("timedOut");
  expect((await other)?.token).toBeTruthy();
});
