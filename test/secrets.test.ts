import { setTimeout as delay } from "node:timers/promises";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import type { RunningHost } from "functions-host/test/run-host.ts";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { TOKEN_MODES } from "simulated-cloud/devops/errors.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { licence } from "./support/licence.ts";
import { ProviderVisitor } from "./support/provider-visitor.ts";
import { type QueueRecorder, startQueueRecorder } from "./support/queue-recorder.ts";
import { ADMIN, type Answer, type CallOptions, Service } from "./support/service.ts";
import { createUsers, makeToken } from "./support/users.ts";

/** The planted secrets by kind. Each is somewhere in the data that the service gets. */
const planted: Record<string, string> = {
  "the administrator's password": "planted-administrator-Zq1",
  "a user's password": "planted-password-Zq2",
  "a new password": "planted-new-password-Zq3",
  "a wrong password": "planted-wrong-password-Zq4",
  "a password typed into the field for the name": "planted-typed-as-name-Zq5",
  "a password in broken JSON": "planted-broken-json-Zq6",
  "a password beside a member that is none": "planted-unknown-member-Zq7",
  "a password that is a member's name": "planted-member-name-Zq8",
  "a password in the query": "planted-in-the-query-Zq9",
  "a token that does not hold": "planted-made-up-token-ZqA",
  "a value in a vault": "planted-vault-value-ZqB",
  "another value in a vault": "planted-vault-value-ZqC",
  "a wrong client secret": "planted-wrong-client-secret-ZqD",
  "a wrong key of a provider": "planted-wrong-provider-key-ZqJ",
  "a provider's token that is not asked for": "planted-stray-provider-token-ZqK",
  "a wrong client secret of single sign-on": "planted-wrong-sso-secret-ZqZ",
  "a licence that is none": "planted-licence-ZqE",
  "the password of a user who is made": "planted-made-user-ZqF",
  "a password that an administrator sets": "planted-reset-ZqG",
  "a password chosen after that": "planted-after-reset-ZqH",
  "a password beside a wrong role": "planted-wrong-role-ZqI",
  "a secret variable of Azure DevOps": "planted-secret-variable-ZqL",
  "a plain variable of Azure DevOps": "planted-plain-variable-ZqM",
  "a token in the address of an organization": "planted-token-in-address-ZqN",
  "a wrong client secret of a B2C tenant": "planted-wrong-b2c-secret-ZqO",
  "a setting of a web app": "planted-app-setting-ZqP",
  "a connection string of a web app": "planted-connection-string-ZqQ",
};

const SERVICE_VAULT = "kv-lifecycle-service";
const APP = "Seen API";
const [appId, keyId] = [appIdOf(APP), keyIdOf(APP, "primary")];
planted["an application's client secret"] = secretValueOf(APP, "primary");
const REGISTRATION = "Seen Registration";
planted["the client secret of a B2C tenant"] = secretValueOf(REGISTRATION, "lifecycle");
planted["a client secret in a B2C tenant"] = secretValueOf("Seen Customers", "web");

const company: Company = {
  applications: [{ name: APP, secrets: [{ name: "primary", expiresInDays: 20 }] }],
  tenants: [
    {
      name: "Seen Customers",
      domain: "seen.onmicrosoft.com",
      type: "AAD B2C",
      registration: REGISTRATION,
      applications: [
        { name: REGISTRATION, secrets: [{ name: "lifecycle", expiresInDays: 60 }] },
        { name: "Seen Customers", secrets: [{ name: "web", expiresInDays: 5 }] },
      ],
      keySets: [{ id: "B2C_1A_Seen", keys: [{ name: "first", what: "secret", expiresInDays: 20 }] }],
    },
  ],
  devops: {
    organization: "seen",
    projects: [
      {
        name: "Seen",
        groups: [
          { name: "seen-linked", vault: "kv-seen", variables: { "seen-secret": { enabled: true } } },
          {
            name: "seen-own",
            variables: {
              HIDDEN: { secret: planted["a secret variable of Azure DevOps"]! },
              PLAIN: planted["a plain variable of Azure DevOps"]!,
            },
          },
        ],
        connections: [{ name: "seen-deploy", application: APP, secret: "primary" }],
      },
    ],
  },
  subscriptions: [
    {
      name: "Acme",
      resources: [
        {
          type: "Microsoft.Web/sites",
          name: "app-seen",
          kind: "app",
          identity: { system: true },
          settings: {
            USED: "@Microsoft.KeyVault(VaultName=kv-seen;SecretName=seen-secret)",
            OWN: planted["a setting of a web app"]!,
          },
          connectionStrings: { Main: { value: planted["a connection string of a web app"]!, type: "Custom" } },
        },
      ],
      vaults: [
        {
          name: "kv-seen",
          secrets: [
            { name: "seen-secret", value: planted["a value in a vault"]!, expiresInDays: 5 },
            {
              name: "app-secret",
              value: planted["an application's client secret"]!,
              contentType: `${APP}:${appId}:${keyId}`,
            },
            { name: "off-secret", value: planted["another value in a vault"]!, enabled: false },
          ],
          keys: [{ name: "seen-key" }],
          certificates: [{ name: "seen-certificate" }],
        },
        { name: "kv-denied", reach: "denied", secrets: [{ name: "hidden", value: planted["a value in a vault"]! }] },
        { name: "kv-walled", reach: "firewalled" },
        { name: "kv-garbage", secrets: [{ name: "hidden", value: planted["another value in a vault"]! }] },
      ],
    },
  ],
};

let service: Service;
let queues: QueueRecorder;
const hosts: RunningHost[] = [];
const responses: string[] = [];

beforeAll(async () => {
  service = await Service.start({
    company,
    hosts: 0,
    env: {
      BOOTSTRAP_ADMIN_PASSWORD: planted["the administrator's password"]!,
      LICENSE_KEY: planted["a licence that is none"]!,
      LOG_LEVEL: "DEBUG",
      PUBLIC_BASE_URL: "http://localhost:7071",
      TRUSTED_PROXY_HOPS: "2",
    },
  });
  const { clientId, clientSecret, tenantId } = service.cloud.app;
  const asApplication = { AZURE_CLIENT_ID: clientId, AZURE_CLIENT_SECRET: clientSecret, AZURE_TENANT_ID: tenantId };
  queues = await startQueueRecorder(service.azurite.connectionString());
  Object.assign(service.environment, asApplication, { AzureWebJobsStorage: queues.connectionString });
  for (const [what, value] of Object.entries({
    "the client secret": clientSecret,
    "the storage account's key": /AccountKey=([^;]+)/.exec(queues.connectionString)![1]!,
    "the key of tokens": service.environment.JWT_SIGNING_KEYS!.slice("test:".length),
    "the key of audit digests": service.environment.AUDIT_SIGNING_KEYS!.slice("test:".length),
    "the mail service's key": /accesskey=(.+)$/.exec(service.environment.COMMUNICATION_CONNECTION_STRING!)![1]!,
    "the configuration's key": /Secret=(.+)$/.exec(service.environment.APP_CONFIGURATION_CONNECTION_STRING!)![1]!,
  })) {
    planted[what] = value;
  }
  const wrong = await service.addHost({ AZURE_CLIENT_SECRET: planted["a wrong client secret"]! });
  await withoutCloud();
  await wrong.stop();
  service.hosts.length = 0;
  planted["the licence"] = await licence();
  hosts.push(wrong, await service.addHost({ LICENSE_KEY: planted["the licence"] }));
  await live();
});
afterAll(async () => {
  await service.stop();
  await queues.stop();
});

let clients = 0;
/** A call whose response is recorded, except responses that return a token or a session. */
async function call(method: string, path: string, options: CallOptions = {}) {
  const headers = { "X-Forwarded-For": `198.51.100.${++clients}`, ...options.headers };
  const answer = await service.call(method, path, { ...options, headers });
  const issued = answer.body?.access_token ?? answer.body?.token;
  const setsCookies = /^\/auth\/(login|sso\/login|sso\/callback)\b/.test(path);
  const shown = [...answer.headers].filter(([name]) => !setsCookies || name !== "set-cookie");
  responses.push(`${method} ${path.split("?")[0]} ${JSON.stringify(shown)} ${issued ? "" : answer.text}`);
  return answer;
}

async function signIn(username: string, password: string): Promise<string> {
  const { body } = await call("POST", "/auth/login", { body: { username, password } });
  planted[`token ${Object.keys(planted).length}`] = body.access_token;
  planted[`the signature of token ${Object.keys(planted).length}`] = body.access_token.split(".")[2];
  return body.access_token;
}
/** The header of a signed-in browser. */
async function beginSession(username: string, password: string): Promise<{ Cookie: string; "Sec-Fetch-Site": string }> {
  const site = { "Sec-Fetch-Site": "same-origin" };
  const body = { username, password, session: true };
  const { headers } = await call("POST", "/auth/login", { body, headers: site });
  const [, value] = /^__Host-session=([^;]+)/.exec(headers.getSetCookie()[0]!)!;
  planted[`session ${Object.keys(planted).length}`] = value!;
  planted[`the secret of session ${Object.keys(planted).length}`] = value!.split(".")[1]!;
  return { ...site, Cookie: `__Host-session=${value}` };
}

/** Users, API tokens and sessions: correct use of each, and typical mistakes. */
async function liveWithSessions(token: string): Promise<void> {
  const made = { username: "zoe", password: planted["the password of a user who is made"]!, role: "user" };
  await call("POST", "/auth/users", { token, body: { ...made, role: planted["a password beside a wrong role"] } });
  await call("POST", "/auth/users", {
    token,
    body: { ...made, pin: planted["a password beside a member that is none"] },
  });
  expect((await call("POST", "/auth/users", { token, body: made })).status).toBe(201);
  const session = await beginSession("zoe", made.password);
  expect((await call("GET", "/auth/sessions", { headers: session })).body.total).toBe(1);
  await call("POST", "/auth/tokens", { headers: { ...session, "Sec-Fetch-Site": "cross-site" }, body: { name: "x" } });
  await call("GET", "/auth/me", { headers: { Cookie: `${session.Cookie}x` } });
  await call("GET", "/auth/me", { token: session.Cookie.split("=")[1]! });

  const created = await call("POST", "/auth/tokens", { headers: session, body: { name: "nightly" } });
  const apiToken: string = created.body.token;
  planted["an API token"] = apiToken;
  planted["the digits of an API token"] = apiToken.slice("clm_".length, -6);
  expect((await call("GET", "/auth/me", { token: apiToken })).body.id).toBe("zoe");
  await call("GET", "/auth/me", { token: `${apiToken}x` });
  await call("GET", `/auth/tokens?user=${apiToken}`, { token });
  await call("GET", `/auth/me?token=${apiToken}`);
  await call("POST", "/auth/tokens", { token: apiToken, body: { name: apiToken } });
  await call("POST", "/auth/login", { body: { username: apiToken, password: apiToken } });
  await call("PUT", "/auth/users/zoe", { token: apiToken, body: { role: "admin" } });

  const set = planted["a password that an administrator sets"]!;
  expect((await call("PUT", "/auth/users/zoe", { token, body: { password: set } })).status).toBe(200);
  const reset = await beginSession("zoe", set);
  expect((await call("GET", "/subscriptions", { headers: reset })).body.code).toBe("passwordChangeRequired");
  const next = { currentPassword: set, newPassword: planted["a password chosen after that"]! };
  expect((await call("POST", "/auth/password", { headers: reset, body: next })).status).toBe(200);
  const last = await beginSession("zoe", next.newPassword);
  await call("POST", "/auth/logout", { headers: last, body: { everywhere: true, apiTokens: true } });
  await call("DELETE", "/auth/users/zoe", { token });
}

/** Single sign-on: a successful sign-in, a rejected one, and an administrator's mistakes with its secret. */
async function liveWithSingleSignOn(token: string): Promise<void> {
  const { issuer, clientId, clientSecret } = service.cloud.oidc;
  planted["the client secret of single sign-on"] = clientSecret;
  const wrong = planted["a wrong client secret of single sign-on"]!;
  const settings = { isEnabled: true, oidcIssuer: issuer, oidcClientId: clientId, oidcClientSecret: clientSecret };
  const put = (change: object) => call("PUT", "/auth/sso/config", { token, body: { ...settings, ...change } });
  await put({ oidcClientSecret: wrong });
  await put({ oidcClientSecret: wrong, oidcIssuer: "https://127.0.0.1" });
  await put({ oidcClientSecret: wrong, defaultRole: wrong });
  await call("POST", "/auth/sso/config/test", { token, body: { oidcClientSecret: wrong } });
  expect((await put({ autoCreateUsers: true })).status).toBe(200);
  await call("POST", "/auth/sso/config/test", { token, body: {} });

  for (const mode of ["correct", "foreignKey", "wrongState", "wrongNonce"] as const) {
    service.cloud.control.setOidcMode(mode);
    const started = await call("GET", "/auth/sso/login?returnUrl=/docs", { headers: { Accept: "text/html" } });
    const [Cookie, binding] = /^__Host-sso=([^;]+)/.exec(started.headers.getSetCookie()[0]!)!;
    const back = new URL(await new ProviderVisitor().choose(started.headers.get("location")!, "uma"));
    planted[`the code of ${mode}`] = back.searchParams.get("code")!;
    planted[`the cookie of ${mode}`] = binding!;
    const done = await call("GET", back.pathname + back.search, { headers: { Cookie, Accept: "text/html" } });
    expect(done.status).toBe(mode === "correct" ? 302 : 400);
    const session = /^__Host-session=([^;]+)/.exec(done.headers.getSetCookie()[0] ?? "");
    if (session) planted["the session of single sign-on"] = session[1]!;
  }
  service.cloud.control.setOidcMode("correct");
  expect(planted["the session of single sign-on"]).toBeDefined();
}

const until = (holds: () => Promise<void>) => vi.waitFor(holds, { timeout: 150_000, interval: 200 });

/** A copy in another cloud, first with wrong credentials; and a copy that can't be created. */
async function liveWithSync(token: string): Promise<void> {
  const { key } = service.cloud.control.providers.aws;
  planted["the provider's key"] = key.secretAccessKey;
  const [providers, records] = ["/api/automation/sync/providers", "/api/automation/sync/records"];
  const aws = (body: object) => call("POST", `${providers}/aws`, { token, body: { region: "eu-west-1", ...body } });
  const wrong = planted["a wrong key of a provider"]!;
  expect((await aws({ ...key, secretAccessKey: wrong })).status).toBe(400);
  await aws({ ...key, token: planted["a provider's token that is not asked for"] });
  expect((await aws(key)).status).toBe(200);
  const ends = { sourceVault: "kv-seen", targetProvider: "aws", targetService: "secretsmanager" };
  const schedule = { scheduleHours: 24, enabled: true };
  const made = async (sourceSecret: string, targetName: string) =>
    (await call("POST", records, { token, body: { ...ends, ...schedule, sourceSecret, targetName } })).body.recordId;
  const [good, bad] = [await made("seen-secret", "seen/copy"), await made("off-secret", "seen/off")];
  const state = async (id: string) => (await call("GET", `${records}/${id}/status`, { token })).body.state;
  await until(async () => expect([await state(good), await state(bad)]).toEqual(["inSync", "failing"]));
  for (const id of [good, bad]) {
    await call("POST", `${records}/${id}/plan`, { token });
    await call("GET", `${records}/${id}`, { token });
    await call("GET", `${records}/${id}/history`, { token });
  }
  await call("GET", `${providers}/aws`, { token });
}

/** An application's secret that is found, proved, rotated up to its new secret, and rolled back. */
async function liveWithRotation(token: string): Promise<void> {
  const base = "/api/automation/rotation";
  await call("POST", `${base}/discover`, { token, body: {} });
  await until(async () => expect((await call("GET", `${base}/apps`, { token })).body.total).toBe(1));
  const asset = { assetId: "kv-seen.secret.app-secret" };
  expect((await call("POST", `${base}/apps/${appId}/matches/verify`, { token, body: asset })).body.result).toBe(
    "accepted",
  );
  const rotate = (body: object) => call("POST", `${base}/rotate`, { token, body: { appId, secretId: keyId, ...body } });
  expect((await rotate({ dryRun: true })).status).toBe(200);
  await rotate({ newValue: planted["an application's client secret"] });
  const { body: started } = await rotate({});
  const look = async () => (await call("GET", `${base}/rotations/${started.rotationId}`, { token })).body;
  /** The new secret in the handover vault, until every place has it. */
  const held = () => {
    const kept = service.cloud.control.items(SERVICE_VAULT, "secrets");
    const name = kept.find((one) => one.name.startsWith(`rotation-${started.rotationId}`))?.name;
    return name === undefined ? undefined : service.cloud.control.secretValue(SERVICE_VAULT, name);
  };
  await until(async () => expect(held()).toBeDefined());
  planted["an application's new client secret"] = held()!;
  await call("POST", `${base}/rotations/${started.rotationId}/cancel`, { token });
  await until(async () => expect((await look()).endedAt).not.toBeNull());
  await call("GET", `${base}/history`, { token });
}

/** An organization of Azure DevOps, by its URL and by one that contains a token, with every rejecting response. */
async function liveWithDevops(token: string): Promise<void> {
  const settings = "/api/settings/integrations/devops";
  const put = (orgUrl: string) => call("PUT", settings, { token, body: { orgUrl } });
  const stray = planted["a token in the address of an organization"]!;
  expect((await put(`https://x:${stray}@dev.azure.com/seen`)).status).toBe(400);
  expect((await put("https://dev.azure.com/seen")).status).toBe(200);
  for (const tokenMode of [...TOKEN_MODES, null]) {
    service.cloud.control.devops.set({ tokenMode });
    await call("POST", `${settings}/test`, { token });
  }
  expect((await call("GET", `${settings}/projects`, { token })).body.total).toBe(1);
}

/** A tenant of Azure AD B2C, first with a wrong secret. */
async function liveWithTenant(token: string): Promise<void> {
  const [tenant] = service.cloud.control.tenants.list();
  const { id: tenantId, name: displayName, domain: tenantDomain, clientId, clientSecret } = tenant!;
  const wrong = planted["a wrong client secret of a B2C tenant"]!;
  const body = { tenantId, displayName, tenantDomain, clientId, clientSecret: wrong };
  await call("POST", "/b2c/tenants", { token, body: { ...body, displayName: { wrong } } });
  expect((await call("POST", "/b2c/tenants", { token, body })).status).toBe(201);
  const one = `/b2c/tenants/${tenantId}`;
  const discover = async () => {
    const { body: started } = await call("POST", `${one}/discover`, { token });
    const run = `${one}/runs/${started.runId}`;
    await until(async () => expect((await call("GET", run, { token })).body.status).not.toBe("running"));
    return (await call("GET", one, { token })).body.state;
  };
  expect((await call("POST", `${one}/test`, { token })).body.ok).toBe(false);
  expect(await discover()).toBe("failing");
  expect((await call("PUT", one, { token, body: { clientSecret } })).status).toBe(200);
  expect((await call("POST", `${one}/test`, { token })).body.ok).toBe(true);
  expect(await discover()).toBe("discovered");
}

/** Consumers, and the blast radius of a rotation. */
async function liveWithDependencies(token: string): Promise<void> {
  const base = "/api/assets/dependencies";
  const { body: run } = await call("POST", `${base}/discover`, { token });
  await until(async () =>
    expect((await call("GET", `${base}/runs/${run.runId}`, { token })).body.finishedAt).not.toBeNull(),
  );
  const { body: found } = await call("GET", `${base}?secret=seen-secret&strength=references`, { token });
  const kinds = found.items.map(({ resource }: { resource: { kind: string } }) => resource.kind);
  expect([...new Set(kinds)].sort()).toEqual(["devopsVariableGroup", "syncRecord", "webApp"]);
  await call("GET", `${base}/blast-radius/kv-seen.secret.seen-secret`, { token });
}

const signInAdministrator = () => signIn(ADMIN.username, planted["the administrator's password"]!);

async function scanEnds(token: string): Promise<Answer["body"]> {
  const { body } = await call("POST", "/api/assets/discovery/scan", { token, body: { mode: "full" } });
  for (;;) {
    const { body: scan } = await call("GET", `/api/assets/discovery/scan/${body.scanId}/status`, { token });
    if (scan.status !== "queued" && scan.status !== "running") return scan;
    await delay(200);
  }
}

/** Responses and logs of the service when the cloud rejects its identity. */
async function withoutCloud(): Promise<void> {
  const token = await signInAdministrator();
  expect((await call("GET", "/identity", { token })).status).toBe(503);
  expect((await call("GET", "/health?deep=true", { token })).body.status).toBe("degraded");
  expect(await scanEnds(token)).toMatchObject({ status: "failed" });
}

/** A day of the service: successful and failed sign-ins, a scan that fails in part, and every page that can be read. */
async function live(): Promise<void> {
  const user = { username: "maria", password: planted["a user's password"]!, role: "user" as const };
  await createUsers(service, [user]);
  const token = await signInAdministrator();
  const maria = await signIn(user.username, user.password);

  const wrong = planted["a wrong password"]!;
  await call("POST", "/auth/login", { body: { username: "maria", password: wrong } });
  await call("POST", "/auth/login", {
    body: { username: planted["a password typed into the field for the name"], password: wrong },
  });
  await call("POST", "/auth/login", {
    body: `{"username":"maria","password":"${planted["a password in broken JSON"]}"`,
  });
  await call("POST", "/auth/login", {
    body: { username: "maria", password: [planted["a password beside a member that is none"]], x: 1 },
  });
  await call("POST", "/auth/login", {
    body: { username: "maria", password: wrong, pin: planted["a password beside a member that is none"] },
  });
  await call("GET", `/api/assets/discovery/assets?limit=${planted["a password in the query"]}`, { token });
  await call("GET", `/auth/me?access_token=${maria}`);
  await call("GET", "/auth/me", { token: planted["a token that does not hold"]! });
  await call("GET", "/auth/me", { token: `${maria}x` });
  await call("POST", "/api/assets/discovery/scan", { token: maria, body: { mode: "full" } });
  const passwords = { currentPassword: user.password, newPassword: planted["a new password"]! };
  await call("POST", "/auth/password", { token: maria, body: { ...passwords, currentPassword: wrong } });
  await call("POST", "/auth/password", { token: maria, body: { ...passwords, newPassword: user.password } });
  await call("POST", "/auth/password", { token: maria, body: passwords });
  await call("POST", "/auth/logout", { token: await signIn("maria", passwords.newPassword) });
  await call("GET", "/identity", { token });
  await call("GET", "/health?deep=true", { token });
  await call("GET", "/system/license/status");
  await liveWithSessions(token);
  await liveWithSingleSignOn(token);

  service.cloud.control.addFault({ match: { vault: "kv-garbage" }, action: { kind: "garbage", as: "otherShape" } });
  const scan = await scanEnds(token);
  expect(scan.status).toBe("partial");

  await liveWithSync(token);
  await liveWithRotation(token);
  await liveWithDevops(token);
  await liveWithTenant(token);
  await liveWithDependencies(token);
  planted["the key of signed rows"] = service.cloud.control.secretValue(SERVICE_VAULT, "row-signing")!;

  const document = (await call("GET", "/openapi.json")).body as { paths: Record<string, Record<string, unknown>> };
  for (const path of Object.keys(document.paths).filter((each) => "get" in document.paths[each]!)) {
    await call("GET", path.replace("{scan_id}", scan.scanId).replace("{asset_id}", "kv-seen.secret.seen-secret"), {
      token,
    });
  }
  await call("GET", "/api/assets/discovery/assets?format=csv", { token });
}

/** Every row of every table, including binary columns as text. */
async function rows(): Promise<string[]> {
  const options = { allowInsecureConnection: true };
  const connection = service.azurite.connectionString();
  const all = [];
  for await (const { name } of TableServiceClient.fromConnectionString(connection, options).listTables()) {
    for await (const row of TableClient.fromConnectionString(connection, name!, options).listEntities()) {
      const columns = Object.entries(row).map(([column, value]) =>
        value instanceof Uint8Array
          ? `${column}=${Buffer.from(value).toString("latin1")}`
          : `${column}=${JSON.stringify(value)}`,
      );
      all.push(`${name}: ${columns.join(" ")}`);
    }
  }
  return all;
}

const forms = (value: string): string[] => {
  const bytes = Buffer.from(value);
  return [
    value,
    encodeURIComponent(value),
    bytes.toString("base64").replace(/=+$/, ""),
    bytes.toString("base64url"),
    bytes.toString("hex"),
  ];
};
/** Returns the planted secrets in these texts, with the text. */
const found = (texts: readonly string[]): string[] =>
  Object.entries(planted).flatMap(([what, value]) =>
    texts
      .filter((text) => forms(value).some((form) => text.includes(form)))
      .map((text) => `${what}: ${text.slice(0, 400)}`),
  );

/** Signed tokens with a subject or expiry. A signed statement of an audit export is not one. */
const tokensIn = (text: string): string[] =>
  (text.match(/eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}/g) ?? []).filter((token) =>
    /"(aud|exp)":/.test(Buffer.from(token.split(".")[1]!, "base64url").toString()),
  );

/** Checks that the right texts were searched. */
const mentioned = (texts: readonly string[], known: readonly string[]): boolean =>
  known.every((word) => texts.some((text) => text.includes(word)));

describe("no secret is exposed", () => {
  const logLines = () => hosts.flatMap(({ lines }) => lines);

  test("in a log line", () => {
    expect(found(logLines())).toEqual([]);
    expect(mentioned(logLines(), ["Created the bootstrap administrator", "A scan is over"])).toBe(true);
  });

  test("in a table row", async () => {
    const all = await rows();
    expect(found(all)).toEqual([]);
    expect(
      mentioned(all, ["seen-secret", "maria", "kv-garbage", "access.refused", "apiToken.created", "sso.configured"]) &&
        mentioned(all, ["syncTarget.written", "sourceDisabled", "rotation.", keyId]) &&
        mentioned(all, ["devops.configured", "seen-linked", "b2cTenant.registered", "B2C_1A_Seen", "app-seen"]),
    ).toBe(true);
  });

  test("in a queue message", () => {
    expect(found(queues.messages)).toEqual([]);
    expect(mentioned(queues.messages, ["kv-seen"])).toBe(true);
  });

  test("in a response or its headers", () => {
    expect(found(responses)).toEqual([]);
    expect(mentioned(responses, ["seen-secret", "invalidCredentials", "unavailable"])).toBe(true);
  });

  test("no token of the cloud is exposed, and no value was read that is not copied or rotated", async () => {
    const everything = [...logLines(), ...(await rows()), ...queues.messages, ...responses];
    expect(everything.flatMap(tokensIn)).toEqual([]);
    expect(tokensIn(`x ${await makeToken(service, "maria")} y`)).toHaveLength(1);
    // Except in the service's own vault, which stores its secrets.
    const values = service.cloud.control.requests({ operation: "keyvault.getSecret" });
    const read = values.filter(({ vault }) => vault !== SERVICE_VAULT).map(({ path }) => path.split("/")[2]);
    expect([...new Set(read)].sort()).toEqual(["app-secret", "seen-secret"]);
  });

  test("(control: the search finds secrets in every encoding)", () => {
    const value = planted["a value in a vault"]!;
    for (const form of forms(value)) expect(found([`before ${form} after`])).toHaveLength(1);
  });
});
