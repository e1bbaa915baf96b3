import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createRegistrationIdentity } from "../../shared/platform/azure/registration-identity.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { configFor, startTestCloud } from "./live-cloud.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { expectFailure } from "./services.ts";

/** Tests of how the service gets access tokens: with a client secret, a managed identity or a developer's sign-in. */

let cloud: Cloud;
let config: Config;
let server: FakeServer;

beforeAll(async () => {
  server = await startFakeServer();
  ({ cloud, config } = await startTestCloud({ company: "small" }));
});
afterAll(async () => {
  await cloud?.stop();
  await server?.stop();
});
beforeEach(() => cloud.control.resetCounts());
afterEach(() => cloud.control.clearFaults());

const SCOPE = "https://vault.localhost/.default";

test("calls for the same scope share one token request", async () => {
  const credential = await createIdentity(configFor(cloud, cloud.app.clientSecret)).credential();
  const tokens = await Promise.all(Array.from({ length: 20 }, () => credential.getToken(SCOPE)));
  await credential.getToken([SCOPE]);
  expect(new Set(tokens.map((token) => token?.token)).size).toBe(1);
  expect(cloud.control.counts()["entra.token"]).toBe(1);
});

test("a call after a failed token request sends a new one", async () => {
  const credential = await createIdentity(configFor(cloud, cloud.app.clientSecret)).credential();
  const fault = cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "deny" } });
  expect((await expectFailure(credential.getToken(SCOPE))).code).toBe("unauthenticated");
  cloud.control.removeFault(fault);
  expect((await credential.getToken(SCOPE))?.token).toBeTruthy();
});

test("the description contains the token's claims and not the token", async () => {
  const description = await createIdentity(configFor(cloud, cloud.app.clientSecret)).describe();
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

/** Lets the fake server respond to token requests with this token. Returns a configuration that signs in there. */
function configWithToken(token: object): Config {
  server.setResponse((request, response) => {
    const tenant = `https://${request.headers.host}/${cloud.app.tenantId}`;
    const endpoints = { token_endpoint: `${tenant}/token`, authorization_endpoint: `${tenant}/authorize` };
    const discoveryDocument = { ...endpoints, issuer: `${tenant}/v2.0`, jwks_uri: `${tenant}/keys` };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(request.method === "GET" ? discoveryDocument : { token_type: "Bearer", ...token }));
  });
  const ownConfig = configFor(cloud, cloud.app.clientSecret);
  return { ...ownConfig, cloud: { ...ownConfig.cloud, authorityHost: `https://login.localhost:${server.port}` } };
}

test.each([
  [{ upn: "ada@acme.example", unique_name: "ada" }, "ada@acme.example"],
  [{ unique_name: "ada", app_displayname: "Lifecycle" }, "ada"],
  [{ app_displayname: "Lifecycle", xms_mirid: "/subscriptions/1/userAssignedIdentities/id-app" }, "Lifecycle"],
  [{ xms_mirid: "/subscriptions/1/userAssignedIdentities/id-app" }, "id-app"],
  [{}, undefined],
])("an identity with the claims %j has the name %s", async (claims, name) => {
  const token = `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.`;
  const description = await createIdentity(configWithToken({ access_token: token, expires_in: 3600 })).describe();
  expect(description.name).toBe(name);
});

test("a token is used until it expires if its renewal fails", async () => {
  const credential = await createIdentity(configWithToken({ access_token: "first", expires_in: 60 })).credential();
  expect((await credential.getToken(SCOPE))?.token).toBe("first");
  server.setResponse((_, response) => response.writeHead(400, { "content-type": "application/json" }).end("{}"));
  expect((await credential.getToken(SCOPE))?.token).toBe("first");
  expect(server.requests.length).toBeGreaterThan(0);
  const later = Date.now() + 61_000;
  const clock = vi.spyOn(Date, "now").mockReturnValue(later);
  onTestFinished(() => clock.mockRestore());
  expect((await expectFailure(credential.getToken(SCOPE))).code).toBe("unauthenticated");
});

// A token is renewed in the last 300 seconds before its expiry.
test.each([
  [360, 1],
  [300, 2],
])(
  "two calls with another tenant's token that expires in %i seconds send %i token requests",
  async (seconds, requests) => {
    const registration = { tenantId: cloud.app.tenantId, clientId: cloud.app.clientId, clientSecret: "secret" };
    const otherTenantConfig = configWithToken({ access_token: "token", expires_in: seconds });
    const credential = await createRegistrationIdentity(otherTenantConfig, registration).credential();
    for (const _ of [1, 2]) expect((await credential.getToken(SCOPE))?.token).toBe("token");
    expect(server.requests).toHaveLength(requests);
  },
);

test("the managed identity is used if the environment names an identity endpoint", async () => {
  const description = await createIdentity(config).describe();
  expect(description).toMatchObject({ credentialType: "managedIdentity", tenantId: cloud.app.tenantId });
  expect(description.clientId).not.toBe(cloud.app.clientId);
  expect(cloud.control.counts()["identity.token"]).toBe(1);
  expect(cloud.control.counts()["entra.token"]).toBeUndefined();
});

test("a user-assigned identity is requested by its client ID", async () => {
  const other = "11111111-2222-4333-8444-555555555555";
  const credential = await createIdentity({ ...config, AZURE_CLIENT_ID: other }).credential();
  const failure = await expectFailure(credential.getToken(SCOPE));
  expect([failure.code, failure.remedy]).toEqual(["unauthenticated", expect.stringContaining("managed identity")]);
  expect(cloud.control.requests({ operation: "identity.token" })[0]?.path).toContain(`client_id=${other}`);
});

test("a wrong client secret fails with Entra's error code and without the secret", async () => {
  const credential = await createIdentity(configFor(cloud, "planted-wrong-secret")).credential();
  const failure = await expectFailure(credential.getToken(SCOPE));
  expect([failure.code, failure.cloudCode]).toEqual(["unauthenticated", "AADSTS7000215"]);
  expect(failure.message).toContain(cloud.app.clientId);
  expect(failure.remedy).toContain("application's secret");
  expect(`${failure.stack}${JSON.stringify(failure)}`).not.toContain("planted");
});

test("without any way to sign in, the remedy names az login", async () => {
  const { IDENTITY_ENDPOINT: endpoint, PATH: programs } = process.env;
  delete process.env.IDENTITY_ENDPOINT;
  // Hides Azure CLI and other developer tools of this machine.
  Object.assign(process.env, { PATH: "", AZURE_TOKEN_CREDENTIALS: "dev" });
  try {
    const failure = await expectFailure((await createIdentity(config).credential()).getToken(SCOPE));
    expect([failure.code, failure.remedy]).toEqual(["unauthenticated", expect.stringMatching(/^Sign in .*az login/)]);
  } finally {
    delete process.env.AZURE_TOKEN_CREDENTIALS;
    Object.assign(process.env, { PATH: programs, IDENTITY_ENDPOINT: endpoint });
  }
});

test("a sign-in service that refuses connections is unreachable", async () => {
  const ownConfig = configFor(cloud, cloud.app.clientSecret);
  const nowhere = { ...ownConfig, cloud: { ...ownConfig.cloud, authorityHost: "https://login.localhost:1" } };
  const failure = await expectFailure((await createIdentity(nowhere).credential()).getToken(SCOPE));
  expect(failure.code).toBe("unreachable");
});

test("a sign-in service that hangs is unreachable after the time limit", async () => {
  cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "hang" } });
  const identity = createIdentity(configFor(cloud, cloud.app.clientSecret), { timeoutMs: 200 });
  const failure = await expectFailure((await identity.credential()).getToken(SCOPE));
  expect([failure.code, failure.message]).toEqual(["unreachable", expect.stringContaining("within 0.2 s")]);
});

test("an aborted call does not abort other calls for the same token", async () => {
  cloud.control.addFault({ match: { operation: "entra.token" }, action: { kind: "latency", milliseconds: 200 } });
  const credential = await createIdentity(configFor(cloud, cloud.app.clientSecret)).credential();
  const controller = new AbortController();
  const aborted = expectFailure(credential.getToken(SCOPE, { abortSignal: controller.signal }));
  const other = credential.getToken(SCOPE);
  controller.abort();
  expect((await aborted).code).toBe("timedOut");
  expect((await other)?.token).toBeTruthy();
});
