import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { CredentialType, Identity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { SAMPLED_VAULTS, testConnection } from "../../shared/subscriptions/connection-test.ts";
import { type FakeServer, startFakeServer } from "../azure/odd-server.ts";
import { fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "../azure/services.ts";
import { stillClock } from "../settings/support.ts";

// Tests of the connection test of a subscription, which tries what a scan reads and names the fix for what it can't read. The
// cloud is a fake server whose responses the tests replace.

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const SCOPE = `/subscriptions/${SUBSCRIPTION}`;
const SUBNET = `${SCOPE}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions`;
const OBJECT_ID = "99999999-9999-4999-8999-999999999999";

let server: FakeServer;
beforeAll(async () => {
  server = await startFakeServer();
});
afterAll(() => server.stop());

type CloudResponse = { status: number; body: unknown };
const success = (body: unknown): CloudResponse => ({ status: 200, body });
const failure = (status: number, code: string, innerCode?: string): CloudResponse => ({
  status,
  body: { error: { code, message: "no", ...(innerCode ? { innererror: { code: innerCode } } : {}) } },
});

const vaultId = (name: string) => `${SCOPE}/resourceGroups/rg-shared/providers/Microsoft.KeyVault/vaults/${name}`;
const vault = (name: string, properties: object = {}) => ({
  id: vaultId(name),
  name,
  location: "westeurope",
  properties: {
    tenantId: OBJECT_ID,
    sku: { family: "A", name: "standard" },
    vaultUri: `https://${name}.vault.localhost:${server.port}/`,
    enableRbacAuthorization: true,
    ...properties,
  },
});

/** Responses by the first label of the host name and the path, for example `kv-one/secrets`. All others are empty lists. */
let cloud: Map<string, CloudResponse>;
beforeEach(() => {
  cloud = new Map();
  cloud.set(`management${SCOPE}`, success({ subscriptionId: SUBSCRIPTION, displayName: "Payments", state: "Enabled" }));
  setVaults([vault("kv-one")]);
  server.setResponse((request, response) => {
    const { status, body } = cloud.get(pathOf(request)) ?? success({ value: [] });
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
});
const pathOf = (request: IncomingMessage) =>
  `${request.headers.host?.split(".")[0]}${new URL(request.url ?? "", "https://x").pathname}`;
const setVaults = (vaults: object[]) =>
  cloud.set(`management${SCOPE}/providers/Microsoft.KeyVault/vaults`, success({ value: vaults }));

function runConnectionTest(
  identity: Partial<Identity> = {},
  credentialType: CredentialType = "managedIdentity",
  environment: Record<string, string> = {},
) {
  const config = testConfig({
    ...environment,
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  const testIdentity: Identity = {
    ...fakeIdentity,
    describe: async () => ({
      credentialType,
      objectId: OBJECT_ID,
      cloud: "AzureCloud",
      authorityHost: "https://login.localhost",
      tokenExpiresAt: "2026-11-21T11:00:00.000Z",
    }),
    ...identity,
  };
  const clients = { config, identity: testIdentity, log: recordingLog(), limits: SHORT_WAITS };
  return testConnection(SUBSCRIPTION, {
    resourceManager: createResourceManager(clients),
    keyVaults: createKeyVaults(clients),
    identity: testIdentity,
    clock: stillClock(),
    config,
  });
}

test("all steps succeed if everything can be read", async () => {
  const result = await runConnectionTest();
  expect(result).toMatchObject({
    subscriptionId: SUBSCRIPTION,
    ok: true,
    testedAt: "2026-11-21T10:00:00.000Z",
    sampledVaults: [vaultId("kv-one")],
  });
  expect(result.steps.map(({ step, resource, ok }) => [step, resource, ok])).toEqual([
    ["subscriptionReadable", SCOPE, true],
    ["vaultsListable", SCOPE, true],
    ["secretsListable", vaultId("kv-one"), true],
    ["keysListable", vaultId("kv-one"), true],
    ["certificatesListable", vaultId("kv-one"), true],
  ]);
  expect(result.steps.every(({ code, detail, remedy }) => code === null && detail === null && remedy === null)).toBe(
    true,
  );
});

test("the test of a subscription without vaults succeeds", async () => {
  setVaults([]);
  const result = await runConnectionTest();
  expect([result.ok, result.sampledVaults, result.steps.length]).toEqual([true, [], 2]);
});

test("five of 48 vaults are tested, spread over the list", async () => {
  setVaults(Array.from({ length: 48 }, (_, i) => vault(`kv-${i}`)));
  const { sampledVaults, steps } = await runConnectionTest();
  // Every 9.6th vault: 48 / 5.
  expect(sampledVaults).toEqual([0, 9, 19, 28, 38].map((i) => vaultId(`kv-${i}`)));
  expect(sampledVaults).toHaveLength(SAMPLED_VAULTS);
  expect(steps).toHaveLength(2 + 3 * SAMPLED_VAULTS);
});

test("the fix of a subscription that can't be read deploys the template that gives the service's identity access", async () => {
  cloud.set(`management${SCOPE}`, failure(404, "SubscriptionNotFound"));
  cloud.set(`management${SCOPE}/providers/Microsoft.KeyVault/vaults`, failure(403, "AuthorizationFailed"));
  const result = await runConnectionTest();
  expect(result.ok).toBe(false);
  expect(result.steps.map(({ step, code }) => [step, code])).toEqual([
    ["subscriptionReadable", "notFound"],
    ["vaultsListable", "accessDenied"],
  ]);
  for (const { remedy } of result.steps) {
    expect(remedy).toEqual({
      text: expect.stringContaining("Credential Lifecycle Inventory Reader"),
      roleDefinition: null,
      scope: SCOPE,
      azCliCommand: `az deployment sub create --subscription "${SUBSCRIPTION}" --location "<region>" --template-file infra/azure/watch/subscription.bicep --parameters principalId="${OBJECT_ID}" environmentName="<environment name>"`,
    });
    expect(remedy!.text).not.toMatch(/role Reader\b/);
  }
});

test("the command for a subscription sets all required parameters of the template that gives access", async () => {
  cloud.set(`management${SCOPE}`, failure(403, "AuthorizationFailed"));
  const command = (await runConnectionTest()).steps[0]!.remedy!.azCliCommand!;
  const file = /--template-file (\S+)/.exec(command)![1]!;
  const template = readFileSync(path.join(import.meta.dirname, "../..", file), "utf8");
  // Matches parameters without a default, for example `param principalId string`.
  const requiredParameters = [...template.matchAll(/^param (\w+) \w+$/gm)].map(([, name]) => name!);
  const passedParameters = [...command.slice(command.indexOf("--parameters")).matchAll(/(\w+)="/g)].map(
    ([, name]) => name!,
  );
  expect(passedParameters.sort()).toEqual(requiredParameters.sort());
  expect(template).toContain("roleName: 'Credential Lifecycle Inventory Reader (");
});

test("the fix for a developer's own sign-in assigns the template's role to a user, because the template assigns it to service principals", async () => {
  cloud.set(`management${SCOPE}`, failure(403, "AuthorizationFailed"));
  const { remedy } = (await runConnectionTest({}, "developerSignIn")).steps[0]!;
  expect(remedy!.azCliCommand).toBe(
    `az role assignment create --assignee-object-id "${OBJECT_ID}" --assignee-principal-type User --role "Credential Lifecycle Inventory Reader (<environment name>, ${SUBSCRIPTION})" --scope "${SCOPE}"`,
  );
  expect(remedy!.text).toContain("infra/azure/watch/subscription.bicep");
});

test("the fix of a denied list of a vault with role-based access assigns Key Vault Reader", async () => {
  cloud.set("kv-one/keys", failure(403, "Forbidden", "ForbiddenByRbac"));
  const { steps } = await runConnectionTest();
  expect(steps.filter((step) => !step.ok)).toEqual([
    {
      step: "keysListable",
      resource: vaultId("kv-one"),
      ok: false,
      code: "accessDenied",
      detail: expect.stringContaining("kv-one"),
      remedy: {
        text: expect.any(String),
        roleDefinition: { name: "Key Vault Reader", id: "21090545-7ca7-4776-b22c-e363652d74d2" },
        scope: vaultId("kv-one"),
        azCliCommand: expect.stringContaining(`--scope "${vaultId("kv-one")}"`),
      },
    },
  ]);
});

test("the fix of a vault with access policies changes its policy", async () => {
  setVaults([vault("kv-old", { enableRbacAuthorization: false })]);
  for (const list of ["secrets", "keys", "certificates"])
    cloud.set(`kv-old/${list}`, failure(403, "Forbidden", "AccessDenied"));
  const { steps } = await runConnectionTest();
  const remedies = steps.slice(2).map((step) => step.remedy!);
  expect(remedies.map((remedy) => remedy.roleDefinition)).toEqual([null, null, null]);
  for (const { text } of remedies) expect(text).toMatch(/ The command needs Azure CLI 2\.90 or later\.$/);
  expect(remedies.map((remedy) => remedy.azCliCommand)).toEqual([
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --secret-permissions list`,
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --key-permissions list get getrotationpolicy`,
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --certificate-permissions list get`,
  ]);
});

test("the fix of a vault behind a firewall changes its network rules", async () => {
  cloud.set("kv-one/secrets", failure(403, "Forbidden", "ForbiddenByFirewall"));
  const failed = (await runConnectionTest()).steps.find((step) => !step.ok);
  expect([failed?.code, failed?.remedy?.roleDefinition]).toEqual(["firewall", null]);
  expect(failed?.remedy?.azCliCommand).toContain('az keyvault network-rule add --name "kv-one"');
  expect(failed?.remedy?.text).toMatch(/ The command needs Azure CLI 2\.90 or later\.$/);

  setVaults([vault("kv-one", { publicNetworkAccess: "Disabled" })]);
  const withoutPublicAccess = (await runConnectionTest()).steps.find((step) => !step.ok);
  expect([withoutPublicAccess?.code, withoutPublicAccess?.remedy?.azCliCommand]).toEqual(["firewall", null]);
});

test.each([
  [
    { OUTBOUND_IP_ADDRESS: "20.1.2.3" },
    'az keyvault network-rule add --name "kv-one" --ip-address "20.1.2.3"',
    /^Allow the service's public address 20\.1\.2\.3 in the vault's firewall\./,
  ],
  [
    { OUTBOUND_SUBNET_ID: SUBNET },
    `az keyvault network-rule add --name "kv-one" --subnet "${SUBNET}"`,
    /^Allow the service's subnet in the vault's firewall\./,
  ],
  // The subnet of a service with a fixed address has no service endpoint.
  [
    { OUTBOUND_IP_ADDRESS: "20.1.2.3", OUTBOUND_SUBNET_ID: SUBNET },
    'az keyvault network-rule add --name "kv-one" --ip-address "20.1.2.3"',
    /public address/,
  ],
  [
    {},
    'az keyvault network-rule add --name "kv-one" --subnet "<subnet of the service>"',
    /^The service calls from changing addresses of the platform\. Deploy it with networkEnabled/,
  ],
])(
  "the fix of a vault behind a firewall names where the service calls from: %j",
  async (environment, command, text) => {
    cloud.set("kv-one/secrets", failure(403, "Forbidden", "ForbiddenByFirewall"));
    const { steps } = await runConnectionTest({}, "managedIdentity", environment);
    const remedy = steps.find((step) => !step.ok)?.remedy;
    expect(remedy?.azCliCommand).toBe(command);
    expect(remedy?.text).toMatch(text);
  },
);

test("nothing is sent to a vault address outside the cloud's key vault domain", async () => {
  setVaults([vault("kv-one", { vaultUri: `https://evil.localhost:${server.port}/` })]);
  const { steps } = await runConnectionTest();
  expect(steps.slice(2).map((step) => step.code)).toEqual(["foreignHost", "foreignHost", "foreignHost"]);
  expect(server.requests.some(({ host }) => host.startsWith("evil"))).toBe(false);
});

test("the command has a placeholder if the service does not know its own identity", async () => {
  const { CloudFailure } = await import("../../shared/platform/azure/failure.ts");
  cloud.set(`management${SCOPE}`, failure(403, "AuthorizationFailed"));
  const describe = () => Promise.reject(new CloudFailure("unreachable", "No answer.", { remedy: "Wait." }));
  const command = (await runConnectionTest({ describe })).steps[0]?.remedy?.azCliCommand;
  expect(command).toContain("<object id of the service's identity>");
});
