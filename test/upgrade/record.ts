import { randomBytes, randomUUID } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { type RunningHost, runHost } from "functions-host/test/run-host.ts";
import { startCloud } from "simulated-cloud/cloud.ts";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { createServices } from "../../functions/services.ts";
import { startAzurite } from "../../infra/local/azurite.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import setup from "../support/global-setup.ts";
import { licence } from "../support/licence.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { TEST_APP } from "../support/test-app.ts";
import type { Recording } from "./recording.ts";

/**
 * node test/upgrade/record.ts FILE
 *
 * Creates a recording for upgrade.test.ts: the storage account of an earlier version. To record a version, copy this folder
 * into a checkout of that version and run it there. The service works for half an hour of simulated time, then its process is
 * killed in the middle of a scan. FILE (gzipped JSON, see recording.ts) contains the tables, the queues, the state of the
 * simulated cloud, and the responses of the API shortly before the kill.
 */
const file = process.argv[2];
if (file === undefined || file.startsWith("-")) {
  console.error("Name the file to write: node test/upgrade/record.ts FILE");
  process.exit(2);
}

const APP = "Recorded API";
const [appId, secretId] = [appIdOf(APP), keyIdOf(APP, "primary")];
const ADMIN = { username: "admin", password: "correct-horse-battery" };
const READER = { username: "reader", password: "quiet-library-window" };
const HALF_AN_HOUR_MS = 30 * 60_000;
const VAULTS = 8;
/** Vaults for rotation and sync: the first one has the application's secret, and the second one gets a copy. */
const AUTOMATION_VAULTS = [
  {
    name: "kv-app",
    secrets: [
      { name: "app-secret", value: secretValueOf(APP, "primary"), contentType: `${APP}:${appId}:${secretId}` },
      { name: "copied", value: "a value" },
    ],
  },
  { name: "kv-copies" },
];
const company: Company = {
  applications: [{ name: APP, secrets: [{ name: "primary", expiresInDays: 90 }] }],
  subscriptions: [0, 1].map((subscription) => ({
    name: `Recorded ${subscription}`,
    vaults: [
      ...(subscription === 0 ? AUTOMATION_VAULTS : []),
      ...Array.from({ length: VAULTS / 2 }, (_, index) => ({
        name: `kv-rec-${subscription * 4 + index}`,
        rbac: index !== 3,
        tags: { owner: "team@acme.example" },
        secrets: Array.from({ length: 12 }, (_, index) => ({
          name: `secret-${index}`,
          ...(index === 11 ? {} : { expiresInDays: index === 10 ? -3 : 4.5 + index * 9 }),
        })),
        keys: [{ name: "key-0", expiresInDays: 200 }, { name: "key-1" }],
        certificates: [{ name: "www", expiresInDays: 6.5, issuer: "DigiCert" }],
      })),
    ],
  })),
};

const folder = mkdtempSync(path.join(tmpdir(), "record-"));
const data = path.join(folder, "cloud");
mkdirSync(data);
const clockFile = path.join(folder, "clock");
const moveClock = async (milliseconds: number) => {
  writeFileSync(clockFile, String(milliseconds));
  await delay(300);
};
// The clocks first run half an hour behind the real time, so that the recorded half hour ends now.
await moveClock(-HALF_AN_HOUR_MS);
const tearDown = await setup();
const preload = `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`;
const azurite = await startAzurite({ environment: { MOVED_CLOCK_FILE: clockFile, NODE_OPTIONS: preload } });
const proxy = await startTableProxy(azurite.connectionString());
const cloud = await startCloud({ company, data });
const newSigningKeys = () => `recorded:${randomBytes(32).toString("base64")}`;
const environment: Record<string, string> = {
  ...cloud.environment,
  JWT_SIGNING_KEYS: newSigningKeys(),
  AUDIT_SIGNING_KEYS: newSigningKeys(),
  LICENSE_KEY: await licence(),
  BOOTSTRAP_ADMIN_USERNAME: ADMIN.username,
  BOOTSTRAP_ADMIN_PASSWORD: ADMIN.password,
  RATE_LIMIT_PER_MINUTE: "0",
  RATE_LIMIT_PER_HOUR: "0",
  // Once a year, so that only the requested scans run.
  DELTA_SCAN_SCHEDULE: "0 0 0 1 1 *",
  FULL_SCAN_SCHEDULE: "0 0 0 1 1 *",
  SCHEDULE_JITTER_SECONDS: "0",
  FIRST_SCAN: "off",
  ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
};
const startHost = () =>
  runHost({
    app: TEST_APP,
    env: {
      ...environment,
      AzureWebJobsStorage: proxy.connectionString,
      MOVED_CLOCK_FILE: clockFile,
      NODE_OPTIONS: `${environment.NODE_OPTIONS ?? ""} ${preload}`,
    },
    args: ["--lease", "2", "--timer-lease", "1", "--inspect-modules"],
  });
const host: RunningHost = await startHost();

async function call<T>(method: string, route: string, body?: object, token?: string): Promise<T> {
  const answer = await fetch(host.url + route, {
    method,
    headers: {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${route} answered ${answer.status}: ${text}`);
  return (answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text) as T;
}
const signIn = async (user: typeof ADMIN) =>
  (await call<{ access_token: string }>("POST", "/auth/login", user)).access_token;
let token = await signIn(ADMIN);
const admin = <T>(method: string, route: string, body?: object) => call<T>(method, route, body, token);
const runTimer = async (timer: string) => {
  const { succeeded } = await call<{ succeeded: boolean }>("POST", `/__host/timers/${timer}`);
  if (!succeeded) throw new Error(`${timer} failed:\n${host.lines.slice(-20).join("\n")}`);
};
const waitForScan = async (scanId: string) => {
  for (;;) {
    const { status } = await admin<{ status: string }>("GET", `/api/assets/discovery/scan/${scanId}/status`);
    if (status === "completed") return;
    if (status !== "queued" && status !== "running") throw new Error(`The scan ended as ${status}`);
    await delay(200);
  }
};
const startScan = async (mode: string) =>
  (await admin<{ scanId: string }>("POST", "/api/assets/discovery/scan", { mode })).scanId;

try {
  const { access } = createServices(loadConfig({ ...environment, AzureWebJobsStorage: proxy.connectionString }));
  await access.users.create({ ...READER, role: "user" }, { actor: "system", requestId: randomUUID() });
  await waitForScan(await startScan("full"));
  for (const rule of [
    { name: "Mail", alertType: "expiration", thresholds: [60, 30, 7], recipients: ["mail@acme.example"] },
    {
      name: "Post",
      alertType: "expiration",
      thresholds: [30],
      deliveryMethod: "webhook",
      webhookUrl: `${new URL(cloud.controlUrl).origin}/sink/recorded`,
    },
    { name: "Violations", alertType: "complianceViolation", recipients: ["violations@acme.example"] },
    {
      name: "Digest",
      alertType: "expiration",
      thresholds: [90],
      deliveryMode: "digest",
      recipients: ["digest@acme.example"],
    },
  ])
    await admin("POST", "/alerts/rules", rule);
  const { items: rules } = await admin<{ items: { id: string; name: string }[] }>("GET", "/alerts/rules");
  await admin("POST", "/alerts/snoozes", {
    ruleId: rules.find(({ name }) => name === "Mail")!.id,
    assetId: "kv-rec-0.secret.secret-3",
    reason: "Recorded",
    until: new Date(Date.now() + 20 * 86_400_000).toISOString(),
  });
  await admin("PUT", "/api/settings/compliance-policy", { criticalExpiryDays: 10 });
  const until = new Date(Date.now() + 60 * 86_400_000).toISOString();
  const { items: violations } = await admin<{ items: { checkId: string; resourceId: string; resourceType: string }[] }>(
    "GET",
    "/compliance/violations?limit=1000",
  );
  for (const { checkId, resourceId, resourceType } of [
    violations.find((one) => one.resourceType === "secret")!,
    violations.find((one) => one.resourceType === "vault")!,
  ])
    await admin("POST", "/compliance/exemptions", {
      checkId,
      scope: { type: resourceType === "vault" ? "vault" : "asset", id: resourceId },
      category: "waiver",
      reason: "Recorded",
      until,
    });
  for (const subscription of (
    await admin<{ items: { subscriptionId: string }[] }>("GET", "/api/assets/discovery/vaults")
  ).items)
    await admin("POST", "/subscriptions", { subscription_id: subscription.subscriptionId, name: "Recorded" }).catch(
      () => undefined, // an earlier vault of the same subscription has added it already
    );
  await runTimer("evaluateAlerts");
  // The mails and webhook posts are sent in the meantime.
  await delay(3000);

  // The half hour has passed. The recorded tokens are issued now, so that they are still valid ten minutes after the recording.
  await moveClock(0);
  token = await signIn(ADMIN);
  const reader = await signIn(READER);
  const revokedToken = await signIn(READER);
  await call("POST", "/auth/logout", undefined, revokedToken);
  const { token: api } = await admin<{ token: string }>("POST", "/auth/tokens", {
    name: "recorded",
    expiresInDays: 365,
  });
  const session = await sessionCookieOf(READER);
  const automation = await automate();
  await waitForScan(await startScan("delta"));
  await runTimer("evaluateAlerts");
  await delay(3000);
  // Signs the audit entries so far with a digest.
  await runTimer("sealAudit");
  const answers = {
    assets: (await admin<{ items: object[] }>("GET", "/api/assets/discovery/assets?limit=1000")).items,
    score: await admin<object>("GET", "/compliance/score"),
    violations: await admin<object>("GET", "/compliance/violations?limit=1000"),
    rules: (await admin<{ items: object[] }>("GET", "/alerts/rules")).items,
    history: (await admin<{ items: object[] }>("GET", "/alerts/history?limit=1000")).items,
    audit: (await admin<{ items: object[] }>("GET", "/audit/entries?limit=1000")).items,
    auditExport: await admin<object>("GET", "/audit/export?format=json"),
    auditVerification: await admin<object>("GET", "/audit/verify"),
  };

  // Changes only tags, so that the changes do not cause alerts.
  for (let vault = 0; vault < VAULTS; vault++)
    for (const name of ["secret-0", "secret-5", "secret-11"]) putWithTag(`kv-rec-${vault}`, name);
  // The mail of this rule is in progress when the process is killed, so its delivery and its queue message wait.
  await admin("POST", "/alerts/rules", {
    name: "Waiting",
    alertType: "expiration",
    thresholds: [45],
    recipients: ["waiting@acme.example"],
  });
  cloud.control.addFault({
    match: { operation: "mail.send" },
    action: { kind: "latency", milliseconds: 30_000 },
    times: 1,
  });
  await runTimer("evaluateAlerts");
  await admin("PUT", "/api/settings/compliance-policy", { criticalExpiryDays: 9 });
  // Kills the process at its twelfth transaction from here, which is applied but not answered. The full scan is then in progress.
  let writes = 0;
  const killed = new Promise<void>((resolve, reject) => {
    proxy.fail(["LostAnswer"], ({ method, path: requestPath }) => {
      if (method === "GET" || !requestPath.startsWith("$batch") || ++writes < 12) return false;
      host.stop("SIGKILL").then(() => resolve(), reject);
      return true;
    });
  });
  const scanId = await startScan("full").catch(() => "");
  await killed;
  await delay(3000); // the messages in progress become visible again

  const recording: Recording = {
    recordedAt: new Date().toISOString(),
    environment: {
      JWT_SIGNING_KEYS: environment.JWT_SIGNING_KEYS!,
      AUDIT_SIGNING_KEYS: environment.AUDIT_SIGNING_KEYS!,
    },
    tokens: { admin: token, reader, ended: revokedToken, api },
    session,
    scanId,
    answers,
    automation,
    told: {
      mails: cloud.control.mails().length,
      posts: cloud.control.sinkRequests("recorded").length,
    },
    tables: await readTables(azurite.connectionString()),
    queues: await readQueues(azurite.connectionString()),
    cloud: Object.fromEntries(
      ["cloud.json", "signing-key.pem", "changes.jsonl"].map((name) => [
        name,
        readFileSync(path.join(data, name), "utf8"),
      ]),
    ),
  };
  console.log(
    Object.fromEntries(Object.entries(recording.tables).map(([name, rows]) => [name, rows.length])),
    Object.fromEntries(Object.entries(recording.queues).map(([name, messages]) => [name, messages.length])),
    recording.told,
    readdirSync(data),
  );
  writeFileSync(file, gzipSync(JSON.stringify(recording), { level: 9 }));
} finally {
  await host.stop("SIGKILL");
  await cloud.stop();
  await proxy.stop();
  await azurite.stop();
  await tearDown();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);

/**
 * Adds the data of rotation and sync: copies a secret by a sync record, and rotates the application's secret up to the overlap
 * period.
 */
async function automate(): Promise<NonNullable<Recording["automation"]>> {
  const automation = "/api/automation";
  const waitUntil = async (route: string, isReached: (answer: { state?: string; status?: string }) => boolean) => {
    const deadline = Date.now() + 10 * 60_000;
    for (;;) {
      const answer = await admin<{ state?: string; status?: string }>("GET", route);
      if (isReached(answer)) return;
      if (Date.now() > deadline) throw new Error(`${route} is still ${JSON.stringify(answer)}`);
      await delay(1000);
    }
  };
  const sync = await admin<{ recordId: string }>("POST", `${automation}/sync/records`, {
    sourceVault: "kv-app",
    sourceSecret: "copied",
    targetProvider: "azure",
    targetService: "keyvault",
    targetRegion: "kv-copies",
    targetName: "copied",
    scheduleHours: 24,
    enabled: true,
  });
  await waitUntil(`${automation}/sync/records/${sync.recordId}/status`, ({ state }) => state === "inSync");
  await admin("POST", `${automation}/rotation/discover`, {});
  await waitUntil(`${automation}/rotation/apps`, (answer) => JSON.stringify(answer).includes(secretId));
  await admin("POST", `${automation}/rotation/apps/${appId}/matches/verify`, { assetId: "kv-app.secret.app-secret" });
  const rotation = await admin<{ rotationId: string }>("POST", `${automation}/rotation/rotate`, { appId, secretId });
  await waitUntil(`${automation}/rotation/rotations/${rotation.rotationId}`, ({ status }) => status === "overlapping");
  return { sync: { recordId: sync.recordId }, rotation: { rotationId: rotation.rotationId } };
}

/** Signs in like a browser and returns the session cookie. */
async function sessionCookieOf(user: typeof ADMIN): Promise<string> {
  const answer = await fetch(`${host.url}/auth/login`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Sec-Fetch-Site": "same-origin" },
    body: JSON.stringify({ ...user, session: true }),
  });
  const [cookie = ""] = answer.headers.getSetCookie();
  return cookie.split(";")[0]!;
}

/** Writes a new version of a secret with the same expiration and another tag. */
function putWithTag(vault: string, name: string): void {
  const expiry = () => cloud.control.items(vault, "secrets").find((item) => item.name === name)!.expires;
  const expires = expiry();
  do {
    // The cloud rounds down to seconds: adding half a second gives the same time, unless the machine pauses in between.
    const days = expires ? { expiresInDays: (Date.parse(expires) + 500 - Date.now()) / 86_400_000 } : {};
    cloud.control.putSecret(vault, { name, ...days, tags: { changed: "yes" } });
  } while (expiry() !== expires);
}

async function readTables(connection: string): Promise<Recording["tables"]> {
  const options = { allowInsecureConnection: true };
  const found: Recording["tables"] = {};
  for await (const { name } of TableServiceClient.fromConnectionString(connection, options).listTables()) {
    if (name === undefined || name.startsWith("LocalHost")) continue;
    const rows: object[] = [];
    const table = TableClient.fromConnectionString(connection, name, options);
    for await (const row of table.listEntities({ disableTypeConversion: true })) {
      const { etag: _e, timestamp: _t, ...columns } = row as Record<string, unknown>;
      rows.push(columns);
    }
    found[name] = rows;
  }
  return found;
}

async function readQueues(connection: string): Promise<Recording["queues"]> {
  const service = QueueServiceClient.fromConnectionString(connection);
  const found: Recording["queues"] = {};
  for await (const { name } of service.listQueues()) {
    const messages: string[] = [];
    for (;;) {
      const { receivedMessageItems } = await service.getQueueClient(name).receiveMessages({ numberOfMessages: 32 });
      if (receivedMessageItems.length === 0) break;
      messages.push(...receivedMessageItems.map(({ messageText }) => messageText));
    }
    found[name] = messages;
  }
  return found;
}
