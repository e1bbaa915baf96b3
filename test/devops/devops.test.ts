import { appIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Devops as SimulatedDevops } from "simulated-cloud/devops/devops.ts";
import { TOKEN_MODES } from "simulated-cloud/devops/errors.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { variableGroupConsumers } from "../../shared/dependencies/consumers/devops.ts";
import { parseDevopsId } from "../../shared/dependencies/devops/ids.ts";
import { devopsSource } from "../../shared/dependencies/devops/source.ts";
import type { Edge } from "../../shared/dependencies/edge.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createDevopsClient, type DevopsClient } from "../../shared/devops/client.ts";
import { createConnectionProofs } from "../../shared/devops/connection-proofs.ts";
import { createDevops, type Devops } from "../../shared/devops/devops.ts";
import { replaceConnectionSecret, signInProblem } from "../../shared/devops/service-connections.ts";
import { hasSecretVariable, replaceVariable } from "../../shared/devops/variable-groups.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { keyText } from "../../shared/platform/storage/keys.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import type { PlannedConsumer } from "../../shared/rotation/consumer.ts";
import { configFor, useManagedIdentity } from "../azure/live-cloud.ts";
import { expectFailure, recordingLog, SHORT_WAITS } from "../azure/services.ts";
import { Service } from "../support/service.ts";
import { crashable, SimulatedCrash } from "../support/simulated-crash.ts";

// Tests of the Azure DevOps integration with a simulated organization. They cover its settings and connection test, the
// dependencies ("edges") that it reports, and the replacement of secrets in variable groups and service connections.

const SETTINGS = "/api/settings/integrations/devops";
/** Secret values in the simulated organization. No log line, row or reported item may contain them. */
const PLANTED_VALUES = ["copied-db-password", "https://hooks.acme.example/T0KEN", secretValueOf("Shop API", "current")];

const company: Company = {
  subscriptions: [{ name: "Shop", vaults: [{ name: "kv-shop", secrets: [{ name: "db-password" }] }] }],
  applications: [
    { name: "Shop API", secrets: [{ name: "current", expiresInDays: 90 }] },
    { name: "Other API", secrets: [{ name: "current", expiresInDays: 90 }] },
  ],
  devops: {
    organization: "acme",
    projects: [
      {
        name: "Shop",
        groups: [
          {
            name: "shop-prod",
            vault: "kv-shop",
            variables: { "db-password": { enabled: true }, "smtp-password": { enabled: false } },
            sharedWith: ["Website"],
          },
          {
            name: "shop-copies",
            variables: {
              DB_PASSWORD: { secret: "copied-db-password" },
              HOOK: { secret: "https://hooks.acme.example/T0KEN" },
              REGION: "westeurope",
              ["__proto__"]: "odd",
            },
            sharedWith: ["Website"],
          },
        ],
        connections: [
          // Connections with `secret` contain that secret of the application, so DevOps can sign in with them.
          { name: "deploy", application: "Shop API", secret: "current" },
          { name: "deploy-camel", application: "Shop API", secret: "current", camelCase: true },
          { name: "deploy-dead", application: "Shop API" },
          { name: "deploy-made", application: "Shop API", secret: "current", creationMode: "Automatic" },
          { name: "deploy-federated", application: "Shop API", signsIn: "federation" },
          { name: "deploy-certificate", application: "Shop API", signsIn: "certificate" },
          { name: "agents", application: "Shop API", signsIn: "managedIdentity" },
          { name: "source", application: "Shop API", type: "github", secret: "current" },
        ],
      },
      { name: "Docs" },
      { name: "Archive", rights: "view", groups: [{ name: "old", variables: { A: { secret: "a" } } }] },
      { name: "Website" },
      { name: "Vaulted", rights: "none", groups: [{ name: "hidden", vault: "kv-shop", variables: {} }] },
    ],
  },
};

let service: Service;
let devops: SimulatedDevops;
/** IDs of the organization's users, among them the service's identity. */
let members: string[];
/** A client of the organization, for calls that bypass the service. */
let client: DevopsClient;
/** The integration module in the test's process, on the service's storage account. */
let integration: Devops;
let tables: Tables;
const clock = { now: () => new Date() };
const log = recordingLog();

beforeAll(async () => {
  service = await Service.start({ company, shortWaits: true });
  ({ devops } = service.cloud.control);
  members = [...devops.members];
  await useManagedIdentity(service.cloud);
  const config = configFor(service.cloud);
  const randomness = systemRandomness();
  const parts = { identity: createIdentity(config), log, randomness, limits: SHORT_WAITS };
  client = createDevopsClient({ ...parts, address: `${config.AZURE_DEVOPS_ENDPOINT}/acme` });
  const vault = createServiceKeyVault({ config, ...parts })!;
  const keys = keyVaultRowKeys(vault, randomness);
  tables = createTables({ connectionString: service.azurite.connectionString() }, { keys });
  integration = createDevops({ ...parts, config, tables, clock, audit: { append: async () => {} } });
});
afterAll(() => service?.stop());
afterEach(() => {
  devops.set({ tokenMode: null, slowed: { seconds: 0, times: 0 }, members });
  service.cloud.control.clearFaults();
});

/** Returns true if the work ended with the simulated crash of its worker. Any other error fails the test. */
const crashed = (work: Promise<unknown>) =>
  work.then(
    () => false,
    (error: unknown) => {
      if (error instanceof SimulatedCrash) return true;
      throw error;
    },
  );

const projectId = (name: string) => devops.organization.project(name)!.id;
const configureUrl = (orgUrl: string | null = "https://dev.azure.com/acme") =>
  service.admin("PUT", SETTINGS, { orgUrl });

describe("the settings", () => {
  test("are turned off until an organization is configured", async () => {
    const { body } = await service.admin("GET", SETTINGS);
    expect(body).toMatchObject({ orgUrl: null, enabled: false, projectIds: [], updatedBy: null });
    expect((await service.admin("POST", `${SETTINGS}/test`)).status).toBe(409);
    expect((await service.admin("GET", `${SETTINGS}/projects`)).status).toBe(409);
    // The example of the API description, as /docs sends it.
    const { body: document } = await service.admin("GET", "/openapi.json");
    const { example } = document.paths[`${SETTINGS}/projects`].put.requestBody.content["application/json"];
    const chosen = await service.admin("PUT", `${SETTINGS}/projects`, example);
    expect([chosen.status, chosen.body.enabled]).toEqual([200, false]);
  });

  test("are changed with their ETag and recorded in the audit log", async () => {
    const configured = await configureUrl();
    expect(configured.body).toMatchObject({ orgUrl: "https://dev.azure.com/acme", enabled: true, updatedBy: "admin" });
    expect(configured.headers.get("etag")).toBe(configured.body.etag);
    const projectsChosen = await service.admin("PUT", `${SETTINGS}/projects`, {
      projectIds: ["Shop", "Shop", projectId("Docs")],
    });
    expect(projectsChosen.body.projectIds).toEqual(["Shop", projectId("Docs")]);
    const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
    const headers = { "If-Match": configured.body.etag };
    const stale = await service.call("PUT", SETTINGS, { token, headers, body: { orgUrl: null } });
    expect(stale.status).toBe(412);
    const turnedOff = await configureUrl(null);
    expect(turnedOff.body).toMatchObject({ orgUrl: null, enabled: false, projectIds: ["Shop", projectId("Docs")] });
    const { items } = (await service.admin("GET", "/audit/entries?event_type=devops.configured")).body;
    expect(items[0]).toMatchObject({
      outcome: "success",
      before: { orgUrl: "https://dev.azure.com/acme" },
      after: { orgUrl: null },
    });
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: [] });
  });

  test("reject URLs that do not belong to Azure DevOps", async () => {
    for (const orgUrl of ["https://dev.azure.com.evil.localhost/acme", "http://dev.azure.com/acme", ""]) {
      const { status, body } = await configureUrl(orgUrl);
      expect([orgUrl, status, body.errors?.[0].path]).toEqual([orgUrl, 400, "body.orgUrl"]);
    }
    expect((await service.admin("PUT", SETTINGS, {})).status).toBe(400);
  });

  test("are not used from a row that another program wrote", async () => {
    await configureUrl();
    const { TableClient } = await import("@azure/data-tables");
    const table = TableClient.fromConnectionString(service.azurite.connectionString(), "Devops", {
      allowInsecureConnection: true,
    });
    const row = await table.getEntity("devops", "settings");
    const tamperedRow = { ...row, partitionKey: "devops", rowKey: "settings", orgUrl: "https://dev.azure.com/mallory" };
    await table.updateEntity(tamperedRow, "Replace");
    service.cloud.control.resetCounts();
    expect((await service.admin("POST", `${SETTINGS}/test`)).status).toBe(503);
    expect(service.cloud.control.counts()["devops.connectionData"]).toBeUndefined();
    await table.updateEntity({ ...row, partitionKey: "devops", rowKey: "settings" }, "Replace");
  });
});

describe("the connection test", () => {
  test("returns how many groups and connections the identity can read and change in each project", async () => {
    await configureUrl();
    const { body } = await service.admin("POST", `${SETTINGS}/test`);
    const [objectId] = devops.members;
    expect(body).toMatchObject({ orgUrl: "https://dev.azure.com/acme", ok: false, identity: { id: objectId } });
    // biome-ignore lint/suspicious/noExplicitAny: the response has no type
    const rows = body.steps.map((step: any) => [
      step.step,
      step.project,
      step.ok,
      step.found,
      step.changeable,
      step.code,
    ]);
    expect(rows).toEqual([
      ["signIn", null, true, null, null, null],
      ["projects", null, true, 5, null, null],
      ["variableGroups", "Shop", true, 2, 2, null],
      ["serviceConnections", "Shop", true, 8, 8, null],
      ["variableGroups", "Docs", true, 0, 0, null],
      ["serviceConnections", "Docs", true, 0, 0, null],
      ["variableGroups", "Archive", true, 1, 0, null],
      ["serviceConnections", "Archive", true, 0, 0, null],
      ["variableGroups", "Website", true, 2, 2, null],
      ["serviceConnections", "Website", true, 0, 0, null],
      ["variableGroups", "Vaulted", false, null, null, "accessDenied"],
      ["serviceConnections", "Vaulted", false, null, null, "accessDenied"],
    ]);
  });

  test("names a project that the identity can't see", async () => {
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: ["docs", "Nowhere"] });
    const { body } = await service.admin("POST", `${SETTINGS}/test`);
    expect(body.steps.filter(({ ok }: { ok: boolean }) => !ok)).toMatchObject([
      { step: "project", project: "Nowhere" },
    ]);
    expect(body.steps.map(({ project }: { project: string }) => project)).toEqual([
      null,
      null,
      "Nowhere",
      "Docs",
      "Docs",
    ]);
    const listed = await service.admin("GET", `${SETTINGS}/projects?limit=2`);
    expect(listed.body).toMatchObject({
      total: 5,
      items: [
        { name: "Archive", selected: false },
        { name: "Docs", selected: true },
      ],
    });
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: [] });
  });

  test("names a missing organization, or one in which the identity is not a user", async () => {
    await configureUrl("https://mallory.visualstudio.com/");
    const missingOrganization = await service.admin("POST", `${SETTINGS}/test`);
    expect(missingOrganization.body).toMatchObject({
      ok: false,
      identity: null,
      steps: [{ step: "signIn", code: "notFound" }],
    });
    await configureUrl();
    devops.set({ members: [] });
    const { body } = await service.admin("POST", `${SETTINGS}/test`);
    expect(body).toMatchObject({ ok: false, steps: [{ step: "signIn", ok: false, code: "unauthorized" }] });
    expect(body.steps[0].remedy).toContain("as a user of the organization");
  });

  test.each([...TOKEN_MODES])("shows no text of DevOps' sign-in page (%s)", async (tokenMode) => {
    await configureUrl();
    devops.set({ tokenMode });
    const testResponse = await service.admin("POST", `${SETTINGS}/test`);
    expect(testResponse.body).toMatchObject({ ok: false, identity: null });
    expect(testResponse.body.steps).toMatchObject([{ step: "signIn", ok: false, code: "unauthorized" }]);
    const listed = await service.admin("GET", `${SETTINGS}/projects`);
    expect(listed.status).toBe(503);
    for (const { text } of [testResponse, listed]) expect(text).not.toMatch(/<html|<form|Anonymous|aaaaaaaa|_signin/i);
    expect(service.cloud.control.foreignRequests()).toEqual([]);
  });

  test("reports an invalid response as a failed sign-in", async () => {
    await configureUrl();
    for (const as of ["html", "truncated", "otherShape"] as const) {
      service.cloud.control.clearFaults();
      service.cloud.control.addFault({ match: { operation: "devops.*" }, action: { kind: "garbage", as } });
      const { body, text } = await service.admin("POST", `${SETTINGS}/test`);
      expect(body.steps).toMatchObject([
        { step: "signIn", ok: false, code: as === "html" ? "unauthorized" : "badResponse" },
      ]);
      expect(text).not.toMatch(/Please sign in|not a list/);
    }
  });
});

describe("the rate limit", () => {
  test("delays the next request as long as the headers of a successful response say", async () => {
    devops.set({ slowed: { seconds: 1, times: 1 } });
    service.cloud.control.resetCounts();
    await client.user();
    await client.user();
    // Times at which DevOps received the requests. 10 ms tolerance, because timers can fire early.
    const [first, second] = service.cloud.control.requests({ operation: "devops.connectionData" });
    expect(Date.parse(second!.at) - Date.parse(first!.at)).toBeGreaterThanOrEqual(990);
    // A separate client with the real time limits: 300 seconds are too long to wait, so the call fails.
    const unhurriedClient = createDevopsClient({
      address: `${configFor(service.cloud).AZURE_DEVOPS_ENDPOINT}/acme`,
      identity: createIdentity(configFor(service.cloud)),
      log,
      randomness: systemRandomness(),
    });
    devops.set({ slowed: { seconds: 300, times: 1 } });
    await unhurriedClient.user();
    expect(await expectFailure(unhurriedClient.user())).toMatchObject({ code: "throttled", retryAfterSeconds: 300 });
  });

  test("is reported as throttling when DevOps blocks requests", async () => {
    service.cloud.control.addFault({
      match: { operation: "devops.connectionData" },
      action: { kind: "throttle", retryAfterSeconds: 300 },
    });
    expect(await expectFailure(client.user())).toMatchObject({ code: "throttled", cloudCode: "TF400733" });
  });
});

describe("the organization as a source of dependencies", () => {
  const source = () => devopsSource({ devops: integration, tenantId: async () => service.cloud.app.tenantId });
  const read = async (project: string): Promise<ReadingItem[]> => {
    const reported: ReadingItem[] = [];
    for await (const item of source().read(projectId(project), {})) reported.push(item);
    return reported;
  };

  test("returns an edge for each linked secret and for each connection with a client secret", async () => {
    const reported = await read("Shop");
    const edges = reported.flatMap((item) => ("edges" in item ? item.edges : []));
    expect(
      edges.map(({ vaultName, name, resource, refresh, state }) => [
        resource.name,
        vaultName,
        name,
        refresh.how,
        state?.status,
      ]),
    ).toEqual([
      ["shop-prod", "kv-shop", "db-password", "automatic", undefined],
      ["shop-prod", "kv-shop", "smtp-password", "automatic", "Disabled"],
      ...["deploy", "deploy-camel", "deploy-dead"].map((name) => [
        name,
        `entra.${service.cloud.app.tenantId}`,
        appIdOf("Shop API"),
        "action",
        undefined,
      ]),
      ["deploy-made", `entra.${service.cloud.app.tenantId}`, appIdOf("Shop API"), "willBreak", undefined],
    ]);
    const withoutEdges = reported.flatMap((item) =>
      "edges" in item && item.edges.length === 0 ? [item.resource.name] : [],
    );
    expect(withoutEdges).toEqual(["shop-copies", "deploy-federated", "deploy-certificate", "agents", "source"]);
    for (const { resource } of edges)
      expect(parseDevopsId(resource.id)).toMatchObject({ organization: "acme", projectId: projectId("Shop") });
    expect(JSON.stringify(reported)).not.toMatch(new RegExp(PLANTED_VALUES.join("|")));
  });

  test("covers the chosen projects, by default all, and none while it is turned off", async () => {
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: ["Docs"] });
    expect(await source().units()).toEqual([projectId("Docs")]);
    await configureUrl(null);
    expect(await source().units()).toEqual([]);
    await configureUrl();
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: [] });
    expect(await source().units()).toHaveLength(5);
  });

  test("reports the scopes that it has no permission to read", async () => {
    expect(await read("Vaulted")).toMatchObject([
      { notSeen: { code: "accessDenied", scope: expect.stringMatching(/\/variablegroups$/) } },
      { notSeen: { code: "accessDenied", scope: expect.stringMatching(/\/serviceconnections$/) } },
    ]);
    // DevOps answers with its sign-in page and the status 203.
    devops.set({ tokenMode: "page203" });
    expect(await expectFailure(read("Shop"))).toMatchObject({ code: "unauthorized" });
  });
});

describe("a secret variable", () => {
  const place = (variable = "DB_PASSWORD") => {
    return { projectId: projectId("Shop"), groupId: devops.organization.groupNamed("shop-copies").id, variable };
  };
  const variableNames = () => Object.keys(devops.organization.groupNamed("shop-copies").variables);

  test("is replaced without a change of any other member", async () => {
    service.cloud.control.resetCounts();
    expect(await replaceVariable(client, place("db_password"), "new-value-1")).toEqual({ changedByOthers: [] });
    const group = devops.organization.groupNamed("shop-copies");
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-1");
    expect(devops.value("shop-copies", "HOOK")).toBe("https://hooks.acme.example/T0KEN");
    expect(variableNames()).toEqual(["DB_PASSWORD", "HOOK", "REGION", "__proto__"]);
    expect(group.projects.map(({ name }) => name)).toEqual(["Shop", "Website"]);
    const calls = service.cloud.control.requests({ host: "devops.localhost" });
    const operations = calls.map(({ operation }) => operation.replace("devops.", ""));
    // On a slow machine there are more reads in between: see "is read again if the write would come too late".
    expect(operations.slice(0, 2)).toEqual(["getVariableGroup", "getVariableGroup"]);
    expect(operations.slice(-3)).toEqual(["getVariableGroup", "putVariableGroup", "getVariableGroup"]);
    expect(operations.filter((operation) => operation === "putVariableGroup")).toHaveLength(1);
  });

  test("is not written if the group changes between the two reads", async () => {
    const { groupId } = place();
    devops.scheduleConcurrentChange("afterRead", groupId, () =>
      devops.organization.changeGroup("shop-copies", ({ variables }) => {
        variables.ADDED = { value: "x" };
      }),
    );
    const failure = await expectFailure(replaceVariable(client, place(), "new-value-2"));
    expect(failure).toMatchObject({ code: "conflict", message: expect.stringContaining("variables.ADDED") });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-1");
    // The next attempt reads the changed group and succeeds.
    expect(await replaceVariable(client, place(), "new-value-2")).toEqual({ changedByOthers: [] });
    expect(variableNames()).toContain("ADDED");
  });

  test("is replaced, and the result names what others changed at the same time", async () => {
    const { groupId } = place();
    const change = (edit: Parameters<typeof devops.organization.changeGroup>[1]) =>
      devops.scheduleConcurrentChange("afterWrite", groupId, () =>
        devops.organization.changeGroup("shop-copies", edit),
      );
    change(({ variables }) => {
      delete variables.ADDED;
    });
    expect(await replaceVariable(client, place(), "new-value-3")).toEqual({ changedByOthers: ["variables.ADDED"] });
    change(({ variables }) => {
      variables.HOOK!.value = "theirs";
    });
    expect(await replaceVariable(client, place(), "new-value-4")).toEqual({
      changedByOthers: ["a value that can't be read"],
    });
    expect(devops.value("shop-copies", "HOOK")).toBe("theirs");
  });

  test("is not written a second time automatically if the response is lost", async () => {
    service.cloud.control.addFault({
      match: { operation: "devops.putVariableGroup" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    service.cloud.control.resetCounts();
    expect(await expectFailure(replaceVariable(client, place(), "new-value-5"))).toMatchObject({
      code: "unreachable",
      unclear: true,
    });
    expect(service.cloud.control.counts()["devops.putVariableGroup"]).toBe(1);
    expect(await replaceVariable(client, place(), "new-value-5")).toEqual({ changedByOthers: [] });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-5");
  });

  test("can be replaced by another worker after a crash at any call", async () => {
    const namesBefore = variableNames();
    const crashes = { before: 0, after: 0 };
    for (const when of ["before", "after"] as const) {
      for (let crashAt = 1; ; crashAt++) {
        const value = `new-value-${when}-${crashAt}`;
        const hasCrashed = await crashed(
          replaceVariable(crashable(client, { taken: 0, crashAt, when }), place(), value),
        );
        if (!hasCrashed) break;
        crashes[when]++;
        expect(await replaceVariable(client, place(), value)).toEqual({ changedByOthers: [] });
        expect([devops.value("shop-copies", "DB_PASSWORD"), variableNames()]).toEqual([value, namesBefore]);
      }
    }
    // Each replacement makes four calls: two reads, the write, and the final read.
    expect(crashes).toEqual({ before: 4, after: 4 });
  });

  test("is read again if the write would come too late", async () => {
    const slowClient = { ...client };
    let writes = 0;
    // The first two writes have a deadline in the past, as on a machine that paused after the read.
    slowClient.putVariableGroup = (group, notAfter) =>
      client.putVariableGroup(group, ++writes < 3 ? Date.now() - 1 : notAfter);
    service.cloud.control.resetCounts();
    expect(await replaceVariable(slowClient, place(), "new-value-6")).toEqual({ changedByOthers: [] });
    // The first read, one read before each of the three writes, and the final read.
    expect(service.cloud.control.counts()).toMatchObject({
      "devops.getVariableGroup": 5,
      "devops.putVariableGroup": 1,
    });
  });

  test("can't be replaced if it is not a secret or the identity can't change the group", async () => {
    const linkedGroupId = devops.organization.groupNamed("shop-prod").id;
    expect(await expectFailure(replaceVariable(client, place("REGION"), "x"))).toMatchObject({ code: "refused" });
    expect(await expectFailure(replaceVariable(client, place("NONE"), "x"))).toMatchObject({ code: "refused" });
    expect(
      await expectFailure(replaceVariable(client, { ...place("db-password"), groupId: linkedGroupId }, "x")),
    ).toMatchObject({
      code: "refused",
    });
    expect(await expectFailure(replaceVariable(client, { ...place(), groupId: 999 }, "x"))).toMatchObject({
      code: "notFound",
    });
    const variables = [place(), place("REGION"), place("NONE"), { ...place("db-password"), groupId: linkedGroupId }];
    expect(await Promise.all(variables.map((variable) => hasSecretVariable(client, variable)))).toEqual([
      true,
      false,
      false,
      false,
    ]);
    const readOnlyVariable = {
      projectId: projectId("Archive"),
      groupId: devops.organization.groupNamed("old").id,
      variable: "A",
    };
    expect(await expectFailure(replaceVariable(client, readOnlyVariable, "x"))).toMatchObject({ code: "accessDenied" });
  });
});

/** Returns the reported edges of one resource of the project Shop: which secret it uses, and how it gets a new version. */
async function edgesOf(resourceName: string): Promise<Edge[]> {
  const source = devopsSource({ devops: integration, tenantId: async () => service.cloud.app.tenantId });
  const edges: Edge[] = [];
  for await (const reported of source.read(projectId("Shop"), {}))
    if ("edges" in reported) edges.push(...reported.edges);
  return edges.filter(({ resource }) => resource.name === resourceName);
}

test("a variable group that is linked to a vault has the new version of a linked secret at once", async () => {
  const [edge] = await edgesOf("shop-prod");
  const consumer: PlannedConsumer = {
    ...edge!.resource,
    vaultName: "KV-Shop",
    secretName: "DB-password",
    evidence: edge!.evidence,
    how: "automatic",
    slowestSeconds: 0,
    blast: 1,
  };
  const { check } = variableGroupConsumers({ devops: integration });
  const checkVersion = async (change: Partial<PlannedConsumer>) =>
    await check({ ...consumer, ...change }, "1", new Date());
  expect(await checkVersion({})).toEqual({ holds: "new" });
  expect(await checkVersion({ secretName: "api-key" })).toEqual({ holds: "gone" });
  expect(await checkVersion({ vaultName: "kv-other" })).toEqual({ holds: "gone" });
});

// A copy is a secret variable with the value of a vault's secret. DevOps does not show its value, so an administrator names
// both.
describe("a copy that an administrator configures", () => {
  const copy = (variable = "DB_PASSWORD") => ({
    projectId: projectId("Shop").toUpperCase(),
    groupId: devops.organization.groupNamed("shop-copies").id,
    variable,
    vaultName: "kv-shop",
    secretName: "db-password",
  });
  const configureCopies = (copies: object[]) => service.admin("PUT", `${SETTINGS}/copies`, { copies });

  test("is rejected for the service's own vault, or if it is configured twice", async () => {
    expect((await configureCopies([{ ...copy(), vaultName: "KV-Lifecycle-Service" }])).body.code).toBe("serviceVault");
    expect((await configureCopies([copy(), copy("db_password")])).body.errors[0].path).toBe("body.copies.1");
    expect((await configureCopies([{ ...copy(), groupId: 0 }])).status).toBe(400);
  });

  test("is refreshed with the new value until the configuration no longer contains it", async () => {
    expect((await configureCopies([copy(), copy("REGION"), copy("GONE")])).body.copies).toHaveLength(3);
    const edges = await edgesOf("shop-copies");
    expect(edges).toMatchObject([
      { vaultName: "kv-shop", name: "db-password", evidence: "DB_PASSWORD", copy: true, refresh: { how: "action" } },
    ]);
    const consumer: PlannedConsumer = {
      ...edges[0]!.resource,
      vaultName: "kv-shop",
      secretName: "db-password",
      evidence: "DB_PASSWORD",
      how: "action",
      slowestSeconds: 0,
      blast: 1,
    };
    const newVersion = { version: "1", value: async () => "new-value-7", restart: false };
    await configureCopies([copy()]);
    const { refresh, check } = variableGroupConsumers({ devops: integration });
    expect(await refresh!(consumer, newVersion)).toEqual({ changedMeanwhile: [] });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-7");
    expect(await check(consumer, "1", new Date())).toEqual({ holds: "new" });
    // DB_PASSWORD is replaced, then REGION is rejected because it is not a secret. The failure is "unclear": a value was
    // written.
    await configureCopies([copy(), copy("REGION")]);
    const partialFailure = await expectFailure(refresh!(consumer, { ...newVersion, value: async () => "new-value-8" }));
    expect(partialFailure).toMatchObject({ unclear: true });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-8");
    await configureCopies([]);
    const failure = await expectFailure(refresh!(consumer, { ...newVersion, value: async () => "never-sent" }));
    expect(failure).toMatchObject({ code: "refused", unclear: false });
  });
});

describe("a service connection's secret", () => {
  const place = (name: string) => ({
    projectId: projectId("Shop"),
    connectionId: devops.organization.connectionNamed(name).id,
  });
  /** The application as which a connection signs in. */
  const signInAs = (application = "Shop API") => ({
    appId: appIdOf(application),
    tenantId: service.cloud.app.tenantId,
  });
  const replace = async (name: string, application: ReturnType<typeof signInAs>, secret: string) =>
    (await integration.organization())!.replaceConnectionSecret(place(name), application, secret);
  /** Adds a client secret to the application and returns its value. */
  const addClientSecret = (name: string) => {
    const { directory } = service.cloud.control;
    const { value } = directory.addSecret(appIdOf("Shop API"), { name, expiresInDays: 90 });
    return value;
  };

  test.each(["deploy", "deploy-camel"])("is replaced by a secret with which DevOps can sign in (%s)", async (name) => {
    const secret = addClientSecret(name);
    expect(await replace(name, signInAs(), secret)).toEqual({ changedByOthers: [] });
    expect(devops.value(name)).toBe(secret);
    const connection = (await client.connection(place(name).projectId, place(name).connectionId))!;
    expect(await client.testConnection(projectId("Shop"), connection)).toBe(true);
    expect(JSON.stringify(connection)).not.toContain(secret);
  });

  test("is replaced in a connection with the older address of Azure Resource Manager", async () => {
    const { url } = devops.organization.connectionNamed("deploy");
    devops.organization.changeConnection("deploy", (connection) =>
      Object.assign(connection, { url: "https://management.core.windows.net/" }),
    );
    const secret = addClientSecret("older");
    expect(await replace("deploy", signInAs(), secret)).toEqual({ changedByOthers: [] });
    expect(devops.value("deploy")).toBe(secret);
    devops.organization.changeConnection("deploy", (connection) => Object.assign(connection, { url }));
  });

  test("is written only to connections that sign in as this application", async () => {
    service.cloud.control.resetCounts();
    const cases: [string, ReturnType<typeof signInAs>, RegExp][] = [
      ["deploy-dead", signInAs(), /does not currently sign in/],
      ["deploy-made", signInAs(), /Azure DevOps created it/],
      ["deploy-federated", signInAs(), /no client secret/],
      ["deploy-certificate", signInAs(), /no client secret/],
      ["deploy", signInAs("Other API"), /not belong/],
      ["deploy", { ...signInAs(), tenantId: appIdOf("x") }, /not belong/],
      ["source", signInAs(), /not belong/],
    ];
    for (const [name, application, message] of cases) {
      const failure = await expectFailure(replace(name, application, "never-sent"));
      expect([name, failure.code, failure.message]).toEqual([name, "refused", expect.stringMatching(message)]);
    }
    for (const change of [
      { url: "https://management.elsewhere.example/" },
      { data: { environment: "AzureStack" } },
      { data: { environment: "AzureCloud", environmentAuthorityUrl: "https://login.elsewhere.example/" } },
    ]) {
      const original = { ...devops.organization.connectionNamed("deploy") };
      devops.organization.changeConnection("deploy", (connection) => Object.assign(connection, change));
      expect(await expectFailure(replace("deploy", signInAs(), "never-sent"))).toMatchObject({ code: "refused" });
      devops.organization.changeConnection("deploy", (connection) => Object.assign(connection, original));
    }
    expect(service.cloud.control.counts()["devops.putConnection"]).toBeUndefined();
  });

  test("can be replaced by another worker after a crash at any call", async () => {
    const resourceManagers = ["https://management.azure.com"];
    const secret = addClientSecret("crashes");
    const { data, url } = structuredClone(devops.organization.connectionNamed("deploy"));
    const crashes = { before: 0, after: 0 };
    for (const when of ["before", "after"] as const) {
      for (let crashAt = 1; ; crashAt++) {
        const steps = { taken: 0, crashAt, when };
        // A proof is a stored row: the connection has signed in as this application. A new address has no proofs yet.
        const proofs = createConnectionProofs({ tables, clock }).inOrganization(`https://${when}-${crashAt}.example`);
        const crashing = { client: crashable(client, steps), proofs: crashable(proofs, steps), resourceManagers };
        const hasCrashed = await crashed(replaceConnectionSecret(crashing, place("deploy"), signInAs(), secret));
        if (!hasCrashed) break;
        crashes[when]++;
        const withoutCrash = { client, proofs, resourceManagers };
        expect(await replaceConnectionSecret(withoutCrash, place("deploy"), signInAs(), secret)).toEqual({
          changedByOthers: [],
        });
        expect(devops.value("deploy")).toBe(secret);
        expect(devops.organization.connectionNamed("deploy")).toMatchObject({ data, url });
      }
    }
    // Eight calls: a read, the search for a proof, the test sign-in, the storage of the proof, two reads, the write, and the
    // final read.
    expect(crashes).toEqual({ before: 8, after: 8 });
  });

  test("has a proof for 60 days that its connection signed in as the application", async () => {
    let nowMs = Date.now();
    const testClock = { now: () => new Date(nowMs) };
    const proofs = createConnectionProofs({ tables, clock: testClock }).inOrganization("https://dated.example");
    const hasProof = (application = signInAs()) => proofs.isProven(place("deploy"), application);
    await proofs.store(place("deploy"), signInAs());
    nowMs += 60 * DAY_MS - 1;
    expect([await hasProof(), await hasProof(signInAs("Other API"))]).toEqual([true, false]);
    nowMs += 1;
    expect(await hasProof()).toBe(false);
  });

  test("has no proof if another program wrote its row, so that it must sign in again", async () => {
    const proofs = createConnectionProofs({ tables, clock }).inOrganization("https://planted.example");
    await proofs.store(place("deploy"), signInAs());
    expect(await proofs.exists(place("deploy"), signInAs())).toBe(true);
    const { projectId, connectionId } = place("deploy");
    const Planted = entity("Devops", z.object({ provedAt: z.string() }));
    const row = `${projectId}|${connectionId}`.toLowerCase();
    await tables.put(Planted, `proofs|${keyText("https://planted.example")}`, row, { provedAt: "2999-01-01" });
    expect(await proofs.exists(place("deploy"), signInAs())).toBe(false);
    expect(await proofs.isProven(place("deploy"), signInAs())).toBe(false);
  });

  test("can be restored if the new secret does not work", async () => {
    const workingSecret = devops.value("deploy")!;
    await replace("deploy", signInAs(), "wrong-secret");
    const { signsIn } = (await integration.organization())!;
    expect(await signsIn(place("deploy"), signInAs())).toBe(false);
    await replace("deploy", signInAs(), workingSecret);
    expect(await signsIn(place("deploy"), signInAs())).toBe(true);
    expect(await signsIn(place("deploy-federated"), signInAs())).toBeUndefined();
    const missing = { ...place("deploy"), connectionId: appIdOf("none") };
    expect(await expectFailure(signsIn(missing, signInAs()))).toMatchObject({ code: "notFound" });
  });

  test("says why its connection does not sign in before a rotation, without a call to an address of the creator's choice", async () => {
    const { signInProblem: problemOf } = (await integration.organization())!;
    const unknown = { ...place("deploy"), connectionId: appIdOf("none") };
    expect([
      await problemOf(place("deploy"), signInAs()),
      await problemOf(place("deploy-dead"), signInAs()),
      await problemOf(place("deploy-federated"), signInAs()),
      await problemOf(place("deploy"), signInAs("Other API")),
      await problemOf(unknown, signInAs()),
    ]).toEqual([
      undefined,
      "Azure DevOps can't sign in with the connection.",
      undefined,
      undefined,
      "It no longer exists, or the service's identity has no access to it.",
    ]);
    // A connection that signed in before may only be hidden for a while, so it still counts.
    const proofs = createConnectionProofs({ tables, clock }).inOrganization("https://hidden.example");
    await proofs.store(unknown, signInAs());
    const resourceManagers = ["https://management.azure.com"];
    expect(await signInProblem({ client, proofs, resourceManagers }, unknown, signInAs())).toBeUndefined();
    const original = { ...devops.organization.connectionNamed("deploy-dead") };
    devops.organization.changeConnection("deploy-dead", (connection) =>
      Object.assign(connection, { url: "https://management.elsewhere.example/" }),
    );
    service.cloud.control.resetCounts();
    expect(await problemOf(place("deploy-dead"), signInAs())).toBe(
      "Its address is not that of Azure Resource Manager.",
    );
    expect(Object.keys(service.cloud.control.counts()).filter((call) => /proxy|test/i.test(call))).toEqual([]);
    devops.organization.changeConnection("deploy-dead", (connection) => Object.assign(connection, original));
  });

  test("is replaced even if DevOps updates the connection's state between two reads", async () => {
    let readCount = 0;
    const clientWithChangingState: DevopsClient = {
      ...client,
      async connection(...args) {
        const changingState = {
          isReady: readCount++ % 2 === 0,
          isOutdated: readCount % 2 === 0,
          operationStatus: { state: `${readCount}` },
        };
        return { ...(await client.connection(...args))!, ...changingState };
      },
    };
    const proofs = createConnectionProofs({ tables, clock }).inOrganization("https://changing.example");
    const resourceManagers = ["https://management.azure.com"];
    const secret = addClientSecret("changing");
    const connections = { client: clientWithChangingState, proofs, resourceManagers };
    expect(await replaceConnectionSecret(connections, place("deploy"), signInAs(), secret)).toEqual({
      changedByOthers: [],
    });
    expect(devops.value("deploy")).toBe(secret);
  });

  test("is not written over another change", async () => {
    const { connectionId } = place("deploy");
    const secretBefore = devops.value("deploy");
    const renameSubscription = (subscriptionName: string) => () =>
      devops.organization.changeConnection("deploy", (connection) => {
        connection.data = { ...connection.data, subscriptionName };
      });
    // The first read belongs to the connection test, so the change comes after the second read.
    devops.scheduleConcurrentChange("afterRead", connectionId, () =>
      devops.scheduleConcurrentChange("afterRead", connectionId, renameSubscription("Theirs")),
    );
    expect(await expectFailure(replace("deploy", signInAs(), "s"))).toMatchObject({
      code: "conflict",
    });
    expect(devops.value("deploy")).toBe(secretBefore);
    // A change after the write is named in the result.
    devops.scheduleConcurrentChange("afterWrite", connectionId, renameSubscription("Again"));
    const secret = addClientSecret("after");
    expect(await replace("deploy", signInAs(), secret)).toEqual({
      changedByOthers: ["data.subscriptionName"],
    });
  });
});

test("no secret value is in a log line or a row", async () => {
  const { TableClient } = await import("@azure/data-tables");
  const rows: unknown[] = [];
  const connection = service.azurite.connectionString();
  for (const name of ["Devops", "AuditEntries"]) {
    const table = TableClient.fromConnectionString(connection, name, { allowInsecureConnection: true });
    for await (const row of table.listEntities()) rows.push(row);
  }
  const values = [...PLANTED_VALUES, "new-value", "theirs", "never-sent", devops.value("deploy")!];
  const linesAndRows = JSON.stringify([log.lines, service.hosts.map(({ lines }) => lines), rows]);
  expect(rows.length).toBeGreaterThan(1);
  for (const value of values) expect(linesAndRows).not.toContain(value);
  expect(linesAndRows).not.toMatch(/Bearer ey|eyJ0eXAiOiJKV1Qi/);
});
