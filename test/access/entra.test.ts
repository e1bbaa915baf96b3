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
import { startOddServer } from "../azure/odd-server.ts";
import { recordingLog, testConfig } from "../azure/services.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";

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
  entra = instance();
  cloud.control.resetCounts();
});
afterEach(() => {
  vi.useRealTimers();
  cloud.control.clearFaults();
});

/** A process that has not read any key. */
function instance(change: Record<string, string> = {}): EntraTokens {
  log = recordingLog();
  return createEntraTokens({ config: testConfig({ ...cloud.environment, ...change }), clock: systemClock, log });
}

const tenant = () => cloud.app.tenantId;
const clientId = () => config.ENTRA_API_CLIENT_ID!;

/** Result for a token: the actor's role, a problem's code, or nothing if it is not for this verifier. */
async function answer(token: string, at = entra): Promise<string | undefined> {
  const found = await at.authenticate(token);
  if (found === undefined) return undefined;
  return found instanceof Problem ? found.code : found.role;
}

const make = (request: ApiTokenRequest) => cloud.control.apiToken(request);

/** The part of a response that tells a client why it is rejected. */
async function refusal(request: ApiTokenRequest): Promise<Problem> {
  const found = await entra.authenticate(await make(request));
  if (!(found instanceof Problem)) throw new Error("It was not refused");
  return found;
}

const GUID = "11111111-1111-4111-8111-111111111111";

describe.each([1, 2] as const)("a token of version %i", (version) => {
  test("authenticates the application or person it was issued to", async () => {
    expect(await entra.authenticate(await make({ version, claims: { oid: GUID.toUpperCase(), sub: GUID } }))).toEqual({
      username: `entra:${tenant()}:${GUID}`,
      role: "user",
      credential: { kind: "entra" },
    });
    const ada = cloud.control.people().find(({ id }) => id === "ada")!;
    expect(await entra.authenticate(await make({ version, person: "ada" }))).toMatchObject({
      username: `entra:${tenant()}:${ada.objectId}`,
      role: "admin",
    });
  });

  test("is what Entra issues to an application and a managed identity", async () => {
    cloud.control.registerApi(version, ["Lifecycle.Operator"]);
    const form = {
      grant_type: "client_credentials",
      client_id: cloud.app.clientId,
      client_secret: cloud.app.clientSecret,
    };
    const asked = await fetch(`${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/oauth2/v2.0/token`, {
      method: "POST",
      body: new URLSearchParams({ ...form, scope: `api://${clientId()}/.default` }),
    });
    const byIdentity = await fetch(
      `${cloud.environment.IDENTITY_ENDPOINT}?api-version=2019-08-01&resource=api://${clientId()}`,
      { headers: { "x-identity-header": cloud.environment.IDENTITY_HEADER! } },
    );
    for (const given of [asked, byIdentity]) {
      const { access_token } = (await given.json()) as { access_token: string };
      expect(await answer(access_token)).toBe("operator");
    }
  });

  const past = (seconds: number) => Math.floor(Date.now() / 1000) - seconds;

  test.each<[string, () => ApiTokenRequest]>([
    ["for another API", () => ({ claims: { aud: GUID } })],
    ["for Graph", () => ({ claims: { aud: "https://graph.microsoft.com" } })],
    ["for nobody in particular", () => ({ claims: { aud: null } })],
    ["of another tenant than its issuer", () => ({ claims: { tid: GUID } })],
    ["of no tenant", () => ({ claims: { tid: null } })],
    ["of nobody", () => ({ claims: { oid: null } })],
    ["of somebody who is no GUID", () => ({ claims: { oid: "admin" } })],
    ["of the other version", () => ({ claims: { ver: version === 1 ? "2.0" : "1.0" } })],
    ["of no version", () => ({ claims: { ver: null } })],
    ["that has expired", () => ({ claims: { exp: past(120) } })],
    ["that never expires", () => ({ claims: { exp: null } })],
    ["that was issued at no time", () => ({ claims: { iat: null } })],
    ["that is not valid yet", () => ({ claims: { nbf: past(-120) } })],
    ["with roles that are no list", () => ({ claims: { roles: { "Lifecycle.Admin": true } } })],
    ["signed by nobody", () => ({ signature: "none" })],
    ["signed with another key of the same name", () => ({ signature: "foreignKey" })],
    ["signed with the public key as a secret", () => ({ signature: "publicKeyHmac" })],
    ["with a key nobody knows", () => ({ header: { kid: "unknown" } })],
    ["with no key named", () => ({ header: { kid: undefined } })],
    ["with an extension nobody knows", () => ({ header: { crit: ["x"], x: 1 } })],
  ])("%s is rejected", async (_what, request) => {
    expect(await answer(await make({ version, ...request() }))).toBe("unauthorized");
    // Control: the same request without the mistake is accepted.
    expect(await answer(await make({ version }))).toBe("user");
  });

  test("just after its expiry is still accepted, because clocks differ", async () => {
    expect(await answer(await make({ version, claims: { exp: past(30) } }))).toBe("user");
  });

  test("with changed text is rejected", async () => {
    const [header, payload, signature] = (await make({ version })).split(".");
    const claims = JSON.parse(Buffer.from(payload!, "base64url").toString("utf8"));
    const raised = Buffer.from(JSON.stringify({ ...claims, roles: ["Lifecycle.Admin"] })).toString("base64url");
    expect(await answer(`${header}.${raised}.${signature}`)).toBe("unauthorized");
  });

  test.each<[string[], string]>([
    [["Lifecycle.Admin"], "admin"],
    [["Lifecycle.Auditor"], "auditor"],
    [["Lifecycle.Operator", "Lifecycle.User"], "operator"],
    [["Lifecycle.User", "Something.Else"], "user"],
    [["Lifecycle.Auditor", "Lifecycle.Operator", "Lifecycle.Admin"], "admin"],
  ])("with the app roles %j may do what %s may", async (roles, role) => {
    expect(await answer(await make({ version, claims: { roles } }))).toBe(role);
  });

  test.each([[null], [[]], [["Something.Else"]], [["lifecycle.admin"]], [["constructor"]]])(
    "with the app roles %j is rejected with the list of roles to request",
    async (roles) => {
      const { code, message } = await refusal({ version, claims: { roles } });
      expect([code, message]).toEqual(["forbidden", expect.stringContaining("Lifecycle.Auditor, Lifecycle.Operator")]);
    },
  );

  test("of an auditor who is also an operator is rejected with that reason", async () => {
    const { code, message } = await refusal({ version, person: "berta" });
    expect([code, message]).toEqual(["forbidden", expect.stringContaining("exclude each other")]);
  });

  test.each<[string, Record<string, unknown>]>([
    ["another scope", { scp: "read write" }],
    ["part of the scope's name", { scp: "not_access_as_user" }],
    // A token for a person who signs in at the same registration.
    ["no scope, as an ID token", { scp: null }],
    ["no scope, and said to be a person's", { scp: null, idtyp: "user", sub: GUID, oid: GUID }],
  ])("of a person with %s is rejected with the scope to request", async (_what, claims) => {
    const { code, message } = await refusal({ version, person: "ada", claims });
    expect([code, message]).toEqual(["forbidden", expect.stringContaining(`api://${clientId()}/access_as_user`)]);
  });

  test("of a person needs the configured scope", async () => {
    const scoped = instance({ ENTRA_API_SCOPE: "call" });
    expect(await answer(await make({ version, person: "uma", claims: { scp: "other call" } }), scoped)).toBe("user");
    expect(await answer(await make({ version, person: "uma" }), scoped)).toBe("forbidden");
  });

  test("stays valid over a key rollover, at the cost of one request", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const before = await make({ version });
    expect(await answer(before)).toBe("user");
    cloud.control.rollEntraKeys();
    const after = await make({ version });
    // Keys are requested at most every 30 seconds, whatever tokens arrive.
    expect(await answer(after)).toBe("unauthorized");
    expect(cloud.control.counts()["entra.keys"]).toBe(1);
    vi.setSystemTime(Date.now() + 31 * SECOND_MS);
    expect([await answer(after), await answer(before)]).toEqual(["user", "user"]);
    for (let token = 0; token < 20; token++) await answer(await make({ version, header: { kid: `made-up-${token}` } }));
    expect(cloud.control.counts()["entra.keys"]).toBe(2);
  });

  test("signed with a withdrawn key is rejected within the hour", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const before = await make({ version, claims: { exp: past(-3 * 3600) } });
    expect(await answer(before)).toBe("user");
    cloud.control.rollEntraKeys();
    cloud.control.rollEntraKeys();
    vi.setSystemTime(Date.now() + 3600 * SECOND_MS);
    expect(await answer(before)).toBe("unauthorized");
  });

  test.each(["entra.openidConfiguration", "entra.keys"])("can't be verified while %s is down", async (operation) => {
    const fault = cloud.control.addFault({ match: { operation }, action: { kind: "reset" } });
    const token = await make({ version });
    const found = await entra.authenticate(token);
    expect(found).toMatchObject({ code: "unavailable", headers: { "Retry-After": expect.stringMatching(/^[1-9]/) } });
    expect(log.lines.join()).toContain("can't be read");
    expect(log.lines.join()).not.toContain(token.split(".")[1]);
    cloud.control.removeFault(fault);
    expect(await answer(token)).toBe("user");
    cloud.control.addFault({ match: { operation: "entra.*" }, action: { kind: "fail", status: 503 } });
    expect(await answer(token)).toBe("user");
  });
});

test("a key of another tenant in the same set does not verify a token of this one", async () => {
  expect(await answer(await make({ signature: "personalKey" }))).toBe("unauthorized");
});

test.each(["html", "truncated", "otherShape"] as const)("keys in the form %s are ignored", async (as) => {
  const action = { kind: "garbage", as } as const;
  for (const operation of ["entra.openidConfiguration", "entra.keys"]) {
    cloud.control.addFault({ match: { operation }, action, times: 1 });
    expect(await answer(await make({}))).toBe("unavailable");
  }
  expect(await answer(await make({}))).toBe("user");
});

test("a discovery document is valid only at its proper address, for its issuer, with keys over TLS", async () => {
  const faultyServer = await startOddServer();
  const authority = `https://login.localhost:${faultyServer.port}`;
  const issuer = `${authority}/${tenant()}/v2.0`;
  const token = await make({ claims: { iss: issuer } });
  const elsewhere = instance({ AZURE_AUTHORITY_HOST: authority });
  const keys = { jwks_uri: `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/discovery/keys` };
  const document =
    (members: object): RequestListener =>
    (_, response) =>
      response.end(JSON.stringify(members));
  const redirect: RequestListener = ({ url }, response) => {
    if (url?.endsWith("?again")) response.end(JSON.stringify({ issuer, ...keys }));
    else response.writeHead(302, { location: `${url}?again` }).end();
  };
  const refused = [
    redirect,
    document({ issuer: `${issuer}/`, ...keys }),
    document({ issuer, jwks_uri: keys.jwks_uri.replace("https:", "http:") }),
  ];
  for (const handler of refused) {
    faultyServer.answer(handler);
    expect(await answer(token, elsewhere)).toBe("unavailable");
  }
  expect(cloud.control.counts()["entra.keys"]).toBeUndefined();
  faultyServer.answer(document({ issuer, ...keys }));
  expect(await answer(token, elsewhere)).toBe("user");
  await faultyServer.stop();
});

test("many tokens at once ask for the keys once", async () => {
  const tokens = await Promise.all(Array.from({ length: 20 }, () => make({})));
  expect(new Set(await Promise.all(tokens.map((token) => answer(token))))).toEqual(new Set(["user"]));
  expect(cloud.control.counts()).toMatchObject({ "entra.openidConfiguration": 1, "entra.keys": 1 });
});

test("tokens of Graph, of Resource Manager and of unknown issuers are rejected", async () => {
  const form = {
    grant_type: "client_credentials",
    client_id: cloud.app.clientId,
    client_secret: cloud.app.clientSecret,
  };
  const given = await fetch(`${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/oauth2/v2.0/token`, {
    method: "POST",
    body: new URLSearchParams({ ...form, scope: `${cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT}/.default` }),
  });
  expect(await answer(((await given.json()) as { access_token: string }).access_token)).toBe("unauthorized");
  const elsewhere = randomUUID();
  for (const iss of [
    `https://sts.windows.net/${elsewhere}/`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/${elsewhere}/v2.0`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/common/v2.0`,
    `https://sts.windows.net/${tenant()}`,
    "https://login.elsewhere.example",
  ]) {
    expect(await answer(await make({ claims: { iss, tid: elsewhere } }))).toBeUndefined();
  }
});

test("a token of one version with the issuer of the other is rejected", async () => {
  const [v1, v2] = [
    `https://sts.windows.net/${tenant()}/`,
    `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/v2.0`,
  ];
  expect(await answer(await make({ version: 2, claims: { iss: v1 } }))).toBe("unauthorized");
  expect(await answer(await make({ version: 1, claims: { iss: v2 } }))).toBe("unauthorized");
});

test("no key of one kind of token verifies the other", async () => {
  const tokens = createTokens({ config, clock: systemClock, randomness: systemRandomness() });
  const own = await tokens.issue({ username: "admin", uid: "1" }, new Date());
  expect(await entra.authenticate(own)).toBeUndefined();
  expect(await tokens.verify(own)).toBeDefined();

  const { kid, key } = config.JWT_SIGNING_KEYS[0]!;
  const claims = { tid: tenant(), oid: GUID, sub: GUID, ver: "2.0", roles: ["Lifecycle.Admin"], aud: clientId() };
  const issuer = `${cloud.environment.AZURE_AUTHORITY_HOST}/${tenant()}/v2.0`;
  const ownKey = new SignJWT(claims).setProtectedHeader({ alg: "HS256", kid }).setIssuer(issuer).setIssuedAt();
  expect(await answer(await ownKey.setExpirationTime("1h").sign(key))).toBe("unauthorized");

  const foreign = await make({
    claims: { iss: config.JWT_ISSUER, aud: config.JWT_AUDIENCE, sub: "admin", jti: "x" },
    header: { kid },
  });
  expect(await answer(foreign)).toBeUndefined();
  expect(await tokens.verify(foreign)).toBeUndefined();
});

test.each(["", "x", "a.b.c", "e30.e30.", "e30.bm90IGpzb24.e30", "clm_token"])(
  "%j is not a token of Entra",
  async (text) => {
    expect(await answer(text)).toBeUndefined();
  },
);

test("without a registration no token is accepted, and no request is sent", async () => {
  const { ENTRA_API_CLIENT_ID: _, ENTRA_TENANT_IDS: __, ...rest } = cloud.environment;
  const off = createEntraTokens({ config: testConfig(rest), clock: systemClock, log });
  expect(await answer(await make({}), off)).toBeUndefined();
  expect(cloud.control.counts().total).toBe(0);
});

test("in every cloud the issuers are those of its Entra", async () => {
  const { ENTRA_API_CLIENT_ID, ENTRA_TENANT_IDS } = cloud.environment as Record<string, string>;
  for (const [name, v1, v2] of [
    ["AzureCloud", "https://sts.windows.net", "https://login.microsoftonline.com"],
    ["AzureUSGovernment", "https://sts.windows.net", "https://login.microsoftonline.us"],
    ["AzureChinaCloud", "https://sts.chinacloudapi.cn", "https://login.partner.microsoftonline.cn"],
  ]) {
    expect(testConfig({ AZURE_CLOUD: name, ENTRA_API_CLIENT_ID, ENTRA_TENANT_IDS }).cloud.issuers).toEqual({ v1, v2 });
  }
});
