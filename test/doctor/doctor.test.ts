import { type Assignment, CONFIGURATION_RESOURCE, MAIL_RESOURCE } from "simulated-cloud/authorization.ts";
import { acmeCompany } from "simulated-cloud/company/acme.ts";
import { SHOP_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { doctorDeps, type Services } from "../../functions/services.ts";
import { NewTenant } from "../../shared/b2c/api.ts";
import { RESOURCE_ACTIONS } from "../../shared/doctor/calls/watched.ts";
import { CALLS } from "../../shared/doctor/calls.ts";
import { type CheckedCall, createDoctor, type PermissionsCheck } from "../../shared/doctor/doctor.ts";
import type { OutgoingCall } from "../../shared/doctor/outgoing-call.ts";
import { joinActions, notProven, type Result } from "../../shared/doctor/result.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { NewSyncRecord, ProviderChange } from "../../shared/sync/api.ts";
import { vaultRecord } from "../inventory/write-assets.ts";
import { Service } from "../support/service.ts";
import { servicesOf } from "../support/users.ts";

// Tests of the check of all outgoing calls against the simulated cloud: with exactly the permissions of the templates and the
// documentation, and with each of them removed in turn.

const caller = { actor: "admin", requestId: "check" };
const SERVICE_VAULT = "kv-lifecycle-service";

let service: Service;
let services: Services;
/** The subscription with a resource of every kind. */
let scope: string;
let subscriptionId: string;
/**
 * Everything that the service's identity may do in Azure, in this order: the subscription, the service's vault, its settings,
 * mail, and each workspace with logs.
 */
let granted: Assignment[];
let graphPermissions: string[];

beforeAll(async () => {
  const acme = acmeCompany(1);
  const readable = acme.devops!.projects.filter(({ rights }) => rights === undefined);
  service = await Service.start({
    company: { ...acme, devops: { ...acme.devops!, projects: readable.slice(0, 2) } },
    hosts: 0,
    tableProxy: true,
    env: { COMMUNICATION_CONNECTION_STRING: "", APP_CONFIGURATION_CONNECTION_STRING: "" },
  });
  const { control } = service.cloud;
  subscriptionId = control.subscriptions().find(({ name }) => name === "Acme Platform")!.id;
  scope = `/subscriptions/${subscriptionId}`;
  // This company has vaults that deny access, which is not what these tests are about.
  for (const { name } of control.vaults()) control.changeVault(name, { reach: "open" });
  const { port } = new URL(service.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
  const workspaces = control.logs.all;
  Object.assign(service.environment, {
    COMMUNICATION_ENDPOINT: `https://acme.communication.localhost:${port}`,
    APP_CONFIGURATION_ENDPOINT: `https://acme.azconfig.localhost:${port}`,
    AZURE_SUBSCRIPTION_IDS: subscriptionId,
    WATCH_ALL: "false",
    DEPENDENCY_LITERAL_SCAN: "true",
    LOG_ANALYTICS_WORKSPACE_IDS: workspaces.map(({ id }) => id).join(","),
  });
  services = await servicesOf(service);
  graphPermissions = [...control.directory.settings().permissions];
  const grants = grantsOf((await parseTemplates(readInfraFiles())).bicep);
  const customRoles = ["inventoryReader", "dependencyReader", "rotationOperator", "literalScanner"];
  const actions = grants.flatMap((one) => (customRoles.some((role) => one.role.startsWith(role)) ? one.actions : []));
  const assignmentAt = (where: string, dataActions: string[]): Assignment => ({
    scope: where,
    actions: [],
    dataActions,
  });
  const secrets = (...names: string[]) => names.map((name) => `Microsoft.KeyVault/vaults/secrets/${name}`);
  granted = [
    {
      scope,
      actions: [...new Set(actions)],
      // The data actions that the service uses. The built-in roles that it has contain them by wildcards.
      dataActions: [
        ...secrets("readMetadata/action", "getSecret/action", "setSecret/action", "update/action", "delete"),
        "Microsoft.KeyVault/vaults/keys/read",
        "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
        "Microsoft.KeyVault/vaults/certificates/read",
        "Microsoft.AppConfiguration/configurationStores/keyValues/read",
      ],
    },
    assignmentAt(
      control.vaultId(SERVICE_VAULT)!,
      secrets("getSecret/action", "setSecret/action", "update/action", "delete"),
    ),
    assignmentAt(CONFIGURATION_RESOURCE, ["Microsoft.AppConfiguration/configurationStores/keyValues/read"]),
    {
      scope: MAIL_RESOURCE,
      actions: ["Microsoft.Communication/CommunicationServices/read"],
      dataActions: [],
    },
    ...workspaces.map(({ resourceId }) => ({
      scope: resourceId,
      actions: ["Microsoft.OperationalInsights/workspaces/query/read"],
      dataActions: [],
    })),
  ];
  const shop = control.tenants.list().find(({ domain }) => domain === "acmeshop.onmicrosoft.com")!;
  await services.b2c.register(
    NewTenant.parse({
      tenantId: shop.id,
      tenantDomain: shop.domain,
      displayName: shop.name,
      clientId: shop.clientId,
      clientSecret: secretValueOf(SHOP_REGISTRATION, "lifecycle"),
    }),
    caller,
  );
  for (const [provider, configuration] of Object.entries(control.providers.configurations())) {
    await services.sync.configurations.save(provider, ProviderChange.parse(configuration), undefined, caller);
  }
  await services.devops.configure({ orgUrl: `${service.environment.AZURE_DEVOPS_ENDPOINT}/acme` }, undefined, caller);
}, 300_000);
afterAll(() => service?.stop());
afterEach(() => {
  const { control } = service.cloud;
  control.allowOnly(undefined);
  control.clearFaults();
  control.directory.set({ permissions: graphPermissions });
});

/** Checks all calls with a licensed service. Starts new services, so that their tokens have the current permissions. */
async function check(): Promise<PermissionsCheck> {
  services = await servicesOf(service);
  return await createDoctor({ ...doctorDeps(services), licensed: async () => true }).check(caller);
}

const callOf = ({ calls }: PermissionsCheck, id: string): CheckedCall => calls.find(({ call }) => call.id === id)!;
const outcomes = (result: PermissionsCheck) =>
  Object.fromEntries(result.calls.map(({ call, outcome }) => [call.id, outcome]));
const missingIn = (result: PermissionsCheck) =>
  result.calls.filter(({ outcome }) => outcome === "permissionMissing" || outcome === "answeredWithBlanks");

/** Returns the identity's roles without an action: in all scopes, or in one. */
const without = (action: string, where?: string) =>
  granted.map((one) => {
    if (where !== undefined && one.scope !== where) return one;
    return {
      ...one,
      actions: one.actions.filter((other) => other !== action),
      dataActions: one.dataActions.filter((other) => other !== action),
    };
  });

describe("with all permissions", () => {
  test("no permission is missing, and each call is made once at most, reading only", async () => {
    const { control } = service.cloud;
    control.allowOnly(granted);
    await check();
    control.resetCounts();
    service.clearTableRequests();
    const result = await createDoctor({ ...doctorDeps(services), licensed: async () => true }).check(caller);
    const attention = result.calls.filter(({ outcome }) => !["works", "notProven", "off"].includes(outcome));
    expect(attention).toEqual([]);
    const report = JSON.stringify(result);
    // The report must contain no value of a secret. Short values could occur in it by chance.
    const values = control
      .vaults()
      .flatMap(({ name: vault }) =>
        control.items(vault, "secrets").map(({ name }) => control.secretValue(vault, name)!),
      )
      .filter(({ length }) => length >= 16);
    expect(values.length).toBeGreaterThan(20);
    expect(values.filter((value) => report.includes(value))).toEqual([]);
    expect(result.ok).toBe(true);
    expect(result.sample).toMatchObject({ subscriptions: { checked: 1, total: 1 }, vaults: { checked: 5 } });
    const notProven = result.calls.filter(({ outcome }) => outcome === "notProven").map(({ call }) => call.id);
    expect(notProven.sort()).toEqual(["mail.send", "storage.blobs", "telemetry.send"]);

    const requests = control.requests({}).filter(({ operation }) => operation !== "identity.token");
    expect(requests.filter(({ method, operation }) => method !== "GET" && !READING_POSTS.includes(operation))).toEqual(
      [],
    );
    expect(requests.filter(({ status, operation }) => status === 403 || operation === "unknown")).toEqual([]);
    expect(requests.length).toBeGreaterThan(60);
    expect(requests.length).toBeLessThan(200);
    // A connection test of a tenant is recorded in the audit log, as every one is.
    const writes = service.tableRequests().filter(({ method }) => method !== "GET");
    expect(writes.filter(({ path }) => !/Audit|\$batch/.test(path))).toEqual([]);
    expect(writes.length).toBeLessThanOrEqual(3);
  }, 300_000);

  test("requests at the same time share one check", async () => {
    service.cloud.control.allowOnly(granted);
    const doctor = createDoctor({ ...doctorDeps(services), licensed: async () => true });
    service.cloud.control.resetCounts();
    const [first, second] = await Promise.all([doctor.check(caller), doctor.check(caller)]);
    expect(second).toBe(first);
    expect(service.cloud.control.counts()["arm.listSubscriptions"] ?? 0).toBeLessThanOrEqual(1);
  }, 300_000);

  test("features that need a license are off without one", async () => {
    service.cloud.control.allowOnly(granted);
    const result = await services.doctor.check(caller);
    expect(outcomes(result)).toMatchObject({
      "keyVault.listSecrets": "works",
      "graph.listApplications": "off",
      "resourceGraph.resources": "off",
      "sync.aws": "off",
    });
    expect(result.ok).toBe(true);
  }, 300_000);
});

/** Requests by POST that change nothing. */
const READING_POSTS = [
  "arm.queryResourceGraph",
  "loganalytics.query",
  "entra.token",
  "google.token",
  "kubernetes.reviewAccess",
  "secretsmanager.describeSecret",
];

describe("each permission that is removed is named", () => {
  test("in the roles of watched subscriptions", async () => {
    const [watched] = granted;
    const notNamed: string[] = [];
    services = await servicesOf(service);
    const deps = { ...doctorDeps(services), licensed: async () => true };
    for (const action of [...watched!.actions, ...watched!.dataActions]) {
      // Checks only the calls that need this permission. The test with all permissions checks the others.
      const name = ROLE_OF_ACTION[action] ?? action;
      const calls = CALLS.filter(
        ({ id, permissions }) => permissions.includes(name) && !CALLS_ON_OWN_RESOURCES.includes(id),
      );
      service.cloud.control.allowOnly(without(action, scope));
      const result = await createDoctor(deps, calls).check(caller);
      const missing = result.calls.filter(({ outcome }) => outcome === "permissionMissing");
      const withFix = missing.filter(({ findings }) => findings.some(({ command, remedy }) => command ?? remedy));
      // A call names the action in a finding, or needs no other permission.
      const named = withFix.filter(
        ({ call, findings }) =>
          findings.some(({ detail }) => detail?.includes(action)) || call.permissions.every((one) => one === name),
      );
      if (named.length === 0) notNamed.push(`${action}: ${JSON.stringify(missing)}`);
    }
    expect(notNamed).toEqual([]);
    expect(watched!.actions).toEqual(expect.arrayContaining([...RESOURCE_ACTIONS]));
  }, 600_000);

  test.each([
    [
      "the service's own vault",
      () => undefined,
      "Microsoft.KeyVault/vaults/secrets/getSecret/action",
      "serviceVault.readSecret",
    ],
    [
      "its settings",
      () => granted[2]!,
      "Microsoft.AppConfiguration/configurationStores/keyValues/read",
      "appConfiguration.settings",
    ],
    ["mail", () => granted[3]!, "Microsoft.Communication/CommunicationServices/read", "mail.readOutcome"],
    ["logs", () => granted[4]!, "Microsoft.OperationalInsights/workspaces/query/read", "logAnalytics.query"],
  ])(
    "for %s",
    async (_, assignment, action, id) => {
      // No assignment: the action is removed in all scopes.
      service.cloud.control.allowOnly(without(action, assignment()?.scope));
      const found = callOf(await check(), id);
      expect(found.outcome).toBe("permissionMissing");
      expect(found.findings[0]!.command).toMatch(/^az (role assignment|deployment group) create /);
    },
    300_000,
  );

  test.each([
    ["Application.Read.All", "graph.listApplications"],
    ["Application.ReadWrite.OwnedBy", "graph.addPassword"],
    ["Policy.Read.ApplicationConfiguration", "graph.readPolicy"],
    ["User.ReadBasic.All", "graph.namesOfOwners"],
  ])(
    "in Microsoft Graph: %s",
    async (permission, id) => {
      const { directory } = service.cloud.control;
      // The permission Application.ReadWrite.OwnedBy would also suffice to list applications, so the test removes it too.
      const candidates =
        permission === "Application.Read.All" ? ["Policy.Read.ApplicationConfiguration"] : graphPermissions;
      directory.set({ permissions: candidates.filter((one) => one !== permission) });
      const result = await check();
      const { outcome, findings } = callOf(result, id);
      expect(outcome).toBe(permission === "User.ReadBasic.All" ? "answeredWithBlanks" : "permissionMissing");
      expect(findings[0]!.command).toContain(`appRoles[?value=='${permission}']`);
      // A service that does not rotate needs only Application.Read.All.
      expect(result.ok).toBe(permission !== "Application.Read.All");
    },
    300_000,
  );

  test("for the first password: the read of the deployer's assignment on the service's own vault", async () => {
    const vaultId = service.cloud.control.vaultId(SERVICE_VAULT)!;
    const settings = { DEPLOYER_OBJECT_ID: service.cloud.app.objectId, SERVICE_KEY_VAULT_ID: vaultId };
    const action = "Microsoft.Authorization/roleAssignments/read";
    const officer: Assignment = { scope: vaultId, actions: [action], dataActions: [] };
    const calls = CALLS.filter(({ id }) => id === "firstPassword.readAssignment");
    // Only the officer's role on the vault permits the read. The roles in the watched subscription don't.
    const withoutOfficer = without(action);
    const checkWith = async (assignments: Assignment[]) => {
      service.cloud.control.allowOnly(assignments);
      services = await servicesOf(service, settings);
      return callOf(await createDoctor(doctorDeps(services), calls).check(caller), "firstPassword.readAssignment");
    };
    expect((await checkWith([...withoutOfficer, officer])).outcome).toBe("works");
    const denied = await checkWith(withoutOfficer);
    expect(denied.outcome).toBe("permissionMissing");
    expect(denied.call.permissions).toEqual([action]);
    expect(denied.findings).toMatchObject([
      {
        resource: "the service's own key vault",
        command: expect.stringMatching(
          `^az role assignment create .*--role "Key Vault Secrets Officer" --scope "${vaultId}"$`,
        ),
      },
    ]);
    // Without the two settings the feature is off.
    services = await servicesOf(service);
    const off = await createDoctor(doctorDeps(services), calls).check(caller);
    expect(outcomes(off)).toEqual({ "firstPassword.readAssignment": "off" });
  }, 300_000);

  test("on the service's own vault: the permission to write", async () => {
    const settings = { SERVICE_KEY_VAULT_ID: service.cloud.control.vaultId(SERVICE_VAULT)! };
    const calls = CALLS.filter(({ id }) => id === "serviceVault.writeSecret");
    const checkWith = async (assignments: Assignment[]) => {
      service.cloud.control.allowOnly(assignments);
      services = await servicesOf(service, settings);
      return callOf(await createDoctor(doctorDeps(services), calls).check(caller), "serviceVault.writeSecret");
    };
    expect((await checkWith(granted)).outcome).toBe("works");
    // The service writes secrets, changes their tags, and deletes secrets that it no longer uses.
    for (const name of ["setSecret/action", "update/action", "delete"]) {
      const action = `Microsoft.KeyVault/vaults/secrets/${name}`;
      const denied = await checkWith(without(action));
      expect([action, denied.outcome, denied.findings.length]).toEqual([action, "permissionMissing", 1]);
      expect(denied.findings[0]!.detail).toContain(action);
      expect(denied.findings[0]!.command).toContain(
        `--role "Key Vault Secrets Officer" --scope "${settings.SERVICE_KEY_VAULT_ID}"`,
      );
    }
  }, 300_000);

  test("for mail: the permission to send", async () => {
    const action = "Microsoft.Communication/CommunicationServices/write";
    const resource = `${scope}/resourceGroups/rg/providers/Microsoft.Communication/CommunicationServices/acme`;
    const calls = CALLS.filter(({ id }) => id === "mail.send");
    const checkWith = async (actions: string[]) => {
      service.cloud.control.allowOnly([...granted, { scope: resource, actions, dataActions: [] }]);
      services = await servicesOf(service);
      return callOf(await createDoctor(doctorDeps(services), calls).check(caller), "mail.send");
    };
    expect((await checkWith([action])).outcome).toBe("works");
    const denied = await checkWith([]);
    // The resource may be elsewhere, so its role is not certainly missing.
    expect(denied.outcome).toBe("notProven");
    expect(denied.findings[0]!.detail).toContain(action);
    expect(denied.findings[0]!.command).toContain('--role "Communication and Email Service Owner"');
  }, 300_000);

  test("on the storage account: the roles for tables and queues", async () => {
    const account = `${scope}/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/stlifecycle`;
    const roles = {
      "storage.writeTables": "Microsoft.Storage/storageAccounts/tableServices/tables/entities/write",
      "storage.sendMessages": "Microsoft.Storage/storageAccounts/queueServices/queues/messages/write",
    };
    const calls = CALLS.filter(({ id }) => id in roles);
    const checkWith = async (dataActions: string[]) => {
      service.cloud.control.allowOnly([...granted, { scope: account, actions: [], dataActions }]);
      services = await servicesOf(service);
      const connection = {
        tableServiceUri: "https://stlifecycle.table.core.windows.net",
        queueServiceUri: "https://stlifecycle.queue.core.windows.net",
        credential: async () => Promise.reject(new Error("A check of roles does not open the storage account.")),
      };
      return await createDoctor({ ...doctorDeps(services), connection }, calls).check(caller);
    };
    const all = Object.values(roles);
    expect(Object.values(outcomes(await checkWith(all)))).toEqual(["works", "works"]);
    for (const [id, action] of Object.entries(roles)) {
      const result = await checkWith(all.filter((one) => one !== action));
      const found = callOf(result, id);
      // The account may be elsewhere, so its role is not certainly missing.
      expect(found.outcome).toBe("notProven");
      expect(found.findings[0]!.detail).toContain(action);
      expect(found.findings[0]!.command).toMatch(
        /^az role assignment create .*--role "Storage (Table|Queue) Data Contributor"/,
      );
    }
  }, 300_000);

  test.each([
    ["view", "devops.changeItems"],
    ["none", "devops.readItems"],
  ] as const)(
    "in Azure DevOps: the rights in a project, with only %s left",
    async (rights, id) => {
      const { projects } = service.cloud.control.devops.organization;
      for (const project of projects) project.rights = rights;
      const result = await check();
      for (const project of projects) project.rights = "manage";
      expect(callOf(result, id).outcome).toBe("permissionMissing");
      expect(callOf(result, id).findings.some(({ remedy }) => remedy !== undefined)).toBe(true);
      expect(callOf(result, "devops.connection").outcome).toBe("works");
    },
    300_000,
  );

  test("on the target of a sync record: the permission to read it", async () => {
    const { control } = service.cloud;
    services = await servicesOf(service);
    const vault = control
      .vaults()
      .find(({ subscriptionId: id, name }) => id === subscriptionId && control.items(name, "secrets").length > 0)!;
    const source = control.items(vault.name, "secrets").find(({ enabled }) => enabled);
    const { port } = new URL(service.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
    const record = {
      ...vaultRecord(vault.name, subscriptionId),
      id: control.vaultId(vault.name)!,
      vaultUri: `https://${vault.name}.vault.localhost:${port}/`,
    };
    await services.tables.put(Vaults, VAULTS, vaultKey(vault.name), record);
    const target = { targetProvider: "hashicorp", targetService: "kv", targetName: "app/doctor" };
    await services.sync.records.create(
      NewSyncRecord.parse({ sourceVault: vault.name, sourceSecret: source!.name, ...target, enabled: false }),
      caller,
    );
    const found = async () => callOf(await check(), "sync.hashicorp");
    expect(await found()).toMatchObject({ outcome: "works", checked: 2 });
    control.addFault({ match: { operation: "hashicorp.kv.readMetadata" }, action: { kind: "fail", status: 403 } });
    const denied = await found();
    expect(denied).toMatchObject({ outcome: "permissionMissing", works: 1, checked: 2 });
    const finding = { resource: "target app/doctor", outcome: "permissionMissing" };
    expect(denied.findings).toContainEqual(expect.objectContaining(finding));
    expect((await services.sync.configurations.find("hashicorp"))?.refused).toBeUndefined();
  }, 300_000);

  test("in Azure DevOps: the membership in the organization", async () => {
    const { devops } = service.cloud.control;
    const members = [...devops.members];
    devops.set({ members: [] });
    const found = callOf(await check(), "devops.connection");
    devops.set({ members });
    expect(found.outcome).toBe("permissionMissing");
  }, 300_000);

  test.each([
    "Organization.Read.All",
    "Application.Read.All",
    "TrustFrameworkKeySet.Read.All",
    "IdentityProvider.Read.All",
  ])(
    "in a B2C tenant: %s",
    async (permission) => {
      const { tenants } = service.cloud.control;
      const directory = tenants.directory("acmeshop.onmicrosoft.com");
      const { permissions } = directory.settings();
      directory.set({ permissions: permissions.filter((one) => one !== permission) });
      const found = missingIn(await check()).filter(({ call }) => call.id.startsWith("b2c."));
      directory.set({ permissions });
      expect(found.map(({ call }) => call.permissions)).toEqual([[permission]]);
    },
    300_000,
  );
});

/** Calls that need the action on the service's own vault or its own settings, not in the watched subscription. */
const CALLS_ON_OWN_RESOURCES = ["serviceVault.readSecret", "serviceVault.writeSecret", "appConfiguration.settings"];

/** Data actions of built-in roles, with the role. `permissions` of a call names the role, not the action. */
const ROLE_OF_ACTION: Record<string, string> = {
  "Microsoft.KeyVault/vaults/secrets/setSecret/action": "Key Vault Secrets Officer",
  "Microsoft.KeyVault/vaults/secrets/update/action": "Key Vault Secrets Officer",
  "Microsoft.KeyVault/vaults/secrets/delete": "Key Vault Secrets Officer",
  "Microsoft.AppConfiguration/configurationStores/keyValues/read": "App Configuration Data Reader",
};

describe("other failures", () => {
  test("a call that never ends is not proven, and the others are reported", async () => {
    const hanging: OutgoingCall = { ...CALLS[0]!, id: "hanging", check: () => new Promise(() => {}) };
    const later: OutgoingCall = {
      ...CALLS[0]!,
      id: "later",
      check: async () => [{ outcome: "works", resource: "one" }],
    };
    const result = await createDoctor(doctorDeps(services), [later, hanging], 1).check(caller);
    expect(outcomes(result)).toEqual({ later: "works", hanging: "notProven" });
    expect(callOf(result, "hanging").findings[0]!.detail).toMatch(/^The check ended after 120 seconds/);
  }, 300_000);

  test("a firewall and a host that does not answer are unreachable, with the rule to add", async () => {
    const { control } = service.cloud;
    const [first, second] = control.vaults().filter(({ subscriptionId: id }) => id === subscriptionId);
    expect(second).toBeDefined();
    control.changeVault(first!.name, { reach: "firewalled" });
    control.addFault({ match: { operation: "arm.diagnosticSettings" }, action: { kind: "reset" } });
    const result = await check();
    control.changeVault(first!.name, { reach: "open" });
    const list = callOf(result, "keyVault.listSecrets");
    expect(list.outcome).toBe("unreachable");
    expect(list.findings[0]!.remedy).toMatch(/firewall/);
    expect(callOf(result, "arm.diagnosticSettings").outcome).toBe("unreachable");
    expect(result.ok).toBe(false);
  }, 300_000);

  test("credentials that a sync target rejects are reported, and not marked as rejected", async () => {
    const { control } = service.cloud;
    control.addFault({ match: { operation: "secretsmanager.*" }, action: { kind: "fail", status: 401 } });
    const result = await check();
    expect(callOf(result, "sync.aws").outcome).toBe("failed");
    expect((await services.sync.configurations.find("aws"))?.refused).toBeUndefined();
  }, 300_000);
});

test("actions with the same obstacle name it once", async () => {
  const unknown = notProven("kv-a", "The roles can't be read.");
  const missing = notProven("kv-a", "No role permits delete.");
  const join = (...results: Result[]) => joinActions(results.map(async (result) => [result]));
  expect(await join(unknown, unknown, unknown)).toEqual([unknown]);
  expect(await join(unknown, unknown, missing)).toEqual([
    { ...unknown, detail: `${unknown.detail} ${missing.detail}` },
  ]);
});

test("every call has a name of its own, and a page", () => {
  expect(new Set(CALLS.map(({ id }) => id)).size).toBe(CALLS.length);
  expect(CALLS.length).toBeGreaterThan(60);
});
