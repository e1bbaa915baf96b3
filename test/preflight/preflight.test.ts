import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { PROVIDERS } from "simulated-cloud/arm/governance.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { parameterDefinitions } from "../../infra/preflight/parameters.ts";
import { textReport } from "../../infra/preflight/report.ts";
import { parseTemplates } from "../../infra/template-checks/check.ts";
import { deployedParts } from "../../infra/template-checks/deployed-parts.ts";
import { readInfraFiles } from "../../infra/template-checks/files.ts";
import { modulesOf } from "../../infra/template-checks/terraform/check.ts";
import {
  BRING_YOUR_OWN_OBSTACLES,
  CUSTOMER_MANAGED_KEY,
  KEY_CLIENT_ID,
  NAME_OBSTACLES,
  NETWORK_OBSTACLES,
  type Obstacle,
  PERMISSION_OBSTACLES,
  POLICY_OBSTACLES,
  putKeyVault,
} from "./obstacles.ts";
import {
  denies,
  GROUP_ID,
  NETWORK_ID,
  OTHER_SUBSCRIPTION,
  OWN_SUBNETS,
  ofType,
  PlannedSubscription,
  SUBSCRIPTION,
  SUBSCRIPTION_ID,
} from "./planned-subscription.ts";

// Tests of preflight against the simulated cloud: each planted obstacle is found and has a fix.

let subscription: PlannedSubscription;
beforeAll(async () => {
  subscription = await PlannedSubscription.start();
});
afterAll(() => subscription.cloud.stop());
beforeEach(() => {
  const { control } = subscription.cloud;
  control.clearFaults();
  for (const id of [SUBSCRIPTION, OTHER_SUBSCRIPTION]) subscription.plant(undefined, id);
  control.putSubscription({
    name: "Platform",
    id: SUBSCRIPTION,
    state: "Enabled",
    tenantId: subscription.cloud.app.tenantId,
  });
  control.removeVault("kv-watched");
  for (const { id } of control.consumers.resources()) control.consumers.remove(id);
});

const OBSTACLES = [
  ...PERMISSION_OBSTACLES,
  ...POLICY_OBSTACLES,
  ...NAME_OBSTACLES,
  ...NETWORK_OBSTACLES,
  ...BRING_YOUR_OWN_OBSTACLES,
];

test.each([
  ["the defaults", {}],
  [
    "every option",
    { networkEnabled: true, natGatewayEnabled: true, appConfigurationEnabled: true, eventsEnabled: true },
  ],
  ["two watched subscriptions", { watchedSubscriptionIds: [SUBSCRIPTION, OTHER_SUBSCRIPTION], eventsEnabled: true }],
  ["existing subnets", OWN_SUBNETS],
])("a clean subscription has no finding with %s, in Bicep and Terraform", async (_, parameters) => {
  subscription.putNetwork();
  expect((await subscription.run(parameters)).findings).toEqual([]);
  expect((await subscription.run(parameters, "terraform")).findings).toEqual([]);
});

// Fails for an obstacle with a parameter that the templates don't have.
test.each(OBSTACLES)("finds $name", async ({ plant, parameters, expected }: Obstacle) => {
  plant(subscription);
  const { findings } = await subscription.run(parameters);
  const [code, severity, subject, command] = expected;
  expect(findings.map((one) => one.code)).toContain(code);
  // The obstacle causes no finding of another kind.
  expect(new Set(findings.map((one) => one.code)).size).toBe(1);
  expect(findings[0]).toMatchObject({
    severity,
    subject: expect.stringContaining(subject),
    command: expect.stringContaining(command),
  });
  for (const { message, remedy } of findings)
    expect([message, remedy]).toEqual([expect.stringMatching(/\.$/), expect.stringMatching(/\.$/)]);
});

test("a customer-managed key in a vault with purge protection causes no finding", async () => {
  putKeyVault(subscription);
  expect((await subscription.run(CUSTOMER_MANAGED_KEY)).findings).toEqual([]);
  // A GUID has the same meaning in upper case.
  for (const userAssignedIdentityClientId of [KEY_CLIENT_ID, KEY_CLIENT_ID.toUpperCase()]) {
    const customerManagedKey = { ...CUSTOMER_MANAGED_KEY.customerManagedKey, userAssignedIdentityClientId };
    expect((await subscription.run({ customerManagedKey, appConfigurationEnabled: true })).findings).toEqual([]);
  }
});

test("the plan with all options contains every resource type that the templates create", async () => {
  const { bicep, terraform } = await parseTemplates(readInfraFiles());
  const parts = deployedParts(bicep, modulesOf([...terraform.values()])).filter(
    // Deployed on their own.
    ({ name }) => !["logs", "siem", "events-policy"].includes(name),
  );
  const types = new Set(parts.flatMap((part) => [...part.types]));
  const flags = parameterDefinitions(bicep).filter(({ type }) => type === "bool");
  const plan = subscription.plan({
    ...Object.fromEntries(flags.map(({ name }) => [name, true])),
    rotationResourceGroupIds: [`${SUBSCRIPTION_ID}/resourceGroups/rg-apps`],
    rotationKeyKinds: { [`${SUBSCRIPTION_ID}/resourceGroups/rg-apps`]: ["storage"] },
    literalScanSubscriptionIds: [SUBSCRIPTION],
    lock: { kind: "CanNotDelete" },
  });
  const planned = new Set(
    plan.resources.map(({ type }) => type.replace("subscriptions/resourceGroups", "resourceGroups")),
  );
  expect([...types].filter((type) => !planned.has(type))).toEqual([]);
});

test("the proposed parameters avoid all findings that a parameter can avoid, together", async () => {
  const storage = "Microsoft.Storage/storageAccounts";
  subscription.plant({
    withoutZones: ["westeurope"],
    policies: [
      denies("private-storage", ofType(storage, { field: `${storage}/publicNetworkAccess`, notEquals: "Disabled" })),
      denies("owner-tag", { field: "tags['owner']", exists: false }, { mode: "Indexed" }),
      denies("no-zones", { field: "type", equals: "Microsoft.Network/privateDnsZones" }),
    ],
  });
  const { context, findings } = await subscription.run();
  expect(findings.every(({ severity }) => severity === "stops")).toBe(true);
  const proposed = Object.fromEntries(context.proposed);
  // Only the proposed network has zones, which the third policy denies.
  const privateNetwork = { networkEnabled: true, privateDnsZonesEnabled: false };
  expect(proposed).toEqual({ storageReplication: "LRS", tags: { owner: "VALUE" }, ...privateNetwork });
  expect((await subscription.run(proposed)).findings).toEqual([]);
});

test.each([
  ["is not enforced", { enforcementMode: "DoNotEnforce" as const }],
  ["excludes the subscription", { notScopes: [SUBSCRIPTION_ID] }],
  ["has its effect overridden", { overrides: [{ kind: "policyEffect", value: "audit" }] }],
  ["selects another region", { resourceSelectors: [{ selectors: [{ kind: "resourceLocation", in: ["eastus"] }] }] }],
])("a denying policy that %s is no finding", async (_, more) => {
  subscription.plant({ policies: [denies("deny-storage", { field: "type", like: "Microsoft.Storage/*" }, more)] });
  expect((await subscription.run()).findings).toEqual([]);
});

test("an exempted policy is a finding again after the exemption has expired", async () => {
  const policies = [denies("deny-sites", { field: "type", equals: "Microsoft.Web/sites" })];
  subscription.plant({ policies, exemptions: [{ policyAssignment: "deny-sites", expiresOn: "2999-01-01T00:00:00Z" }] });
  expect((await subscription.run()).findings).toEqual([]);
  subscription.plant({ policies, exemptions: [{ policyAssignment: "deny-sites", expiresOn: "2020-01-01T00:00:00Z" }] });
  expect((await subscription.run()).findings.map(({ code }) => code)).toEqual(["policy.denies"]);
});

test("a fresh subscription has only resource providers to register, whose names can't be checked yet", async () => {
  const unregistered = Object.keys(PROVIDERS).filter(
    (one) => !["Microsoft.Authorization", "Microsoft.Resources"].includes(one),
  );
  subscription.plant({ unregistered });
  const bicep = await subscription.run({ networkEnabled: true, appConfigurationEnabled: true });
  expect(new Set(bicep.findings.map(({ code }) => code))).toEqual(new Set(["provider.notRegistered"]));
  const stopping = bicep.findings.filter(({ severity }) => severity === "stops").map(({ subject }) => subject);
  expect(stopping).toEqual(["Microsoft.App"]);

  subscription.plant({ unregistered, permissions: [{ actions: ["*"], notActions: ["*/register/action"] }] });
  const { findings } = await subscription.run();
  expect(findings.length).toBeGreaterThan(5);
  expect(findings.every(({ severity }) => severity === "stops")).toBe(true);
});

test("values from the cloud are quoted in commands", async () => {
  const tagName = "a'; rm -rf $HOME; '";
  subscription.plant({
    policies: [
      denies(
        "tag",
        { field: "[concat('tags[', parameters('tagName'), ']')]", exists: false },
        {
          mode: "Indexed",
          parameters: { tagName: { type: "String" } },
          values: { tagName },
        },
      ),
    ],
  });
  const [finding] = (await subscription.run()).findings;
  expect(finding!.command).toContain(`--set 'tags={"a'\\''; rm -rf $HOME; '\\''":"VALUE"}'`);
});

test("a name from the cloud with line breaks and control characters is one line of the report", async () => {
  const displayName = "tag\n      rm -rf ~\u001b[2J\u2028x";
  subscription.plant({ policies: [denies("tag", { field: "type", like: "Microsoft.Web/*" }, { displayName })] });
  const { context, findings } = await subscription.run();
  const lines = textReport(context, [{ name: "Policies", summary: displayName, findings }]);
  expect(lines.join("")).toContain("tag       rm -rf ~ [2J x");
  expect(lines.join("")).not.toMatch(/[\p{Cc}\p{Zl}]/u);
});

test("resources of an earlier deployment are no taken names", async () => {
  const resources = subscription.plan().resources.filter(({ type, name }) => type !== "" && name !== undefined);
  const existing = resources.map(({ type, name }) => ({ type, name: name! }));
  const takenNames = existing.map(({ name }) => name);
  subscription.plant({
    takenNames,
    resourceGroups: [{ name: "rg-lifecycle", location: "westeurope", resources: existing }],
  });
  expect((await subscription.run()).findings).toEqual([]);
});

test("permissions on the service's resource group suffice if a platform team has created it", async () => {
  const group = { name: "rg-lifecycle", location: "westeurope" };
  subscription.plant({
    resourceGroups: [group],
    permissions: [
      { scope: GROUP_ID, actions: ["*"] },
      { actions: ["*/read", "Microsoft.Authorization/*", "Microsoft.Resources/*"] },
    ],
  });
  expect((await subscription.run()).findings).toEqual([]);
});

test("a firewall that allows the existing subnet causes no finding", async () => {
  subscription.putNetwork();
  const virtualNetworkRules = [`${NETWORK_ID}/subnets/functions`];
  subscription.cloud.control.putVault(SUBSCRIPTION, {
    name: "kv-watched",
    networkDefaultAction: "Deny",
    virtualNetworkRules,
  });
  expect((await subscription.run(OWN_SUBNETS)).findings).toEqual([]);
});

/** Codes of findings about a denied operation. */
const DENIED_OPERATIONS = [
  ["arm.listPermissions", "permissions.unreadable"],
  ["arm.listProviders", "check.failed"],
  ["arm.listPolicyAssignments", "policy.unreadable"],
  ["arm.listLocks", "check.failed"],
  ["arm.listGeoRegions", "check.failed"],
  ["arm.listUsages", "check.failed"],
  ["arm.checkName", "check.failed"],
  ["arm.listVaults", "vault.subscriptionUnreadable"],
] as const;

test.each(DENIED_OPERATIONS)(
  "a denied %s is reported as not checked, and the other checks run",
  async (operation, code) => {
    subscription.cloud.control.addFault({ match: { operation }, action: { kind: "deny" } });
    const { context, findings } = await subscription.run();
    expect(new Set(findings.map((one) => one.code))).toEqual(new Set([code]));
    expect(findings[0]).toMatchObject({ severity: "notChecked", command: expect.stringMatching(/^az /) });
    const lines = textReport(context, [{ name: "All", summary: "", findings }]);
    expect(lines.at(-1)).toMatch(/^Nothing found that stops the deployment, but not everything could be checked/);
  },
);

test("preflight only reads", async () => {
  subscription.putNetwork();
  subscription.cloud.control.resetCounts();
  await subscription.run({ ...OWN_SUBNETS, appConfigurationEnabled: true });
  const operations = Object.keys(subscription.cloud.control.counts()).filter((one) => one.startsWith("arm."));
  expect(operations.filter((one) => !/^arm\.(get|list|check)|^arm\.diagnostic/.test(one))).toEqual([]);
  expect(subscription.cloud.control.counts().unknown).toBeUndefined();
});

test("the page lists exactly the codes of the findings, and a test plants each of them", () => {
  const isCode =
    /"((?:check|existing|group|lock|name|network|parameter|permissions|policy|provider|quota|region|subscription|vault)\.\w+)"/g;
  const codesIn = (text: string) => [...text.matchAll(isCode)].map(([, code]) => code!);
  const root = path.resolve(import.meta.dirname, "../..");
  const source = globSync("infra/preflight/**/*.ts", { cwd: root }).map((file) =>
    readFileSync(path.join(root, file), "utf8"),
  );
  const codes = [...new Set(source.flatMap(codesIn))].sort();
  const page = readFileSync(path.join(root, "docs/preflight.md"), "utf8").replaceAll("`", '"');
  expect([...new Set(codesIn(page))].sort()).toEqual(codes);
  const planted = [...OBSTACLES.map(({ expected }) => expected[0]), ...DENIED_OPERATIONS.map(([, code]) => code)];
  expect(codes.filter((code) => !planted.includes(code))).toEqual([]);
});
