import { appIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Devops as StandIn } from "simulated-cloud/devops/devops.ts";
import { TOKEN_MODES } from "simulated-cloud/devops/errors.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { variableGroupConsumers } from "../../shared/dependencies/consumers/devops.ts";
import { devopsPlace } from "../../shared/dependencies/devops/ids.ts";
import { devopsSource } from "../../shared/dependencies/devops/source.ts";
import type { Edge } from "../../shared/dependencies/edge.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createDevopsClient, type DevopsClient } from "../../shared/devops/client.ts";
import { createConnectionProofs } from "../../shared/devops/connection-proofs.ts";
import { createDevops, type Devops } from "../../shared/devops/devops.ts";
import { replaceConnectionSecret } from "../../shared/devops/service-connections.ts";
import { hasSecretVariable, replaceVariable } from "../../shared/devops/variable-groups.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import type { PlannedConsumer } from "../../shared/rotation/consumer.ts";
import { configIn, enter } from "../azure/live-cloud.ts";
import { failureOf, IMPATIENT, recordingLog } from "../azure/services.ts";
import { Service } from "../support/service.ts";
import { crashable, SimulatedCrash } from "../support/simulated-crash.ts";

const SETTINGS = "/api/settings/integrations/devops";
const PLANTED = ["copied-db-password", "https://hooks.acme.example/T0KEN", secretValueOf("Shop API", "current")];

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
let devops: StandIn;
/** A user of the organization. */
let members: string[];
let client: DevopsClient;
/** The integration as another instance in this process. */
let fixture: Devops;
let tables: Tables;
const clock = { now: () => new Date() };
const log = recordingLog();

beforeAll(async () => {
  service = await Service.start({ company, shortWaits: true });
  ({ devops } = service.cloud.control);
  members = [...devops.members];
  await enter(service.cloud);
  const config = configIn(service.cloud);
  const randomness = systemRandomness();
  const parts = { identity: createIdentity(config), log, randomness, limits: IMPATIENT };
  client = createDevopsClient({ ...parts, address: `${config.AZURE_DEVOPS_ENDPOINT}/acme` });
  const vault = createServiceKeyVault({ config, ...parts })!;
  const keys = keyVaultRowKeys(vault, randomness);
  tables = createTables({ connectionString: service.azurite.connectionString() }, { keys });
  fixture = createDevops({ ...parts, config, tables, clock, audit: { append: async () => {} } });
});
afterAll(() => service?.stop());
afterEach(() => {
  devops.set({ tokenMode: null, slowed: { seconds: 0, times: 0 }, members });
  service.cloud.control.clearFaults();
});

/** Returns true if the work ended with the simulated crash of its worker. Any other error fails the test. */
const crashOf = (work: Promise<unknown>) =>
  work.then(
    () => false,
    (error: unknown) => {
      if (error instanceof SimulatedCrash) return true;
      throw error;
    },
  );

const projectId = (name: string) => devops.organization.project(name)!.id;
const configure = (orgUrl: string | null = "https://dev.azure.com/acme") => service.admin("PUT", SETTINGS, { orgUrl });

describe("the settings", () => {
  test("are turned off until the organization is configured", async () => {
    const { body } = await service.admin("GET", SETTINGS);
    expect(body).toMatchObject({ orgUrl: null, enabled: false, projectIds: [], updatedBy: null });
    expect((await service.admin("POST", `${SETTINGS}/test`)).status).toBe(409);
    expect((await service.admin("GET", `${SETTINGS}/projects`)).status).toBe(409);
  });

  test("are changed with their ETag, recorded in the audit log, and turned off by null", async () => {
    const first = await configure();
    expect(first.body).toMatchObject({ orgUrl: "https://dev.azure.com/acme", enabled: true, updatedBy: "admin" });
    expect(first.headers.get("etag")).toBe(first.body.etag);
    const chosen = await service.admin("PUT", `${SETTINGS}/projects`, {
      projectIds: ["Shop", "Shop", projectId("Docs")],
    });
    expect(chosen.body.projectIds).toEqual(["Shop", projectId("Docs")]);
    const token = await service.signIn({ username: "admin", password: "correct-horse-battery" });
    const headers = { "If-Match": first.body.etag };
    const stale = await service.call("PUT", SETTINGS, { token, headers, body: { orgUrl: null } });
    expect(stale.status).toBe(412);
    const off = await configure(null);
    expect(off.body).toMatchObject({ orgUrl: null, enabled: false, projectIds: ["Shop", projectId("Docs")] });
    const { items } = (await service.admin("GET", "/audit/entries?event_type=devops.configured")).body;
    expect(items[0]).toMatchObject({
      outcome: "success",
      before: { orgUrl: "https://dev.azure.com/acme" },
      after: { orgUrl: null },
    });
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: [] });
  });

  test("reject URLs that are not of Azure DevOps", async () => {
    for (const orgUrl of ["https://dev.azure.com.evil.localhost/acme", "http://dev.azure.com/acme", ""]) {
      const { status, body } = await configure(orgUrl);
      expect([orgUrl, status, body.errors?.[0].path]).toEqual([orgUrl, 400, "body.orgUrl"]);
    }
    expect((await service.admin("PUT", SETTINGS, {})).status).toBe(400);
  });

  test("in a row that someone else wrote are not trusted", async () => {
    await configure();
    const { TableClient } = await import("@azure/data-tables");
    const table = TableClient.fromConnectionString(service.azurite.connectionString(), "Devops", {
      allowInsecureConnection: true,
    });
    const row = await table.getEntity("devops", "settings");
    const theirs = { ...row, partitionKey: "devops", rowKey: "settings", orgUrl: "https://dev.azure.com/mallory" };
    await table.updateEntity(theirs, "Replace");
    service.cloud.control.resetCounts();
    expect((await service.admin("POST", `${SETTINGS}/test`)).status).toBe(500);
    expect(service.cloud.control.counts()["devops.connectionData"]).toBeUndefined();
    await table.updateEntity({ ...row, partitionKey: "devops", rowKey: "settings" }, "Replace");
  });
});

describe("the connection test", () => {
  test("returns what the identity can see and change in each project", async () => {
    await configure();
    const { body } = await service.admin("POST", `${SETTINGS}/test`);
    const { objectId } = { objectId: [...devops.members][0] };
    expect(body).toMatchObject({ orgUrl: "https://dev.azure.com/acme", ok: false, identity: { id: objectId } });
    // biome-ignore lint/suspicious/noExplicitAny: as it is answered
    const rows = body.steps.map((one: any) => [one.step, one.project, one.ok, one.found, one.changeable, one.code]);
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

  test("names a missing organization, and one in which the identity is not a user", async () => {
    await configure("https://mallory.visualstudio.com/");
    const other = await service.admin("POST", `${SETTINGS}/test`);
    expect(other.body).toMatchObject({ ok: false, identity: null, steps: [{ step: "signIn", code: "notFound" }] });
    await configure();
    devops.set({ members: [] });
    const { body } = await service.admin("POST", `${SETTINGS}/test`);
    expect(body).toMatchObject({ ok: false, steps: [{ step: "signIn", ok: false, code: "unauthorized" }] });
    expect(body.steps[0].remedy).toContain("as a user of the organization");
  });

  test.each([...TOKEN_MODES])("shows no text of DevOps' sign-in page (%s)", async (tokenMode) => {
    await configure();
    devops.set({ tokenMode });
    const tried = await service.admin("POST", `${SETTINGS}/test`);
    expect(tried.body).toMatchObject({ ok: false, identity: null });
    expect(tried.body.steps).toMatchObject([{ step: "signIn", ok: false, code: "unauthorized" }]);
    const listed = await service.admin("GET", `${SETTINGS}/projects`);
    expect(listed.status).toBe(503);
    for (const { text } of [tried, listed]) expect(text).not.toMatch(/<html|<form|Anonymous|aaaaaaaa|_signin/i);
    expect(service.cloud.control.foreignRequests()).toEqual([]);
  });

  test("handles an invalid response as no response", async () => {
    await configure();
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
  test("follows the headers of DevOps, even of successful responses", async () => {
    devops.set({ slowed: { seconds: 1, times: 1 } });
    service.cloud.control.resetCounts();
    await client.user();
    await client.user();
    // Times as DevOps saw them, with tolerance for early timers.
    const [first, second] = service.cloud.control.requests({ operation: "devops.connectionData" });
    expect(Date.parse(second!.at) - Date.parse(first!.at)).toBeGreaterThanOrEqual(990);
    // A separate client, because the wait is too long for a test.
    const other = createDevopsClient({
      address: `${configIn(service.cloud).AZURE_DEVOPS_ENDPOINT}/acme`,
      identity: createIdentity(configIn(service.cloud)),
      log,
      randomness: systemRandomness(),
    });
    devops.set({ slowed: { seconds: 300, times: 1 } });
    await other.user();
    expect(await failureOf(other.user())).toMatchObject({ code: "throttled", retryAfterSeconds: 300 });
  });

  test("is respected when requests are blocked", async () => {
    service.cloud.control.addFault({
      match: { operation: "devops.connectionData" },
      action: { kind: "throttle", retryAfterSeconds: 300 },
    });
    expect(await failureOf(client.user())).toMatchObject({ code: "throttled", cloudCode: "TF400733" });
  });
});

describe("as a source of dependencies", () => {
  const source = () => devopsSource({ devops: fixture, tenantId: async () => service.cloud.app.tenantId });
  const read = async (project: string): Promise<ReadingItem[]> => {
    const reported: ReadingItem[] = [];
    for await (const one of source().read(projectId(project), {})) reported.push(one);
    return reported;
  };

  test("returns linked groups and connections with a client secret, and nothing else", async () => {
    const reported = await read("Shop");
    const edges = reported.flatMap((one) => ("edges" in one ? one.edges : []));
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
    const without = reported.flatMap((one) => ("edges" in one && one.edges.length === 0 ? [one.resource.name] : []));
    expect(without).toEqual(["shop-copies", "deploy-federated", "deploy-certificate", "agents", "source"]);
    for (const { resource } of edges)
      expect(devopsPlace(resource.id)).toMatchObject({ organization: "acme", projectId: projectId("Shop") });
    expect(JSON.stringify(reported)).not.toMatch(new RegExp(PLANTED.join("|")));
  });

  test("covers the chosen projects, and none while it is turned off", async () => {
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: ["Docs"] });
    expect(await source().units()).toEqual([projectId("Docs")]);
    await configure(null);
    expect(await source().units()).toEqual([]);
    await configure();
    await service.admin("PUT", `${SETTINGS}/projects`, { projectIds: [] });
    expect(await source().units()).toHaveLength(5);
  });

  test("lists items that it has no permission to read", async () => {
    expect(await read("Vaulted")).toMatchObject([
      { notSeen: { code: "accessDenied", scope: expect.stringMatching(/\/variablegroups$/) } },
      { notSeen: { code: "accessDenied", scope: expect.stringMatching(/\/serviceconnections$/) } },
    ]);
    devops.set({ tokenMode: "page203" });
    expect(await failureOf(read("Shop"))).toMatchObject({ code: "unauthorized" });
  });
});

describe("a secret variable", () => {
  const place = (variable = "DB_PASSWORD") => {
    return { projectId: projectId("Shop"), groupId: devops.organization.groupNamed("shop-copies").id, variable };
  };
  const names = () => Object.keys(devops.organization.groupNamed("shop-copies").variables);

  test("is replaced without a change of any other member, right after a second read", async () => {
    service.cloud.control.resetCounts();
    expect(await replaceVariable(client, place("db_password"), "new-value-1")).toEqual({ meanwhile: [] });
    const group = devops.organization.groupNamed("shop-copies");
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-1");
    expect(devops.value("shop-copies", "HOOK")).toBe("https://hooks.acme.example/T0KEN");
    expect(names()).toEqual(["DB_PASSWORD", "HOOK", "REGION", "__proto__"]);
    expect(group.projects.map(({ name }) => name)).toEqual(["Shop", "Website"]);
    const calls = service.cloud.control.requests({ host: "devops.localhost" });
    const made = calls.map(({ operation }) => operation.replace("devops.", ""));
    // A slow machine reads more often before: see "is read again if the write would come too late".
    expect(made.slice(0, 2)).toEqual(["getVariableGroup", "getVariableGroup"]);
    expect(made.slice(-3)).toEqual(["getVariableGroup", "putVariableGroup", "getVariableGroup"]);
    expect(made.filter((one) => one === "putVariableGroup")).toHaveLength(1);
  });

  test("is not written if someone else changes the group before", async () => {
    const { groupId } = place();
    devops.meanwhile("afterRead", groupId, () =>
      devops.organization.changeGroup("shop-copies", ({ variables }) => {
        variables.ADDED = { value: "x" };
      }),
    );
    const failure = await failureOf(replaceVariable(client, place(), "new-value-2"));
    expect(failure).toMatchObject({ code: "conflict", message: expect.stringContaining("variables.ADDED") });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-1");
    // The next attempt is based on the present state.
    expect(await replaceVariable(client, place(), "new-value-2")).toEqual({ meanwhile: [] });
    expect(names()).toContain("ADDED");
  });

  test("names changes of others after the write", async () => {
    const { groupId } = place();
    const change = (edit: Parameters<typeof devops.organization.changeGroup>[1]) =>
      devops.meanwhile("afterWrite", groupId, () => devops.organization.changeGroup("shop-copies", edit));
    change(({ variables }) => {
      delete variables.ADDED;
    });
    expect(await replaceVariable(client, place(), "new-value-3")).toEqual({ meanwhile: ["variables.ADDED"] });
    change(({ variables }) => {
      variables.HOOK!.value = "theirs";
    });
    expect(await replaceVariable(client, place(), "new-value-4")).toEqual({
      meanwhile: ["a value that can't be read"],
    });
    expect(devops.value("shop-copies", "HOOK")).toBe("theirs");
  });

  test("is written once, even if the response is lost, and can be written again", async () => {
    service.cloud.control.addFault({
      match: { operation: "devops.putVariableGroup" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    service.cloud.control.resetCounts();
    expect(await failureOf(replaceVariable(client, place(), "new-value-5"))).toMatchObject({
      code: "unreachable",
      unclear: true,
    });
    expect(service.cloud.control.counts()["devops.putVariableGroup"]).toBe(1);
    expect(await replaceVariable(client, place(), "new-value-5")).toEqual({ meanwhile: [] });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-5");
  });

  test("is correct after a worker crashed at any of its calls", async () => {
    const before = names();
    const tried = { before: 0, after: 0 };
    for (const when of ["before", "after"] as const) {
      for (let crashAt = 1; ; crashAt++) {
        const value = `new-value-${when}-${crashAt}`;
        const died = await crashOf(replaceVariable(crashable(client, { taken: 0, crashAt, when }), place(), value));
        if (!died) break;
        tried[when]++;
        expect(await replaceVariable(client, place(), value)).toEqual({ meanwhile: [] });
        expect([devops.value("shop-copies", "DB_PASSWORD"), names()]).toEqual([value, before]);
      }
    }
    expect(tried).toEqual({ before: 4, after: 4 });
  });

  test("is read again if the write would come too late", async () => {
    const slow = { ...client };
    let writes = 0;
    slow.putVariableGroup = (group, notAfter) =>
      client.putVariableGroup(group, ++writes < 3 ? Date.now() - 1 : notAfter);
    service.cloud.control.resetCounts();
    expect(await replaceVariable(slow, place(), "new-value-6")).toEqual({ meanwhile: [] });
    expect(service.cloud.control.counts()).toMatchObject({
      "devops.getVariableGroup": 5,
      "devops.putVariableGroup": 1,
    });
  });

  test("must be a secret, in a group that the identity can change", async () => {
    const linked = devops.organization.groupNamed("shop-prod").id;
    expect(await failureOf(replaceVariable(client, place("REGION"), "x"))).toMatchObject({ code: "refused" });
    expect(await failureOf(replaceVariable(client, place("NONE"), "x"))).toMatchObject({ code: "refused" });
    expect(await failureOf(replaceVariable(client, { ...place("db-password"), groupId: linked }, "x"))).toMatchObject({
      code: "refused",
    });
    expect(await failureOf(replaceVariable(client, { ...place(), groupId: 999 }, "x"))).toMatchObject({
      code: "notFound",
    });
    const secrets = [place(), place("REGION"), place("NONE"), { ...place("db-password"), groupId: linked }];
    expect(await Promise.all(secrets.map((one) => hasSecretVariable(client, one)))).toEqual([
      true,
      false,
      false,
      false,
    ]);
    const old = { projectId: projectId("Archive"), groupId: devops.organization.groupNamed("old").id, variable: "A" };
    expect(await failureOf(replaceVariable(client, old, "x"))).toMatchObject({ code: "accessDenied" });
  });
});

/** The consumers of each secret in a variable group of the project Shop. */
async function edgesOf(group: string): Promise<Edge[]> {
  const source = devopsSource({ devops: fixture, tenantId: async () => service.cloud.app.tenantId });
  const edges: Edge[] = [];
  for await (const reported of source.read(projectId("Shop"), {}))
    if ("edges" in reported) edges.push(...reported.edges);
  return edges.filter(({ resource }) => resource.name === group);
}

test("a variable group that is linked to a vault contains the linked secrets of the vault", async () => {
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
  const { check } = variableGroupConsumers({ devops: fixture });
  const holds = async (change: Partial<PlannedConsumer>) => await check({ ...consumer, ...change }, "1", new Date());
  expect(await holds({})).toEqual({ holds: "new" });
  expect(await holds({ secretName: "api-key" })).toEqual({ holds: "gone" });
  expect(await holds({ vaultName: "kv-other" })).toEqual({ holds: "gone" });
});

describe("a copy that an administrator configures", () => {
  const copy = (variable = "DB_PASSWORD") => ({
    projectId: projectId("Shop").toUpperCase(),
    groupId: devops.organization.groupNamed("shop-copies").id,
    variable,
    vaultName: "kv-shop",
    secretName: "db-password",
  });
  const put = (copies: object[]) => service.admin("PUT", `${SETTINGS}/copies`, { copies });

  test("must be of another vault than the service's own, and unique", async () => {
    expect((await put([{ ...copy(), vaultName: "KV-Lifecycle-Service" }])).body.code).toBe("serviceVault");
    expect((await put([copy(), copy("db_password")])).body.errors[0].path).toBe("body.copies.1");
    expect((await put([{ ...copy(), groupId: 0 }])).status).toBe(400);
  });

  test("is a consumer with an action, until it is removed", async () => {
    expect((await put([copy(), copy("REGION"), copy("GONE")])).body.copies).toHaveLength(3);
    const found = await edgesOf("shop-copies");
    expect(found).toMatchObject([
      { vaultName: "kv-shop", name: "db-password", evidence: "DB_PASSWORD", copy: true, refresh: { how: "action" } },
    ]);
    const consumer: PlannedConsumer = {
      ...found[0]!.resource,
      vaultName: "kv-shop",
      secretName: "db-password",
      evidence: "DB_PASSWORD",
      how: "action",
      slowestSeconds: 0,
      blast: 1,
    };
    const wanted = { version: "1", value: async () => "new-value-7", restart: false };
    await put([copy()]);
    const { refresh, check } = variableGroupConsumers({ devops: fixture });
    expect(await refresh!(consumer, wanted)).toEqual({ changedMeanwhile: [] });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-7");
    expect(await check(consumer, "1", new Date())).toEqual({ holds: "new" });
    // The first of two was already replaced, so a rejection of the other does not mean that nothing was written.
    await put([copy(), copy("REGION")]);
    const half = await failureOf(refresh!(consumer, { ...wanted, value: async () => "new-value-8" }));
    expect(half).toMatchObject({ unclear: true });
    expect(devops.value("shop-copies", "DB_PASSWORD")).toBe("new-value-8");
    await put([]);
    const failure = await failureOf(refresh!(consumer, { ...wanted, value: async () => "never-sent" }));
    expect(failure).toMatchObject({ code: "refused", unclear: false });
  });
});

describe("a service connection's secret", () => {
  const place = (name: string) => ({
    projectId: projectId("Shop"),
    connectionId: devops.organization.connectionNamed(name).id,
  });
  const of = (application = "Shop API") => ({
    appId: appIdOf(application),
    tenantId: service.cloud.app.tenantId,
  });
  const replace = async (name: string, application: ReturnType<typeof of>, secret: string) =>
    (await fixture.organization())!.replaceConnectionSecret(place(name), application, secret);
  const newSecret = (name: string) => {
    const { directory } = service.cloud.control;
    const { value } = directory.addSecret(appIdOf("Shop API"), { name, expiresInDays: 90 });
    return value;
  };

  test.each(["deploy", "deploy-camel"])("is replaced, and DevOps signs in with it (%s)", async (name) => {
    const secret = newSecret(name);
    expect(await replace(name, of(), secret)).toEqual({ meanwhile: [] });
    expect(devops.value(name)).toBe(secret);
    const connection = (await client.connection(place(name).projectId, place(name).connectionId))!;
    expect(await client.testConnection(projectId("Shop"), connection)).toBe(true);
    expect(JSON.stringify(connection)).not.toContain(secret);
  });

  test("is replaced even if the connection has the older address of Resource Manager", async () => {
    const { url } = devops.organization.connectionNamed("deploy");
    devops.organization.changeConnection("deploy", (one) =>
      Object.assign(one, { url: "https://management.core.windows.net/" }),
    );
    const secret = newSecret("older");
    expect(await replace("deploy", of(), secret)).toEqual({ meanwhile: [] });
    expect(devops.value("deploy")).toBe(secret);
    devops.organization.changeConnection("deploy", (one) => Object.assign(one, { url }));
  });

  test("is written only to connections that sign in as the application now", async () => {
    service.cloud.control.resetCounts();
    const cases: [string, ReturnType<typeof of>, RegExp][] = [
      ["deploy-dead", of(), /does not sign in/],
      ["deploy-made", of(), /Azure DevOps made it/],
      ["deploy-federated", of(), /no client secret/],
      ["deploy-certificate", of(), /no client secret/],
      ["deploy", of("Other API"), /not belong/],
      ["deploy", { ...of(), tenantId: appIdOf("x") }, /not belong/],
      ["source", of(), /not belong/],
    ];
    for (const [name, application, message] of cases) {
      const failure = await failureOf(replace(name, application, "never-sent"));
      expect([name, failure.code, failure.message]).toEqual([name, "refused", expect.stringMatching(message)]);
    }
    for (const change of [
      { url: "https://management.elsewhere.example/" },
      { data: { environment: "AzureStack" } },
      { data: { environment: "AzureCloud", environmentAuthorityUrl: "https://login.elsewhere.example/" } },
    ]) {
      const before = { ...devops.organization.connectionNamed("deploy") };
      devops.organization.changeConnection("deploy", (one) => Object.assign(one, change));
      expect(await failureOf(replace("deploy", of(), "never-sent"))).toMatchObject({ code: "refused" });
      devops.organization.changeConnection("deploy", (one) => Object.assign(one, before));
    }
    expect(service.cloud.control.counts()["devops.putConnection"]).toBeUndefined();
  });

  test("is correct after a worker crashed at any of its calls", async () => {
    const resourceManagers = ["https://management.azure.com"];
    const secret = newSecret("deaths");
    const { data, url } = structuredClone(devops.organization.connectionNamed("deploy"));
    const tried = { before: 0, after: 0 };
    for (const when of ["before", "after"] as const) {
      for (let crashAt = 1; ; crashAt++) {
        const steps = { taken: 0, crashAt, when };
        // Each starts without proofs.
        const proofs = createConnectionProofs({ tables, clock }).of(`https://${when}-${crashAt}.example`);
        const crashing = { client: crashable(client, steps), proofs: crashable(proofs, steps), resourceManagers };
        const died = await crashOf(replaceConnectionSecret(crashing, place("deploy"), of(), secret));
        if (!died) break;
        tried[when]++;
        const living = { client, proofs, resourceManagers };
        expect(await replaceConnectionSecret(living, place("deploy"), of(), secret)).toEqual({ meanwhile: [] });
        expect(devops.value("deploy")).toBe(secret);
        expect(devops.organization.connectionNamed("deploy")).toMatchObject({ data, url });
      }
    }
    expect(tried).toEqual({ before: 8, after: 8 });
  });

  test("is restored for 60 days after the connection signed in, as the same application", async () => {
    let now = Date.now();
    const moved = { now: () => new Date(now) };
    const proofs = createConnectionProofs({ tables, clock: moved }).of("https://dated.example");
    const holds = (application = of()) => proofs.holds(place("deploy"), application);
    await proofs.keep(place("deploy"), of());
    now += 60 * DAY_MS - 1;
    expect([await holds(), await holds(of("Other API"))]).toEqual([true, false]);
    now += 1;
    expect(await holds()).toBe(false);
  });

  test("can be restored if the new one does not work", async () => {
    const before = devops.value("deploy")!;
    await replace("deploy", of(), "no-secret-of-it");
    const { signsIn } = (await fixture.organization())!;
    expect(await signsIn(place("deploy"), of())).toBe(false);
    await replace("deploy", of(), before);
    expect(await signsIn(place("deploy"), of())).toBe(true);
    expect(await signsIn(place("deploy-federated"), of())).toBeUndefined();
    const missing = { ...place("deploy"), connectionId: appIdOf("none") };
    expect(await failureOf(signsIn(missing, of()))).toMatchObject({ code: "notFound" });
  });

  test("is replaced even if DevOps updates the connection's state meanwhile", async () => {
    let reads = 0;
    const changing: DevopsClient = {
      ...client,
      async connection(...which) {
        const now = { isReady: reads++ % 2 === 0, isOutdated: reads % 2 === 0, operationStatus: { state: `${reads}` } };
        return { ...(await client.connection(...which))!, ...now };
      },
    };
    const proofs = createConnectionProofs({ tables, clock }).of("https://changing.example");
    const resourceManagers = ["https://management.azure.com"];
    const secret = newSecret("changing");
    const connections = { client: changing, proofs, resourceManagers };
    expect(await replaceConnectionSecret(connections, place("deploy"), of(), secret)).toEqual({ meanwhile: [] });
    expect(devops.value("deploy")).toBe(secret);
  });

  test("does not overwrite another change, and names one that comes after", async () => {
    const { connectionId } = place("deploy");
    const before = devops.value("deploy");
    const renamed = (data: string) => () =>
      devops.organization.changeConnection("deploy", (one) => {
        one.data = { ...one.data, subscriptionName: data };
      });
    // The first of the three reads before the write is the connection test's.
    devops.meanwhile("afterRead", connectionId, () => devops.meanwhile("afterRead", connectionId, renamed("Theirs")));
    expect(await failureOf(replace("deploy", of(), "s"))).toMatchObject({
      code: "conflict",
    });
    expect(devops.value("deploy")).toBe(before);
    devops.meanwhile("afterWrite", connectionId, renamed("Again"));
    const secret = newSecret("after");
    expect(await replace("deploy", of(), secret)).toEqual({
      meanwhile: ["data.subscriptionName"],
    });
  });
});

test("no value that was read or written is in a log line or row", async () => {
  const { TableClient } = await import("@azure/data-tables");
  const rows: unknown[] = [];
  const connection = service.azurite.connectionString();
  for (const name of ["Devops", "AuditEntries"]) {
    const table = TableClient.fromConnectionString(connection, name, { allowInsecureConnection: true });
    for await (const row of table.listEntities()) rows.push(row);
  }
  const values = [...PLANTED, "new-value", "theirs", "never-sent", devops.value("deploy")!];
  const everything = JSON.stringify([log.lines, service.hosts.map(({ lines }) => lines), rows]);
  expect(rows.length).toBeGreaterThan(1);
  for (const value of values) expect(everything).not.toContain(value);
  expect(everything).not.toMatch(/Bearer ey|eyJ0eXAiOiJKV1Qi/);
});
