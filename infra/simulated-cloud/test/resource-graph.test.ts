import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

// Tests Azure Resource Graph in the simulated cloud: queries over resources, changes and role assignments.

const QUERY_PATH = "/providers/Microsoft.ResourceGraph/resources";
const API_VERSION = "2024-04-01";
/** Subscription IDs. The identity cannot read the subscription CLOSED. */
const [FIRST, SECOND, CLOSED] = [1, 2, 3].map((digit) => `5555555${digit}-5555-4555-8555-555555555555`) as [
  string,
  string,
  string,
];
/** A web app or slot that uses the secret `a` of the vault kv-one. */
const secretUser = {
  identity: { system: true },
  settings: { A: "@Microsoft.KeyVault(VaultName=kv-one;SecretName=a)" },
};

let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [
        {
          name: "First",
          id: FIRST,
          vaults: [{ name: "kv-one", secrets: [{ name: "a" }] }],
          resources: [
            {
              type: "Microsoft.Web/sites",
              name: "app-one",
              tags: { env: "prod" },
              ...secretUser,
              children: { slots: [{ name: "blue", ...secretUser }] },
            },
            {
              type: "Microsoft.Storage/storageAccounts",
              name: "stone",
              properties: { encryption: { keyvaultproperties: { keyvaulturi: "{uri:kv-one}" } } },
            },
            { type: "Microsoft.Storage/storageAccounts", name: "stplain", properties: { encryption: {} } },
            {
              type: "Microsoft.DataFactory/factories",
              name: "adf",
              children: { linkedservices: [{ name: "ls", properties: { uri: "{uri:kv-one}" } }] },
            },
          ],
          roleAssignments: [
            { principal: "ann", principalType: "User", role: "Key Vault Reader" },
            { principal: "bob", principalType: "Group", role: "Reader", managementGroup: "mg-acme" },
          ],
        },
        { name: "Second", id: SECOND, vaults: [{ name: "kv-two" }], generate: { sites: 250 } },
        { name: "Closed", id: CLOSED, denied: true, resources: [{ type: "Microsoft.Web/sites", name: "app-hidden" }] },
      ],
    },
  });
  arm = await armClient(cloud);
});
beforeEach(() => cloud.control.consumers.setGraph({ lagSeconds: 0, limited: false }));
afterAll(() => cloud?.stop());

const runQuery = (query: string, options?: object, subscriptions?: string[]) =>
  arm("POST", QUERY_PATH, API_VERSION, { query, ...(options && { options }), ...(subscriptions && { subscriptions }) });
/** Lists web apps and slots. */
const SITES_QUERY =
  "resources | where type in~ ('microsoft.web/sites','microsoft.web/sites/slots') | project id,name,type,kind,identity,keyVaultReferenceIdentity=properties.keyVaultReferenceIdentity";

test("returns web apps and slots in pages, without those of a denied subscription", async () => {
  const first = await runQuery(SITES_QUERY, { $top: 200 });
  // An app and its slot in the first subscription, and 250 generated apps in the second one.
  expect(first.body).toMatchObject({ totalRecords: 252, count: 200, resultTruncated: "false", facets: [] });
  expect(first.headers.get("x-ms-user-quota-remaining")).toMatch(/^\d+$/);
  const second = await runQuery(SITES_QUERY, { $top: 200, $skipToken: first.body.$skipToken });
  expect(second.body).toMatchObject({ count: 52 });
  expect(second.body).not.toHaveProperty("$skipToken");
  const allRows = [...first.body.data, ...second.body.data];
  expect(new Set(allRows.map(({ id }) => id)).size).toBe(252);
  expect(allRows[0]).toEqual({
    id: `/subscriptions/${FIRST}/resourceGroups/rg-apps/providers/Microsoft.Web/sites/app-one`,
    name: "app-one",
    type: "microsoft.web/sites",
    kind: "",
    identity: { type: "SystemAssigned", principalId: expect.any(String), tenantId: expect.any(String) },
    keyVaultReferenceIdentity: null,
  });
  expect(allRows[1]).toMatchObject({ name: "app-one/blue", type: "microsoft.web/sites/slots" });
  const generated = allRows.find(({ name }) => name === "app-bench-000007")!;
  const { body } = await arm("GET", `${generated.id}/config/configreferences/appsettings`, API_VERSION);
  expect(body.value).toMatchObject([
    { name: "DB_PASSWORD", properties: { status: "SecretNotFound", vaultName: "kv-two" } },
  ]);
  expect((await runQuery(SITES_QUERY, {}, [FIRST, CLOSED])).body.totalRecords).toBe(2);
});

test("returns resources that reference a vault, but not the types that Resource Graph does not contain", async () => {
  const query = `resources
    | where type in~ ('Microsoft.Storage/storageAccounts', 'microsoft.datafactory/factories', 'microsoft.datafactory/factories/linkedservices')
    | where tostring(properties) contains 'vault'
    | project id, name, type, subscriptionId, resourceGroup, identity, properties`;
  const { body } = await runQuery(query);
  expect(body.data).toMatchObject([
    { name: "stone", resourceGroup: "rg-apps", properties: { encryption: { keyvaultproperties: {} } } },
  ]);
});

test("truncates the result of a query without the column id, and rejects an invalid query", async () => {
  const truncated = await runQuery("resources | where type =~ 'microsoft.web/sites' | project name", { $top: 10 });
  expect(truncated.body).toMatchObject({ totalRecords: 251, count: 10, resultTruncated: "true" });
  expect(truncated.body).not.toHaveProperty("$skipToken");
  for (const [query, options] of [
    ["resources | summarize count()"],
    ["resources | where type ~ 'x'"],
    ["secrets | project id"],
    ["resources", { $top: 1001 }],
    ["resources", { $skipToken: "e30=" }],
  ] as const) {
    const { status, body } = await runQuery(query, options);
    expect([query, status, body.error.code, body.error.details[0].code]).toEqual([
      query,
      400,
      "BadRequest",
      "InvalidQuery",
    ]);
  }
});

test("returns changes of resources since a time, and role assignments", async () => {
  const { control } = cloud;
  const since = control.now();
  const query = `resourcechanges
    | extend at = todatetime(properties.changeAttributes.timestamp), target = tostring(properties.targetResourceId)
    | where at > datetime(${since}) and tostring(properties.targetResourceType) =~ 'microsoft.web/sites'
    | project id, at, target, changeType = tostring(properties.changeType)`;
  expect((await runQuery(query)).body.data).toEqual([]);
  const id = control.consumers.idOf("app-one");
  await arm("PUT", `${id}/config/appsettings`, API_VERSION, { properties: {} });
  const { body } = await runQuery(query);
  expect(body.data).toEqual([
    { id: expect.stringContaining("/changes/"), at: expect.stringMatching(/Z$/), target: id, changeType: "Update" },
  ]);

  const roles =
    "authorizationresources | where type =~ 'microsoft.authorization/roleassignments' | project id, scope = tostring(properties.scope), principalType = properties.principalType";
  const graphAssignments = (await runQuery(roles, {}, [FIRST])).body.data;
  expect(graphAssignments).toContainEqual(
    expect.objectContaining({ scope: `/subscriptions/${FIRST}`, principalType: "User" }),
  );
  const vault = control.vaultId("kv-one")!;
  const { body: assignments } = await arm(
    "GET",
    `${vault}/providers/Microsoft.Authorization/roleAssignments?$filter=atScope()`,
    "2022-04-01",
  );
  expect(assignments.value).toHaveLength(graphAssignments.length);
  const role = assignments.value.at(-1).properties.roleDefinitionId;
  expect((await arm("GET", role, "2022-04-01")).body.properties.roleName).toBe("Reader");
  expect(role).toMatch(/^\/providers\/Microsoft\.Authorization/);
  const allRows = await arm(
    "GET",
    `/subscriptions/${FIRST}/providers/Microsoft.Authorization/roleAssignments`,
    "2022-04-01",
  );
  expect(allRows.body.value.map(({ id }: { id: string }) => id).sort()).toEqual(
    graphAssignments.map(({ id }: { id: string }) => id).sort(),
  );
});

test("with a lag, a change appears later; with limits, many queries are throttled", async () => {
  const { control } = cloud;
  const findByName = (name: string) => runQuery(`resources | where name == '${name}' | project id, tags`);
  control.moveClock(120_000);
  control.consumers.setGraph({ lagSeconds: 60 });
  const id = control.consumers.put(FIRST, { type: "Microsoft.Web/sites", name: "app-new" });
  control.consumers.change(control.consumers.idOf("stone"), { tags: { env: "test" } });
  expect((await findByName("app-new")).body.data).toEqual([]);
  expect((await findByName("stone")).body.data).toMatchObject([{ tags: null }]);
  control.moveClock(61_000);
  expect((await findByName("app-new")).body.data).toMatchObject([{ id }]);
  expect((await findByName("stone")).body.data).toMatchObject([{ tags: { env: "test" } }]);

  control.consumers.setGraph({ limited: true });
  const responses = await Promise.all(Array.from({ length: 16 }, () => runQuery("resources | project id")));
  // Resource Graph allows 15 queries of a user in five seconds.
  const throttled = responses.filter(({ status }) => status === 429);
  expect(throttled.length).toBeGreaterThan(0);
  expect(throttled[0]!.headers.get("retry-after")).toBe("5");
});

test("returns only resources that the roles of the identity allow to read", async () => {
  const { control } = cloud;
  const readSites = { dataActions: [], actions: ["Microsoft.Web/sites/read"] };
  control.allowOnly([{ scope: `/subscriptions/${FIRST}`, ...readSites }]);
  const { body } = await runQuery("resources | project id, type");
  expect(new Set(body.data.map(({ type }: { type: string }) => type))).toEqual(new Set(["microsoft.web/sites"]));
  const app = control.consumers.idOf("app-one");
  const denied = await arm("GET", `${app}/config/configreferences/appsettings`, API_VERSION);
  expect([denied.status, denied.body.error.code]).toEqual([403, "AuthorizationFailed"]);
  control.allowOnly(undefined);
});
