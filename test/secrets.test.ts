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

/**
 * Tests that the service exposes no secret in log lines, table rows, queue messages and responses. `beforeAll` plants secrets
 * in the simulated cloud and in the configuration, and uses all features of the service, also with typical mistakes. The tests
 * then search for the secrets.
 */

/** The planted secrets, by what they are. Secrets that arise later, such as tokens, are added during the run. */
const planted: Record<string, string> = {
  "the administrator's password": "planted-administrator-Zq1",
  "a user's password": "planted-password-Zq2",
  "a new password": "planted-new-password-Zq3",
  "a wrong password": "planted-wrong-password-Zq4",
  "a password entered as the username": "planted-typed-as-name-Zq5",
  "a password in broken JSON": "planted-broken-json-Zq6",
  "a password next to an unknown field": "planted-unknown-member-Zq7",
  "a password in the query": "planted-in-the-query-Zq9",
  "an invalid token": "planted-made-up-token-ZqA",
  "a value in a vault": "planted-vault-value-ZqB",
  "another value in a vault": "planted-vault-value-ZqC",
  "a wrong client secret": "planted-wrong-client-secret-ZqD",
  "a wrong key of a provider": "planted-wrong-provider-key-ZqJ",
  "a token that the provider does not use": "planted-stray-provider-token-ZqK",
  "a wrong client secret of single sign-on": "planted-wrong-sso-secret-ZqZ",
  "an invalid license": "planted-licence-ZqE",
  "the password of a created user": "planted-made-user-ZqF",
  "a password that an administrator sets": "planted-reset-ZqG",
  "a password that the user sets afterwards": "planted-after-reset-ZqH",
  "a password next to an invalid role": "planted-wrong-role-ZqI",
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
      LICENSE_KEY: planted["an invalid license"]!,
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
    "the signing key of tokens": service.environment.JWT_SIGNING_KEYS!.slice("test:".length),
    "the signing key of audit digests": service.environment.AUDIT_SIGNING_KEYS!.slice("test:".length),
    "the mail service's key": /accesskey=(.+)$/.exec(service.environment.COMMUNICATION_CONNECTION_STRING!)![1]!,
    "App Configuration's key": /Secret=(.+)$/.exec(service.environment.APP_CONFIGURATION_CONNECTION_STRING!)![1]!,
  })) {
    planted[what] = value;
  }
  const hostWithWrongSecret = await service.addHost({ AZURE_CLIENT_SECRET: planted["a wrong client secret"]! });
  await exerciseServiceWithoutCloud();
  await hostWithWrongSecret.stop();
  service.hosts.length = 0;
  planted["the license"] = await licence();
  hosts.push(hostWithWrongSecret, await service.addHost({ LICENSE_KEY: planted["the license"] }));
  await exerciseService();
});
afterAll(async () => {
  await service.stop();
  await queues.stop();
});

let clientCount = 0;
/** Calls the service from a new address, because sign-ins are limited per address. Records the response, but not new tokens. */
async function call(method: string, path: string, options: CallOptions = {}) {
  const headers = { "X-Forwarded-For": `198.51.100.${++clientCount}`, ...options.headers };
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
/** Signs in like a browser, and returns the headers of its requests. */
async function beginSession(username: string, password: string): Promise<{ Cookie: string; "Sec-Fetch-Site": string }> {
  const site = { "Sec-Fetch-Site": "same-origin" };
  const body = { username, password, session: true };
  const { headers } = await call("POST", "/auth/login", { body, headers: site });
  const [, value] = /^__Host-session=([^;]+)/.exec(headers.getSetCookie()[0]!)!;
  planted[`session ${Object.keys(planted).length}`] = value!;
  planted[`the secret of session ${Object.keys(planted).length}`] = value!.split(".")[1]!;
  return { ...site, Cookie: `__Host-session=${value}` };
}

/** Uses users, API tokens and sessions correctly, and makes typical mistakes with each. */
async function exerciseSessions(token: string): Promise<void> {
  const zoe = { username: "zoe", password: planted["the password of a created user"]!, role: "user" };
  await call("POST", "/auth/users", { token, body: { ...zoe, role: planted["a password next to an invalid role"] } });
  await call("POST", "/auth/users", {
    token,
    body: { ...zoe, pin: planted["a password next to an unknown field"] },
  });
  expect((await call("POST", "/auth/users", { token, body: zoe })).status).toBe(201);
  const session = await beginSession("zoe", zoe.password);
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

  const resetPassword = planted["a password that an administrator sets"]!;
  expect((await call("PUT", "/auth/users/zoe", { token, body: { password: resetPassword } })).status).toBe(200);
  const reset = await beginSession("zoe", resetPassword);
  expect((await call("GET", "/subscriptions", { headers: reset })).body.code).toBe("passwordChangeRequired");
  const next = { currentPassword: resetPassword, newPassword: planted["a password that the user sets afterwards"]! };
  expect((await call("POST", "/auth/password", { headers: reset, body: next })).status).toBe(200);
  const last = await beginSession("zoe", next.newPassword);
  await call("POST", "/auth/logout", { headers: last, body: { everywhere: true, apiTokens: true } });
  await call("DELETE", "/auth/users/zoe", { token });
}

/** Uses single sign-on: a successful sign-in, three rejected ones, and an administrator's mistakes with the client secret. */
async function exerciseSingleSignOn(token: string): Promise<void> {
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

/** Repeats a check until it passes. */
const waitUntilPasses = (check: () => Promise<void>) => vi.waitFor(check, { timeout: 150_000, interval: 200 });

/** Syncs a secret to AWS, first with wrong credentials. Also creates a sync that fails, because its source is disabled. */
async function exerciseSync(token: string): Promise<void> {
  const { key } = service.cloud.control.providers.aws;
  planted["the provider's key"] = key.secretAccessKey;
  const [providers, records] = ["/api/automation/sync/providers", "/api/automation/sync/records"];
  const aws = (body: object) => call("POST", `${providers}/aws`, { token, body: { region: "eu-west-1", ...body } });
  const wrong = planted["a wrong key of a provider"]!;
  expect((await aws({ ...key, secretAccessKey: wrong })).status).toBe(400);
  await aws({ ...key, token: planted["a token that the provider does not use"] });
  expect((await aws(key)).status).toBe(200);
  const record = { sourceVault: "kv-seen", targetProvider: "aws", targetService: "secretsmanager" };
  const schedule = { scheduleHours: 24, enabled: true };
  const createRecord = async (sourceSecret: string, targetName: string) =>
    (await call("POST", records, { token, body: { ...record, ...schedule, sourceSecret, targetName } })).body.recordId;
  const [good, bad] = [await createRecord("seen-secret", "seen/copy"), await createRecord("off-secret", "seen/off")];
  const state = async (id: string) => (await call("GET", `${records}/${id}/status`, { token })).body.state;
  await waitUntilPasses(async () => expect([await state(good), await state(bad)]).toEqual(["inSync", "failing"]));
  for (const id of [good, bad]) {
    await call("POST", `${records}/${id}/plan`, { token });
    await call("GET", `${records}/${id}`, { token });
    await call("GET", `${records}/${id}/history`, { token });
  }
  await call("GET", `${providers}/aws`, { token });
}

/** Discovers an application's secret, verifies its match, starts its rotation, and cancels it after the new secret exists. */
async function exerciseRotation(token: string): Promise<void> {
  const base = "/api/automation/rotation";
  await call("POST", `${base}/discover`, { token, body: {} });
  await waitUntilPasses(async () => expect((await call("GET", `${base}/apps`, { token })).body.total).toBe(1));
  const asset = { assetId: "kv-seen.secret.app-secret" };
  expect((await call("POST", `${base}/apps/${appId}/matches/verify`, { token, body: asset })).body.result).toBe(
    "accepted",
  );
  const rotate = (body: object) => call("POST", `${base}/rotate`, { token, body: { appId, secretId: keyId, ...body } });
  expect((await rotate({ dryRun: true })).status).toBe(200);
  await rotate({ newValue: planted["an application's client secret"] });
  const { body: started } = await rotate({});
  const readRotation = async () => (await call("GET", `${base}/rotations/${started.rotationId}`, { token })).body;
  /** Returns the new secret, which the service keeps in its own vault until the rotation has written it to every place. */
  const newSecret = () => {
    const storedSecrets = service.cloud.control.items(SERVICE_VAULT, "secrets");
    const name = storedSecrets.find((one) => one.name.startsWith(`rotation-${started.rotationId}`))?.name;
    return name === undefined ? undefined : service.cloud.control.secretValue(SERVICE_VAULT, name);
  };
  await waitUntilPasses(async () => expect(newSecret()).toBeDefined());
  planted["an application's new client secret"] = newSecret()!;
  await call("POST", `${base}/rotations/${started.rotationId}/cancel`, { token });
  await waitUntilPasses(async () => expect((await readRotation()).endedAt).not.toBeNull());
  await call("GET", `${base}/history`, { token });
}

/** Configures an organization of Azure DevOps, also by a URL that contains a token, and tests each error of its tokens. */
async function exerciseDevops(token: string): Promise<void> {
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

/** Registers a tenant of Azure AD B2C, first with a wrong secret. */
async function exerciseTenant(token: string): Promise<void> {
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
    await waitUntilPasses(async () => expect((await call("GET", run, { token })).body.status).not.toBe("running"));
    return (await call("GET", one, { token })).body.state;
  };
  expect((await call("POST", `${one}/test`, { token })).body.ok).toBe(false);
  expect(await discover()).toBe("failing");
  expect((await call("PUT", one, { token, body: { clientSecret } })).status).toBe(200);
  expect((await call("POST", `${one}/test`, { token })).body.ok).toBe(true);
  expect(await discover()).toBe("discovered");
}

/** Discovers the consumers of a secret, and reads the blast radius of a rotation. */
async function exerciseDependencies(token: string): Promise<void> {
  const base = "/api/assets/dependencies";
  const { body: run } = await call("POST", `${base}/discover`, { token });
  await waitUntilPasses(async () =>
    expect((await call("GET", `${base}/runs/${run.runId}`, { token })).body.finishedAt).not.toBeNull(),
  );
  const { body: consumers } = await call("GET", `${base}?secret=seen-secret&strength=references`, { token });
  const kinds = consumers.items.map(({ resource }: { resource: { kind: string } }) => resource.kind);
  expect([...new Set(kinds)].sort()).toEqual(["devopsVariableGroup", "syncRecord", "webApp"]);
  await call("GET", `${base}/blast-radius/kv-seen.secret.seen-secret`, { token });
}

const signInAdministrator = () => signIn(ADMIN.username, planted["the administrator's password"]!);

async function runScan(token: string): Promise<Answer["body"]> {
  const { body } = await call("POST", "/api/assets/discovery/scan", { token, body: { mode: "full" } });
  for (;;) {
    const { body: scan } = await call("GET", `/api/assets/discovery/scan/${body.scanId}/status`, { token });
    if (scan.status !== "queued" && scan.status !== "running") return scan;
    await delay(200);
  }
}

/**
 * Uses the service while the cloud rejects its identity. A new process then has no keys of signed rows, so it can't verify users,
 * and answers what needs one with 503.
 */
async function exerciseServiceWithoutCloud(): Promise<void> {
  const body = { username: ADMIN.username, password: planted["the administrator's password"]! };
  const answer = await call("POST", "/auth/login", { body });
  expect([answer.status, answer.body.code]).toEqual([503, "unavailable"]);
  expect((await call("GET", "/identity")).status).toBe(401);
  expect((await call("GET", "/health")).status).toBe(200);
}

/** Uses the service: successful and failed sign-ins, a scan that fails in part, each feature, and every GET endpoint. */
async function exerciseService(): Promise<void> {
  const user = { username: "maria", password: planted["a user's password"]!, role: "user" as const };
  await createUsers(service, [user]);
  const token = await signInAdministrator();
  const maria = await signIn(user.username, user.password);

  const wrong = planted["a wrong password"]!;
  await call("POST", "/auth/login", { body: { username: "maria", password: wrong } });
  await call("POST", "/auth/login", {
    body: { username: planted["a password entered as the username"], password: wrong },
  });
  await call("POST", "/auth/login", {
    body: `{"username":"maria","password":"${planted["a password in broken JSON"]}"`,
  });
  await call("POST", "/auth/login", {
    body: { username: "maria", password: [planted["a password next to an unknown field"]], x: 1 },
  });
  await call("POST", "/auth/login", {
    body: { username: "maria", password: wrong, pin: planted["a password next to an unknown field"] },
  });
  await call("GET", `/api/assets/discovery/assets?limit=${planted["a password in the query"]}`, { token });
  await call("GET", `/auth/me?access_token=${maria}`);
  await call("GET", "/auth/me", { token: planted["an invalid token"]! });
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
  await exerciseSessions(token);
  await exerciseSingleSignOn(token);

  service.cloud.control.addFault({ match: { vault: "kv-garbage" }, action: { kind: "garbage", as: "otherShape" } });
  const scan = await runScan(token);
  expect(scan.status).toBe("partial");

  await exerciseSync(token);
  await exerciseRotation(token);
  await exerciseDevops(token);
  await exerciseTenant(token);
  await exerciseDependencies(token);
  planted["the signing key of rows"] = service.cloud.control.secretValue(SERVICE_VAULT, "row-signing")!;

  const document = (await call("GET", "/openapi.json")).body as { paths: Record<string, Record<string, unknown>> };
  for (const path of Object.keys(document.paths).filter((each) => "get" in document.paths[each]!)) {
    await call("GET", path.replace("{scan_id}", scan.scanId).replace("{asset_id}", "kv-seen.secret.seen-secret"), {
      token,
    });
  }
  await call("GET", "/api/assets/discovery/assets?format=csv", { token });
}

/** Returns every row of every table as text, including binary columns. */
async function readRows(): Promise<string[]> {
  const options = { allowInsecureConnection: true };
  const connection = service.azurite.connectionString();
  const rows = [];
  for await (const { name } of TableServiceClient.fromConnectionString(connection, options).listTables()) {
    for await (const row of TableClient.fromConnectionString(connection, name!, options).listEntities()) {
      const columns = Object.entries(row).map(([column, value]) =>
        value instanceof Uint8Array
          ? `${column}=${Buffer.from(value).toString("latin1")}`
          : `${column}=${JSON.stringify(value)}`,
      );
      rows.push(`${name}: ${columns.join(" ")}`);
    }
  }
  return rows;
}

/** Returns a value in each encoding in which it could appear in a text. */
const encodingsOf = (value: string): string[] => {
  const bytes = Buffer.from(value);
  return [
    value,
    encodeURIComponent(value),
    bytes.toString("base64").replace(/=+$/, ""),
    bytes.toString("base64url"),
    bytes.toString("hex"),
  ];
};
/** Returns each planted secret that occurs in one of the texts, with the start of the text. */
const secretsIn = (texts: readonly string[]): string[] =>
  Object.entries(planted).flatMap(([what, value]) =>
    texts
      .filter((text) => encodingsOf(value).some((encoded) => text.includes(encoded)))
      .map((text) => `${what}: ${text.slice(0, 400)}`),
  );

/** Returns the JWTs in a text that have an audience or an expiry. The signed statement of an audit export has neither. */
const tokensIn = (text: string): string[] =>
  (text.match(/eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}/g) ?? []).filter((token) =>
    /"(aud|exp)":/.test(Buffer.from(token.split(".")[1]!, "base64url").toString()),
  );

/** Returns whether each word occurs in a text. A control: the searched texts are really those of the service. */
const hasAll = (texts: readonly string[], words: readonly string[]): boolean =>
  words.every((word) => texts.some((text) => text.includes(word)));

describe("no secret is exposed", () => {
  const logLines = () => hosts.flatMap(({ lines }) => lines);

  test("in a log line", () => {
    expect(secretsIn(logLines())).toEqual([]);
    expect(hasAll(logLines(), ["Created the bootstrap administrator", "A scan is over"])).toBe(true);
  });

  test("in a table row", async () => {
    const rows = await readRows();
    expect(secretsIn(rows)).toEqual([]);
    expect(
      hasAll(rows, ["seen-secret", "maria", "kv-garbage", "access.refused", "apiToken.created", "sso.configured"]) &&
        hasAll(rows, ["syncTarget.written", "sourceDisabled", "rotation.", keyId]) &&
        hasAll(rows, ["devops.configured", "seen-linked", "b2cTenant.registered", "B2C_1A_Seen", "app-seen"]),
    ).toBe(true);
  });

  test("in a queue message", () => {
    expect(secretsIn(queues.messages)).toEqual([]);
    expect(hasAll(queues.messages, ["kv-seen"])).toBe(true);
  });

  test("in a response or its headers", () => {
    expect(secretsIn(responses)).toEqual([]);
    expect(hasAll(responses, ["seen-secret", "invalidCredentials", "unavailable"])).toBe(true);
  });

  test("not even a token of the cloud, and the service reads only values that it copies or rotates", async () => {
    const everything = [...logLines(), ...(await readRows()), ...queues.messages, ...responses];
    expect(everything.flatMap(tokensIn)).toEqual([]);
    expect(tokensIn(`x ${await makeToken(service, "maria")} y`)).toHaveLength(1);
    // The service may read all secrets of its own vault. In other vaults: `app-secret` for rotation, `seen-secret` for sync.
    const values = service.cloud.control.requests({ operation: "keyvault.getSecret" });
    const read = values.filter(({ vault }) => vault !== SERVICE_VAULT).map(({ path }) => path.split("/")[2]);
    expect([...new Set(read)].sort()).toEqual(["app-secret", "seen-secret"]);
  });

  test("(control: the search finds secrets in every encoding)", () => {
    const value = planted["a value in a vault"]!;
    for (const encoded of encodingsOf(value)) expect(secretsIn([`before ${encoded} after`])).toHaveLength(1);
  });
});
