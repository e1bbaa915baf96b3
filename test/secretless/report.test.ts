import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { guidFrom } from "simulated-cloud/vaults/identifiers.ts";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { plantedCompany } from "../rotation/planted-credentials.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";
import { drawCompany } from "./drawn-company.ts";

// Reports on client secrets, for a drawn company of 60 applications with known answers, over HTTP.

const { company, expected, records } = drawCompany(20_261_128);
// A vault with keys of four Azure resources. One of its secrets was read two days ago.
const { company: keys, links } = plantedCompany(4);
company.subscriptions.push(...keys.subscriptions);
// Applications whose secrets are blocked, and one that no test reads before the permission is missing.
const [FOREIGN, SAML, UNREAD] = ["Partner portal", "Signed tokens", "Unread"] as const;
company.applications!.push(
  { name: FOREIGN, otherTenant: true, secrets: [{ name: "current", expiresInDays: 90 }] },
  { name: SAML, samlSigning: { expiresInDays: 90 } },
  { name: UNREAD, secrets: [{ name: "current", expiresInDays: 90 }] },
);
const KEY_VAULT = keys.subscriptions[0]!.vaults![0]!.name;
const READ_SECRET = links[0]!.secretName;
const WORKSPACE = guidFrom("workspace law-former");
const APPS = "/api/automation/rotation/apps";
const DAY_MS = 86_400_000;
const READER = "33333333-3333-4333-8333-333333333333";
const USED = expected.find(({ scenario }) => scenario === "webApp")!;

let service: Service;
beforeAll(async () => {
  service = await Service.start({
    company,
    env: {
      LICENSE_KEY: await licence(),
      LOG_ANALYTICS_WORKSPACE_IDS: WORKSPACE,
      DEPENDENCY_LITERAL_SCAN: "true",
    },
  });
  // Some application signs in daily, so the log is complete. One of the drawn applications signed in five days ago.
  for (let day = 6; day >= 0; day--) addSignIn("Others", "daily", day * DAY_MS + 60_000);
  addSignIn(USED.name, "current", 5 * DAY_MS);
  for (let day = 6; day >= 0; day--) addVaultEvent("SecretList", "", day * DAY_MS + 60_000);
  addVaultEvent("SecretGet", READ_SECRET, 2 * DAY_MS);
  await service.scan({ mode: "full" });
  await post("/api/automation/rotation/discover");
  await service.admin("PUT", "/api/settings/integrations/devops", { orgUrl: "https://dev.azure.com/acme" });
  for (const [provider, body] of Object.entries(service.cloud.control.providers.configurations()))
    await post(`/api/automation/sync/providers/${provider}`, body);
  for (const record of records) await post("/api/automation/sync/records", { ...record, enabled: true });
  await service.waitUntilIdle();
  const notSynced = async () =>
    (await service.listAll("/api/automation/sync/records")).filter(({ state }) => state !== "inSync");
  await vi.waitFor(async () => expect(await notSynced()).toEqual([]), { timeout: 150_000, interval: 300 });
  await service.scan({ mode: "full" });
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  await service.waitUntilIdle();
  const { runId } = await post("/api/assets/dependencies/discover");
  const isOver = async () =>
    (await service.admin("GET", `/api/assets/dependencies/runs/${runId}`)).body.finishedAt !== null;
  await vi.waitUntil(isOver, { timeout: 300_000, interval: 500 });
}, 600_000);
afterAll(() => service?.stop());

async function post(path: string, body: unknown = {}) {
  const answer = await service.admin("POST", path, body);
  expect(answer.status, `${path}: ${answer.text}`).toBeLessThan(300);
  return answer.body;
}

function addSignIn(application: string, secret: string, millisecondsAgo: number): void {
  service.cloud.control.logs.addEvent("law-former", {
    table: "AADServicePrincipalSignInLogs",
    at: Date.now() - millisecondsAgo,
    appId: appIdOf(application),
    keyId: keyIdOf(application, secret),
    name: application,
    result: "0",
  });
}

function addVaultEvent(operation: string, secret: string, millisecondsAgo: number): void {
  service.cloud.control.logs.addEvent("law-former", {
    table: "AzureDiagnostics",
    at: Date.now() - millisecondsAgo,
    operation,
    vaultId: service.cloud.control.vaultId(KEY_VAULT)!,
    id: secret && `https://${KEY_VAULT}.vault.localhost:1/secrets/${secret}/${"a".repeat(32)}`,
    requestUri: "",
    status: 200,
    objectId: READER,
    appId: READER,
  });
}

const reportOf = async (name: string) => await service.admin("GET", `${APPS}/${appIdOf(name)}/secretless`);

// biome-ignore lint/suspicious/noExplicitAny: JSON of a response
const consumersIn = ({ consumers }: any) =>
  consumers
    // biome-ignore lint/suspicious/noExplicitAny: JSON of a response
    .map(({ kind, replacement, mode, blockers }: any) => [
      kind,
      replacement,
      mode,
      blockers.map(({ code }: { code: string }) => code),
    ])
    .sort();

test("each of 60 drawn applications has the right verdict, consumers, replacements and blockers", async () => {
  const found = [];
  for (const { name, scenario } of expected) {
    const { status, body } = await reportOf(name);
    const [secret] = body.secrets ?? [];
    found.push([name, scenario, status, secret?.verdict, secret && consumersIn(secret)]);
  }
  expect(found).toEqual(
    expected.map(({ name, scenario, verdict, consumers }) => [name, scenario, 200, verdict, [...consumers].sort()]),
  );
  expect(found).toHaveLength(60);
});

test("no report proposes a wrong issuer, subject or audience, or contains a value of a secret", async () => {
  const tenantId = guidOfTenant();
  const { namespace } = service.cloud.control.providers.kubernetes;
  const issuers = [
    new RegExp(`^https://[^/]+/${tenantId}/v2.0$`),
    /^https:\/\/token\.actions\.githubusercontent\.com$/,
    /^<(issuer that Azure DevOps shows|OIDC issuer of the cluster|service account issuer of the cluster)>$/,
  ];
  for (const { name, subjects, consumers } of expected) {
    const { body, text } = await reportOf(name);
    expect(text).not.toContain(secretValueOf(name, "current"));
    const [secret] = body.secrets;
    for (const consumer of secret.consumers) {
      const needed = consumer.federatedCredential;
      if (needed === null) continue;
      expect(needed.audience).toBe("api://AzureADTokenExchange");
      expect(
        issuers.some((issuer) => issuer.test(needed.issuer)),
        needed.issuer,
      ).toBe(true);
      const subject = subjects[consumer.kind]?.replace("<the cluster's namespace>", namespace);
      if (subject !== undefined) expect(needed.subject).toBe(subject);
      // No subject is complete: each has a placeholder that keeps its command from working.
      expect(needed.subject).toMatch(/<[^>]+>/);
    }
    const commands = secret.plan.flatMap(({ command }: { command: string | null }) => command ?? []);
    const adding = commands.filter((command: string) => command.includes("federated-credential create"));
    for (const command of adding) expect(command).toMatch(/"subject":"[^"]*<[^>]+>/);
    const isPossible = secret.verdict === "possible";
    expect([name, commands.some((command: string) => command.startsWith("az ad app credential delete"))]).toEqual([
      name,
      isPossible,
    ]);
    expect(secret.plan.length > 0).toBe(consumers.length > 0 && ["possible", "partly"].includes(secret.verdict));
    expect(body.unknown.map(({ code }: { code: string }) => code)).toEqual(
      expect.arrayContaining(["userSignIns", "handMadeCopies"]),
    );
  }
});

const guidOfTenant = (): string => service.environment.AZURE_TENANT_ID!;

test("plans name what only people know: the workflow's claims, the built-in authentication, the automatic connection", async () => {
  const planOf = async (scenario: string) => {
    const { name } = expected.find((one) => one.scenario === scenario)!;
    const { secrets } = (await reportOf(name)).body;
    return { name, ...secrets[0], text: JSON.stringify(secrets[0].plan) };
  };
  const environment = await planOf("githubEnvironment");
  expect(environment.consumers[0].federatedCredential.usualSubject).toBe("repo:acme/shop:environment:production");
  expect(environment.text).toContain("id-token: write");
  expect((await planOf("githubRepository")).consumers[0].federatedCredential.usualSubject).toBeNull();
  expect((await planOf("builtInAuthentication")).text).toContain("OVERRIDE_USE_MI_FIC_ASSERTION_CLIENTID");
  expect((await planOf("webApp")).text).not.toContain("OVERRIDE_USE_MI_FIC_ASSERTION_CLIENTID");
  expect((await planOf("automaticConnection")).text).not.toContain("federated-credential create");
  expect((await planOf("manualConnection")).text).toContain("federated-credential create");
  expect((await planOf("plaintextCopy")).consumers[0]).toMatchObject({ copy: true });
});

test("the secret of an application of another tenant is blocked, and a SAML signing certificate has no client secret", async () => {
  const text = "belongs to another tenant";
  expect((await reportOf(FOREIGN)).body.secrets).toEqual([
    expect.objectContaining({
      verdict: "blocked",
      reason: expect.stringContaining(text),
      blockers: [{ code: "foreignApplication", message: expect.stringContaining(text) }],
      plan: [],
    }),
  ]);
  expect((await reportOf(SAML)).body).toMatchObject({ displayName: SAML, secrets: [] });
});

test("a run over HTTP: its plan, roles, refusals, steps and rollback", { timeout: 300_000 }, async () => {
  const runOf = (scenario: string, position = 0) => {
    const { name } = expected.filter((one) => one.scenario === scenario)[position]!;
    return { appId: appIdOf(name), keyId: keyIdOf(name, "current"), path: `${APPS}/${appIdOf(name)}/secretless` };
  };
  // The site has no user-assigned identity, as Azure Resource Graph shows.
  const site = runOf("webApp", 1);
  const consumer = (await service.admin("GET", site.path)).body.secrets[0].consumers[0].id;
  const subject = "33333333-3333-4333-8333-333333333333";
  const wrong = await service.admin("POST", site.path, { keyId: site.keyId, replacements: [{ consumer, subject }] });
  expect([wrong.status, wrong.body.detail]).toEqual([409, expect.stringContaining("user-assigned identities")]);
  const missing = await service.admin("POST", site.path, { keyId: site.keyId, dryRun: true });
  expect([missing.status, missing.body.code]).toEqual([400, "valueRequired"]);
  const blocked = runOf("amazonCopy");
  expect((await service.admin("POST", blocked.path, { keyId: blocked.keyId })).status).toBe(409);

  const { appId, keyId, path } = runOf("automaticConnection");
  await createUsers(service, [
    { username: "operator", password: "correct-horse-operator", role: "operator" },
    { username: "reader", password: "correct-horse-reader", role: "user" },
  ]);
  const as = async (username: string) => await service.signIn({ username, password: `correct-horse-${username}` });
  const [operator, reader] = [await as("operator"), await as("reader")];
  expect((await service.call("POST", path, { token: operator, body: { keyId } })).status).toBe(403);
  const plan = await service.admin("POST", path, { keyId, idleDays: 2, dryRun: true });
  expect([plan.status, plan.body.status, plan.body.runId]).toEqual([200, "planned", null]);
  const other = await service.admin("POST", path, { keyId, idleDays: 2, plan: "0".repeat(64) });
  expect([other.status, other.body.code]).toEqual([409, "conflict"]);
  const started = await service.admin("POST", path, { keyId, idleDays: 2, plan: plan.body.plan });
  expect([started.status, started.headers.get("location")]).toEqual([
    201,
    `/api/automation/rotation/secretless/${started.body.runId}`,
  ]);
  const RUN = `/api/automation/rotation/secretless/${started.body.runId}`;
  const watched = async () => (await service.call("GET", RUN, { token: reader })).body;
  await vi.waitUntil(async () => (await watched()).watch !== null, { timeout: 120_000, interval: 500 });
  const run = await watched();
  expect(run.connections).toEqual([expect.objectContaining({ automatic: true, state: "converted" })]);
  expect(run.credentials[0]).toMatchObject({ state: "byDevops", proof: "connection", verified: true });
  expect(run.watch.unconfirmed).toEqual(expect.arrayContaining(["userSignIns", "logGaps", "handMadeCopies"]));
  expect((await service.admin("GET", `/api/automation/rotation/secretless?appId=${appId}`)).body.items).toHaveLength(1);
  expect((await service.call("POST", `${RUN}/confirm`, { token: operator, body: { blindSpots: ["x"] } })).status).toBe(
    403,
  );
  const few = await service.admin("POST", `${RUN}/confirm`, { blindSpots: ["userSignIns"] });
  expect([few.status, few.body.blindSpots]).toEqual([409, expect.arrayContaining(["logGaps"])]);
  expect((await service.call("POST", `${RUN}/rollback`, { token: reader, body: {} })).status).toBe(403);
  expect((await service.call("POST", `${RUN}/rollback`, { token: operator })).status).toBe(409);
  await service.call("POST", `${RUN}/rollback`, { token: operator, body: { force: true } });
  await vi.waitUntil(async () => (await watched()).endedAt !== null, { timeout: 120_000, interval: 500 });
  expect(await watched()).toMatchObject({ status: "rolledBack", connections: [{ state: "reverted" }] });
  const entries = await service.listAll("/audit/entries");
  const types = new Set(entries.map(({ eventType }) => eventType));
  for (const type of ["started", "connectionConverted", "rolledBack", "connectionReverted"])
    expect(types).toContain(`secretless.${type}`);
});

test("without permission to read applications, a report says what it could not read, and decides nothing", async () => {
  const { directory } = service.cloud.control;
  const { permissions } = directory.settings();
  directory.set({ permissions: [] });
  onTestFinished(() => directory.set({ permissions }));
  const { status, body } = await reportOf(UNREAD);
  expect([status, body.federatedCredentials]).toEqual([200, null]);
  expect(body.secrets).toEqual([
    expect.objectContaining({ verdict: "unknown", reason: expect.stringContaining("could not be searched"), plan: [] }),
  ]);
  const unknown = new Map(body.unknown.map((one: { code: string; remedy: string }) => [one.code, one.remedy]));
  expect(unknown.get("federatedCredentialsUnread")).toContain("Application.Read.All");
  expect(unknown.get("accessDenied")).toContain("Application.Read.All");
});

test("a report costs at most four requests to Microsoft Graph, and one if it is repeated", async () => {
  const { name } = expected.find(({ scenario }) => scenario === "copyInVault")!;
  service.cloud.control.directory.changeApplication(appIdOf(name), { notes: "changed" });
  await reportOf(name);
  service.cloud.control.resetCounts();
  await reportOf(name);
  const { total, ...counts } = service.cloud.control.counts();
  expect(Object.keys(counts).filter((operation) => operation.startsWith("graph."))).toEqual(["graph.getApplication"]);
  expect(total).toBe(1);
});

test("idle days follow from complete sign-in logs only", async () => {
  const usageOf = async (name: string) => (await reportOf(name)).body.secrets[0].usage;
  expect(await usageOf(USED.name)).toMatchObject({ idleDays: 5 });
  const never = await usageOf(expected.find(({ scenario }) => scenario === "nobody")!.name);
  expect(never).toMatchObject({ lastUsedAt: null, idleDays: 6 });
  expect(never.blindSpots).toHaveLength(2);
  const idle = async (days: number) => (await service.listAll(`${APPS}?idle=${days}`)).map((one) => one.displayName);
  // All but the used one, and the application without client secrets.
  expect((await idle(6)).length).toBe(61);
  expect(await idle(6)).not.toContain(USED.name);
  expect(await idle(1)).not.toContain(SAML);
  expect(await idle(5)).toContain(USED.name);
  expect(await idle(90)).toEqual([]);
  const { body } = await service.admin("GET", `${APPS}/${appIdOf(USED.name)}`);
  expect(body.credentials[0].usage).toMatchObject({ idleDays: 5 });
});

test("keys of Azure resources are idle only if complete logs show no read of their vault secrets", async () => {
  const CREDENTIALS = "/api/automation/rotation/credentials";
  const { runId } = await post(`${CREDENTIALS}/discover`);
  const isOver = async () => (await service.admin("GET", `${CREDENTIALS}/runs/${runId}`)).body.finishedAt !== null;
  await vi.waitUntil(isOver, { timeout: 150_000, interval: 200 });
  const all = await service.listAll(CREDENTIALS);
  expect(all).toHaveLength(4);
  const isRead = ({ places }: { places: { secretName: string }[] }) =>
    places.some(({ secretName }) => secretName === READ_SECRET);
  expect(all.find(isRead).usage).toMatchObject({ idleDays: 2, lastReadAt: expect.any(String) });
  const idle = async (days: number) => await service.listAll(`${CREDENTIALS}?idle=${days}`);
  expect((await idle(2)).length).toBe(4);
  const six = await idle(6);
  expect([six.length, six.some(isRead)]).toEqual([3, false]);
  expect(six[0].usage).toMatchObject({ lastReadAt: null, idleDays: 6, blindSpots: ["heldCopies", "otherPlaces"] });
  expect(await idle(90)).toEqual([]);
  expect((await service.admin("GET", `${CREDENTIALS}/${six[0].credentialId}`)).body.usage).toEqual(six[0].usage);
});
