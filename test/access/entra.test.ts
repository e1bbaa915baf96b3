import { randomUUID } from "node:crypto";
import type { RequestListener } from "node:http";
import { SignJWT } from "jose";
import type { ApiTokenRequest } from "simulated-cloud/api-tokens.ts";
import { type Cloud, startCloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { createEntraTokens, type EntraTokens } from "../../shared/access/entra.ts";
import { createTokens } from "../../shared/access/tokens.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemClock, systemRandomness } from "../../shared/platform/runtime.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { startFakeServer } from "../azure/odd-server.ts";
import { recordingLog, testConfig } from "../azure/services.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

// Tests of access tokens that Microsoft Entra ID issues for the service's API.

let cloud: Cloud;
let config: Config;
let log: ReturnType<typeof recordingLog>;
let entra: EntraTokens;
beforeAll(async () => {
  cloud = await startCloud({ company: "small", keys: CLOUD_KEYS });
  config = testConfig(cloud.environment);
});
afterAll(() => cloud?.stop());
beforeEach(() => {
  entra = createVerifier();
  cloud.control.resetCounts();
});
afterEach(() => {
  vi.useRealTimers();
  cloud.control.clearFaults();
});

/** Creates a verifier of tokens that has not read any of Entra's keys yet. */
function createVerifier(change: Record<string, string> = {}): EntraTokens {
  log = recordingLog();
  return createEntraTokens({ config: testConfig({ ...cloud.environment, ...change }), clock: systemClock, log });
}

const tenant = () => cloud.app.tenantId;
const clientId = () => config.ENTRA_API_CLIENT_ID!;

/**
 * Returns the role that a token gives, the code of the problem if it is rejected, or undefined if the token is not an Entra
 * token.
 */
async function roleOrProblem(token: string, verifier = entra): Promise<string | undefined> {
  const result = await verifier.authenticate(token);
  if (result === undefined) return undefined;
  return result instanceof Problem ? result.code : result.role;
}

const issueToken = (request: ApiTokenRequest) => cloud.control.apiToken(request);

/** Returns the problem with which a token is rejected. */
async function rejectionOf(request: ApiTokenRequest): Promise<Problem> {
  const result = await entra.authenticate(await issueToken(request));
  if (!(result instanceof Problem)) throw new Error("The token was not rejected");
  return result;
}

/** A GUID that no tenant, application or person has. */
const OTHER_ID = "11111111-1111-4111-8111-111111111111";

describe.each([1, 2] as const)("a token of version %i", (version) => {
  test("authenticates the application or person it was issued to", async () => {
    expect(
      await entra.authenticate(await issueToken({ version, claims: { oid: OTHER_ID.toUpperCase(), sub: OTHER_ID } })),
    ).toEqual({
      username: `entra:${tenant()}:${OTHER_ID}`,
      role: "user",
      credential: { kind: "entra" },
    });
    const ada = cloud.control.people().find(({ id }) => id === "ada")!;
    expect(await entra.authenticate(await issueToken({ version, person: "ada" }))).toMatchObject({
      username: `entra:${tenant()}:${ada.objectId}`,
      role: "admin",
    });
  });

  test("that Entra issues to an application or a managed identity is accepted", async () => {
    cloud.control.registerApi(version, ["Lifecycle.Operator"]);
    const form = {
      grant_type: "client_credentials",
      client_id: cloud.app.clientId,
      client_secret: cloud.app.clientSecret,
    };
    const applicationResponse = await fetch(`${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/oauth2/v2.0/token`, {
      method: "POST",
      body: new URLSearchParams({ ...form, scope: `api://${clientId()}/.default` }),
    });
    const identityResponse = await fetch(
      `${cloud.environment.IDENTITY_ENDPOINT}?api-version=2019-08-01&resource=api://${clientId()}`,
      { headers: { "x-identity-header": cloud.environment.IDENTITY_HEADER! } },
    );
    for (const response of [applicationResponse, identityResponse]) {
      const { access_token } = (await response.json()) as { access_token: string };
      expect(await roleOrProblem(access_token)).toBe("operator");
    }
  });

  /**
   * Returns the time this number of seconds ago, in seconds since 1970. Negative seconds give a time in the future. Clocks may
   * differ by 60 seconds.
   */
  const secondsAgo = (seconds: number) => Math.floor(Date.now() / 1000) - seconds;

  test.each<[string, () => ApiTokenRequest]>([
    ["for another API", () => ({ claims: { aud: OTHER_ID } })],
    ["for Graph", () => ({ claims: { aud: "https://graph.microsoft.com" } })],
    ["without an audience", () => ({ claims: { aud: null } })],
    ["of another tenant than its issuer", () => ({ claims: { tid: OTHER_ID } })],
    ["without a tenant", () => ({ claims: { tid: null } })],
    ["without an object ID", () => ({ claims: { oid: null } })],
    ["with an object ID that is not a GUID", () => ({ claims: { oid: "admin" } })],
    ["of the other version", () => ({ claims: { ver: version === 1 ? "2.0" : "1.0" } })],
    ["without a version", () => ({ claims: { ver: null } })],
    ["that has expired", () => ({ claims: { exp: secondsAgo(120) } })],
    ["that never expires", () => ({ claims: { exp: null } })],
    ["without a time of issue", () => ({ claims: { iat: null } })],
    ["that is not valid yet", () => ({ claims: { nbf: secondsAgo(-120) } })],
    ["with roles that are not a list", () => ({ claims: { roles: { "Lifecycle.Admin": true } } })],
    ["without a signature", () => ({ signature: "none" })],
    ["signed with another key of the same name", () => ({ signature: "foreignKey" })],
    ["signed with the public key as a secret", () => ({ signature: "publicKeyHmac" })],
    ["that names an unknown key", () => ({ header: { kid: "unknown" } })],
    ["that names no key", () => ({ header: { kid: undefined } })],
    ["with an unknown critical extension", () => ({ header: { crit: ["x"], x: 1 } })],
  ])("%s is rejected", async (_description, request) => {
    expect(await roleOrProblem(await issueToken({ version, ...request() }))).toBe("unauthorized");
    // A token without the defect is accepted, so the defect is the reason for the rejection.
    expect(await roleOrProblem(await issueToken({ version }))).toBe("user");
  });

  test("is accepted for a short time after its expiry, because clocks differ", async () => {
    expect(await roleOrProblem(await issueToken({ version, claims: { exp: secondsAgo(30) } }))).toBe("user");
  });

  test("with changed claims is rejected", async () => {
    const [header, payload, signature] = (await issueToken({ version })).split(".");
    const claims = JSON.parse(Buffer.from(payload!, "base64url").toString("utf8"));
    const changedPayload = Buffer.from(JSON.stringify({ ...claims, roles: ["Lifecycle.Admin"] })).toString("base64url");
    expect(await roleOrProblem(`${header}.${changedPayload}.${signature}`)).toBe("unauthorized");
  });

  test.each<[string[], string]>([
    [["Lifecycle.Admin"], "admin"],
    [["Lifecycle.Auditor"], "auditor"],
    [["Lifecycle.Operator", "Lifecycle.User"], "operator"],
    [["Lifecycle.User", "Something.Else"], "user"],
    [["Lifecycle.Auditor", "Lifecycle.Operator", "Lifecycle.Admin"], "admin"],
  ])("with the app roles %j has the role %s", async (roles, role) => {
    expect(await roleOrProblem(await issueToken({ version, claims: { roles } }))).toBe(role);
  });

  test.each([[null], [[]], [["Something.Else"]], [["lifecycle.admin"]], [["constructor"]]])(
    "with the app roles %j is rejected, and the problem lists the app roles that can be assigned",
    async (roles) => {
      const { code, message } = await rejectionOf({ version, claims: { roles } });
      expect([code, message]).toEqual(["forbidden", expect.stringContaining("Lifecycle.Auditor, Lifecycle.Operator")]);
    },
  );

  test("with the app roles of an auditor and an operator is rejected, because they exclude each other", async () => {
    const { code, message } = await rejectionOf({ version, person: "berta" });
    expect([code, message]).toEqual(["forbidden", expect.stringContaining("exclude each other")]);
  });

  test.each<[string, Record<string, unknown>]>([
    ["another scope", { scp: "read write" }],
    ["part of the scope's name", { scp: "not_access_as_user" }],
    // A token for a person who signs in at the same registration.
    ["no scope, as an ID token", { scp: null }],
    [
      "no scope, but with the claim that a person is signed in",
      { scp: null, idtyp: "user", sub: OTHER_ID, oid: OTHER_ID },
    ],
  ])("of a person with %s is rejected, and the problem names the required scope", async (_description, claims) => {
    const { code, message } = await rejectionOf({ version, person: "ada", claims });
    expect([code, message]).toEqual(["forbidden", expect.stringContaining(`api://${clientId()}/access_as_user`)]);
  });

  test("of a person is accepted only with the configured scope", async () => {
    const verifierWithScope = createVerifier({ ENTRA_API_SCOPE: "call" });
    expect(
      await roleOrProblem(
        await issueToken({ version, person: "uma", claims: { scp: "other call" } }),
        verifierWithScope,
      ),
    ).toBe("user");
    expect(await roleOrProblem(await issueToken({ version, person: "uma" }), verifierWithScope)).toBe("forbidden");
  });

  test("stays valid when Entra rolls its keys over", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const olderToken = await issueToken({ version });
    expect(await roleOrProblem(olderToken)).toBe("user");
    cloud.control.rollEntraKeys();
    const newerToken = await issueToken({ version });
    // Keys are requested at most every 30 seconds, so the token with the new key is rejected until then.
    expect(await roleOrProblem(newerToken)).toBe("unauthorized");
    expect(cloud.control.counts()["entra.keys"]).toBe(1);
    vi.setSystemTime(Date.now() + 31 * SECOND_MS);
    expect([await roleOrProblem(newerToken), await roleOrProblem(olderToken)]).toEqual(["user", "user"]);
    for (let token = 0; token < 20; token++)
      await roleOrProblem(await issueToken({ version, header: { kid: `made-up-${token}` } }));
    expect(cloud.control.counts()["entra.keys"]).toBe(2);
  });

  test("is rejected an hour after Entra withdrew its key", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const olderToken = await issueToken({ version, claims: { exp: secondsAgo(-3 * 3600) } });
    expect(await roleOrProblem(olderToken)).toBe("user");
    // After the first rollover, Entra still publishes the older key.
    cloud.control.rollEntraKeys();
    cloud.control.rollEntraKeys();
    vi.setSystemTime(Date.now() + 3600 * SECOND_MS);
    expect(await roleOrProblem(olderToken)).toBe("unauthorized");
  });

  test.each(["entra.openidConfiguration", "entra.keys"])("can't be verified while %s is down", async (operation) => {
    const fault = cloud.control.addFault({ match: { operation }, action: { kind: "reset" } });
    const token = await issueToken({ version });
    const problem = await entra.authenticate(token);
    expect(problem).toMatchObject({ code: "unavailable", headers: { "Retry-After": expect.stringMatching(/^[1-9]/) } });
    expect(log.lines.join()).toContain("can't be read");
    expect(log.lines.join()).not.toContain(token.split(".")[1]);
    cloud.control.removeFault(fault);
    expect(await roleOrProblem(token)).toBe("user");
    cloud.control.addFault({ match: { operation: "entra.*" }, action: { kind: "fail", status: 503 } });
    expect(await roleOrProblem(token)).toBe("user");
  });
});

test("a key of another tenant in the same set does not verify a token of this one", async () => {
  expect(await roleOrProblem(await issueToken({ signature: "personalKey" }))).toBe("unauthorized");
});

test.each(["html", "truncated", "otherShape"] as const)(
  "a response with keys in an invalid form (%s) is not used",
  async (as) => {
    const action = { kind: "garbage", as } as const;
    for (const operation of ["entra.openidConfiguration", "entra.keys"]) {
      cloud.control.addFault({ match: { operation }, action, times: 1 });
      expect(await roleOrProblem(await issueToken({}))).toBe("unavailable");
    }
    expect(await roleOrProblem(await issueToken({}))).toBe("user");
  },
);

test("a discovery document is rejected after a redirect, with another issuer, or with a key address without TLS", async () => {
  const faultyServer = await startFakeServer();
  const authority = `https://login.localhost:${faultyServer.port}`;
  const issuer = `${authority}/${tenant()}/v2.0`;
  const token = await issueToken({ claims: { iss: issuer } });
  const verifier = createVerifier({ AZURE_AUTHORITY_HOST: authority });
  const keys = { jwks_uri: `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/discovery/keys` };
  const document =
    (members: object): RequestListener =>
    (_, response) =>
      response.end(JSON.stringify(members));
  const redirect: RequestListener = ({ url }, response) => {
    if (url?.endsWith("?again")) response.end(JSON.stringify({ issuer, ...keys }));
    else response.writeHead(302, { location: `${url}?again` }).end();
  };
  const rejectedHandlers = [
    redirect,
    document({ issuer: `${issuer}/`, ...keys }),
    document({ issuer, jwks_uri: keys.jwks_uri.replace("https:", "http:") }),
  ];
  for (const handler of rejectedHandlers) {
    faultyServer.setResponse(handler);
    expect(await roleOrProblem(token, verifier)).toBe("unavailable");
  }
  expect(cloud.control.counts()["entra.keys"]).toBeUndefined();
  faultyServer.setResponse(document({ issuer, ...keys }));
  expect(await roleOrProblem(token, verifier)).toBe("user");
  await faultyServer.stop();
});

test("many tokens at once cause one request for the keys", async () => {
  const tokens = await Promise.all(Array.from({ length: 20 }, () => issueToken({})));
  expect(new Set(await Promise.all(tokens.map((token) => roleOrProblem(token))))).toEqual(new Set(["user"]));
  expect(cloud.control.counts()).toMatchObject({ "entra.openidConfiguration": 1, "entra.keys": 1 });
});

test("tokens for Resource Manager and tokens of unknown issuers are not accepted", async () => {
  const form = {
    grant_type: "client_credentials",
    client_id: cloud.app.clientId,
    client_secret: cloud.app.clientSecret,
  };
  const managerResponse = await fetch(`${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/oauth2/v2.0/token`, {
    method: "POST",
    body: new URLSearchParams({ ...form, scope: `${cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT}/.default` }),
  });
  expect(await roleOrProblem(((await managerResponse.json()) as { access_token: string }).access_token)).toBe(
    "unauthorized",
  );
  const otherTenant = randomUUID();
  for (const iss of [
    `https://sts.windows.net/${otherTenant}/`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/${otherTenant}/v2.0`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/common/v2.0`,
    `https://sts.windows.net/${tenant()}`,
    "https://login.elsewhere.example",
  ]) {
    expect(await roleOrProblem(await issueToken({ claims: { iss, tid: otherTenant } }))).toBeUndefined();
  }
});

test("a token of one version with the issuer of the other is rejected", async () => {
  const [v1, v2] = [
    `https://sts.windows.net/${tenant()}/`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/v2.0`,
  ];
  expect(await roleOrProblem(await issueToken({ version: 2, claims: { iss: v1 } }))).toBe("unauthorized");
  expect(await roleOrProblem(await issueToken({ version: 1, claims: { iss: v2 } }))).toBe("unauthorized");
});

test("the service's keys do not verify Entra tokens, and Entra's keys do not verify the service's tokens", async () => {
  const tokens = createTokens({ config, clock: systemClock, randomness: systemRandomness() });
  const serviceToken = await tokens.issue({ username: "admin", uid: "1" }, new Date());
  expect(await entra.authenticate(serviceToken)).toBeUndefined();
  expect(await tokens.verify(serviceToken)).toBeDefined();

  const { kid, key } = config.JWT_SIGNING_KEYS[0]!;
  const claims = {
    tid: tenant(),
    oid: OTHER_ID,
    sub: OTHER_ID,
    ver: "2.0",
    roles: ["Lifecycle.Admin"],
    aud: clientId(),
  };
  const issuer = `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/v2.0`;
  const entraTokenWithServiceKey = new SignJWT(claims)
    .setProtectedHeader({ alg: "HS256", kid })
    .setIssuer(issuer)
    .setIssuedAt();
  expect(await roleOrProblem(await entraTokenWithServiceKey.setExpirationTime("1h").sign(key))).toBe("unauthorized");

  const serviceTokenWithEntraKey = await issueToken({
    claims: { iss: config.JWT_ISSUER, aud: config.JWT_AUDIENCE, sub: "admin", jti: "x" },
    header: { kid },
  });
  expect(await roleOrProblem(serviceTokenWithEntraKey)).toBeUndefined();
  expect(await tokens.verify(serviceTokenWithEntraKey)).toBeUndefined();
});

test.each(["", "x", "a.b.c", "e30.e30.", "e30.bm90IGpzb24.e30", "clm_token"])(
  "%j is not a token of Entra",
  async (text) => {
    expect(await roleOrProblem(text)).toBeUndefined();
  },
);

test("without a configured registration no Entra token is accepted", async () => {
  const { ENTRA_API_CLIENT_ID: _, ENTRA_TENANT_IDS: __, ...rest } = cloud.environment;
  const withoutRegistration = createEntraTokens({ config: testConfig(rest), clock: systemClock, log });
  expect(await roleOrProblem(await issueToken({}), withoutRegistration)).toBeUndefined();
  expect(cloud.control.counts().total).toBe(0);
});

test("the issuers of each Azure cloud are those of its Entra", async () => {
  const { ENTRA_API_CLIENT_ID, ENTRA_TENANT_IDS } = cloud.environment as Record<string, string>;
  for (const [name, v1, v2] of [
    ["AzureCloud", "https://sts.windows.net", "https://login.microsoftonline.com"],
    ["AzureUSGovernment", "https://sts.windows.net", "https://login.microsoftonline.us"],
    ["AzureChinaCloud", "https://sts.chinacloudapi.cn", "https://login.partner.microsoftonline.cn"],
  ]) {
    expect(testConfig({ AZURE_CLOUD: name, ENTRA_API_CLIENT_ID, ENTRA_TENANT_IDS }).cloud.issuers).toEqual({ v1, v2 });
  }
});
