import { setTimeout as delay } from "node:timers/promises";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Company } from "../infra/local/cloud/company/company.ts";
import type { RunningHost } from "./host/run-host.ts";
import { type QueueRecorder, startQueueRecorder } from "./support/queue-recorder.ts";
import { ADMIN, type Answer, Service } from "./support/service.ts";
import { createUsers, makeToken } from "./support/users.ts";

/** By what they are; every one is somewhere in what the service is given. */
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
  "a licence that is none": "planted-licence-ZqE",
};

const company: Company = {
  subscriptions: [
    {
      name: "Acme",
      vaults: [
        {
          name: "kv-seen",
          secrets: [
            { name: "seen-secret", value: planted["a value in a vault"]!, expiresInDays: 5 },
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
      TRUSTED_PROXY_HOPS: "2",
    },
  });
  const { clientId, clientSecret, tenantId } = service.cloud.app;
  const asApplication = { AZURE_CLIENT_ID: clientId, AZURE_CLIENT_SECRET: clientSecret, AZURE_TENANT_ID: tenantId };
  queues = await startQueueRecorder(service.tables.connectionString);
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
  hosts.push(wrong, await service.addHost());
  await live();
});
afterAll(async () => {
  await service.stop();
  await queues.stop();
});

let clients = 0;
/** A call whose answer is kept, but for the one that hands out a token. */
async function call(method: string, path: string, options: { token?: string; body?: unknown } = {}) {
  const headers = { "X-Forwarded-For": `198.51.100.${++clients}` };
  const answer = await service.call(method, path, { ...options, headers });
  const issued = answer.body?.access_token;
  responses.push(`${method} ${path.split("?")[0]} ${JSON.stringify([...answer.headers])} ${issued ? "" : answer.text}`);
  return answer;
}

async function signIn(username: string, password: string): Promise<string> {
  const { body } = await call("POST", "/auth/login", { body: { username, password } });
  planted[`token ${Object.keys(planted).length}`] = body.access_token;
  planted[`the signature of token ${Object.keys(planted).length}`] = body.access_token.split(".")[2];
  return body.access_token;
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

/** What the service says when the cloud takes it for nobody. */
async function withoutCloud(): Promise<void> {
  const token = await signInAdministrator();
  expect((await call("GET", "/identity", { token })).status).toBe(503);
  expect((await call("GET", "/health?deep=true", { token })).body.status).toBe("degraded");
  expect(await scanEnds(token)).toMatchObject({ status: "failed" });
}

/** A day in its life: good and bad sign-ins, a scan that fails in part, every page there is to read. */
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

  service.cloud.control.addFault({ match: { vault: "kv-garbage" }, action: { kind: "garbage", as: "otherShape" } });
  const scan = await scanEnds(token);
  expect(scan.status).toBe("partial");

  const document = (await call("GET", "/openapi.json")).body as { paths: Record<string, Record<string, unknown>> };
  for (const path of Object.keys(document.paths).filter((each) => "get" in document.paths[each]!)) {
    await call("GET", path.replace("{scan_id}", scan.scanId).replace("{asset_id}", "kv-seen.secret.seen-secret"), {
      token,
    });
  }
  await call("GET", "/api/assets/discovery/assets?format=csv", { token });
}

/** Every row of every table, binary columns as text too. */
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
/** What of the planted is in these texts, and in which. */
const found = (texts: readonly string[]): string[] =>
  Object.entries(planted).flatMap(([what, value]) =>
    texts
      .filter((text) => forms(value).some((form) => text.includes(form)))
      .map((text) => `${what}: ${text.slice(0, 400)}`),
  );

/** What is signed as a token is, and says for whom or until when: an audit export's signed statement does not. */
const tokensIn = (text: string): string[] =>
  (text.match(/eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}/g) ?? []).filter((token) =>
    /"(aud|exp)":/.test(Buffer.from(token.split(".")[1]!, "base64url").toString()),
  );

/** That the right texts were searched at all. */
const mentioned = (texts: readonly string[], known: readonly string[]): boolean =>
  known.every((word) => texts.some((text) => text.includes(word)));

describe("no secret comes out", () => {
  const logLines = () => hosts.flatMap(({ lines }) => lines);

  test("in a log line", () => {
    expect(found(logLines())).toEqual([]);
    expect(mentioned(logLines(), ["Made the bootstrap administrator", "A scan is over"])).toBe(true);
  });

  test("in a table row", async () => {
    const all = await rows();
    expect(found(all)).toEqual([]);
    expect(mentioned(all, ["seen-secret", "maria", "kv-garbage", "access.refused"])).toBe(true);
  });

  test("in a queue message", () => {
    expect(found(queues.messages)).toEqual([]);
    expect(mentioned(queues.messages, ["kv-seen"])).toBe(true);
  });

  test("in an answer or its headers", () => {
    expect(found(responses)).toEqual([]);
    expect(mentioned(responses, ["seen-secret", "invalidCredentials", "unavailable"])).toBe(true);
  });

  test("nor any token of the cloud's, nor did the scan read a value", async () => {
    const everything = [...logLines(), ...(await rows()), ...queues.messages, ...responses];
    expect(everything.flatMap(tokensIn)).toEqual([]);
    expect(tokensIn(`x ${await makeToken(service, "maria")} y`)).toHaveLength(1);
    // The service's own vault is another matter: it keeps what is the service's there.
    const values = service.cloud.control.requests({ operation: "keyvault.getSecret" });
    expect(values.filter(({ host }) => !host.startsWith("kv-lifecycle-service."))).toEqual([]);
  });

  test("(the search finds what is there, however it is written)", () => {
    const value = planted["a value in a vault"]!;
    for (const form of forms(value)) expect(found([`before ${form} after`])).toHaveLength(1);
  });
});
