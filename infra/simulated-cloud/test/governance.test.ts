import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { type ArmCall, armClient } from "./arm-client.ts";

// Tests the requests with which a client finds out whether a deployment would succeed.

const ID = "11111111-2222-4333-8444-555555555555";
const BASE = `/subscriptions/${ID}`;
const POLICY_API_VERSION = "2023-04-01";
let cloud: Cloud;
let arm: ArmCall;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [
        { name: "Main", id: ID },
        { name: "Closed", denied: true },
      ],
    },
  });
  arm = await armClient(cloud);
});
afterAll(() => cloud.stop());
beforeEach(() => cloud.control.governance.set(ID, undefined));

test("by default everything is permitted, registered and available", async () => {
  const permissions = await arm("GET", `${BASE}/providers/Microsoft.Authorization/permissions`, "2022-04-01");
  expect(permissions.body.value).toEqual([{ actions: ["*"], notActions: [], dataActions: [], notDataActions: [] }]);
  const providers = await arm("GET", `${BASE}/providers`, "2021-04-01");
  expect(
    providers.body.value.every((one: { registrationState: string }) => one.registrationState === "Registered"),
  ).toBe(true);
  const locks = await arm("GET", `${BASE}/providers/Microsoft.Authorization/locks`, "2016-09-01");
  const policies = await arm(
    "GET",
    `${BASE}/providers/Microsoft.Authorization/policyAssignments?$filter=atScope()`,
    POLICY_API_VERSION,
  );
  expect([locks.body.value, policies.body.value]).toEqual([[], []]);
});

test("permissions apply at their scope and below, and a resource group must exist", async () => {
  const group = `${BASE}/resourceGroups/rg-own`;
  cloud.control.governance.set(ID, {
    permissions: [{ scope: group, actions: ["*"] }, { actions: ["*/read"] }],
    resourceGroups: [{ name: "rg-own", location: "westeurope" }],
  });
  const actionsAt = async (scope: string) => {
    const { body } = await arm("GET", `${scope}/providers/Microsoft.Authorization/permissions`, "2022-04-01");
    return body.value.map(({ actions }: { actions: string[] }) => actions[0]);
  };
  expect([await actionsAt(BASE), await actionsAt(group)]).toEqual([["*/read"], ["*", "*/read"]]);
  const absent = await arm(
    "GET",
    `${BASE}/resourceGroups/absent/providers/Microsoft.Authorization/permissions`,
    "2022-04-01",
  );
  expect(absent).toMatchObject({ status: 404, body: { error: { code: "ResourceGroupNotFound" } } });
});

test("a policy assignment leads to its definition, also through an initiative", async () => {
  // biome-ignore lint/suspicious/noThenProperty: the word of a policy.
  const policyRule = { if: { field: "type", equals: "x" }, then: { effect: "deny" } };
  const policy = {
    name: "no-x",
    policyRule,
    parameters: { p: { type: "String" } },
    values: { p: "v" },
    initiative: true,
  };
  cloud.control.governance.set(ID, { policies: [policy] });
  const list = await arm(
    "GET",
    `${BASE}/providers/Microsoft.Authorization/policyAssignments?$filter=atScope()`,
    POLICY_API_VERSION,
  );
  const { policyDefinitionId, parameters } = list.body.value[0].properties;
  expect(parameters).toEqual({ p: { value: "v" } });
  const initiative = await arm("GET", policyDefinitionId, POLICY_API_VERSION);
  const [member] = initiative.body.properties.policyDefinitions;
  expect(member.parameters).toEqual({ p: { value: "[parameters('p')]" } });
  expect((await arm("GET", member.policyDefinitionId, POLICY_API_VERSION)).body.properties).toMatchObject({
    mode: "All",
    policyRule,
  });
});

test("a name that somebody else uses, or that a deleted resource had, is not available", async () => {
  const type = "Microsoft.KeyVault/vaults";
  const id = `${BASE}/resourceGroups/rg/providers/${type}/kv-old`;
  cloud.control.governance.set(ID, {
    takenNames: ["kv-taken"],
    deleted: [{ type, name: "kv-old", location: "westeurope", id, purgeProtection: true }],
  });
  const availability = async (name: string) => {
    const path = `${BASE}/providers/Microsoft.KeyVault/checkNameAvailability`;
    return (await arm("POST", path, "2026-02-01", { name, type })).body;
  };
  expect(await availability("kv-free")).toEqual({ nameAvailable: true });
  for (const name of ["kv-taken", "kv-old", "kv-lifecycle-service"])
    expect(await availability(name)).toMatchObject({ nameAvailable: false, reason: "AlreadyExists" });
  expect(await availability("1")).toMatchObject({ nameAvailable: false, reason: "AccountNameInvalid" });
  const deleted = `${BASE}/providers/Microsoft.KeyVault/locations/westeurope/deletedVaults`;
  const deletedVault = await arm("GET", `${deleted}/kv-old`, "2026-02-01");
  expect(deletedVault.body.properties).toMatchObject({ vaultId: id, purgeProtectionEnabled: true });
  expect((await arm("GET", `${deleted}/kv-free`, "2026-02-01")).status).toBe(404);
});

test.each([
  ["GET", "/providers", "2010-01-01", undefined, 400],
  ["GET", "/providers/Microsoft.Authorization/policyAssignments", POLICY_API_VERSION, undefined, 400],
  ["GET", "/providers/Microsoft.Authorization/policyAssignments?$filter=all()", POLICY_API_VERSION, undefined, 400],
  ["GET", "/providers/Microsoft.Authorization/policyDefinitions/absent", POLICY_API_VERSION, undefined, 404],
  ["GET", "/providers/Microsoft.Storage/locations/mars/usages", "2025-01-01", undefined, 400],
  ["GET", "/providers/Microsoft.KeyVault/locations/mars/deletedVaults/kv", "2026-02-01", undefined, 400],
  ["GET", "/resourceGroups/absent", "2021-04-01", undefined, 404],
  ["POST", "/providers/Microsoft.Storage/checkNameAvailability", "2025-01-01", { name: "a" }, 400],
  ["POST", "/providers/Microsoft.Storage/checkNameAvailability", "2025-01-01", { name: "abc", type: "other" }, 400],
] as const)("rejects %s %s with version %s", async (method, path, version, body, status) => {
  expect((await arm(method, `${BASE}${path}`, version, body)).status).toBe(status);
});

test("a subscription without read permission and an unknown one are rejected", async () => {
  const deniedSubscription = cloud.control.subscriptions().find(({ denied }) => denied)!;
  expect((await arm("GET", `/subscriptions/${deniedSubscription.id}/providers`, "2021-04-01")).status).toBe(403);
  expect((await arm("GET", `/subscriptions/${ID.replaceAll("1", "9")}/providers`, "2021-04-01")).status).toBe(404);
});
