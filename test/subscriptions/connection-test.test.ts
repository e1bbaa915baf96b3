import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import path from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { CredentialType, Identity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { SAMPLED_VAULTS, testConnection } from "../../shared/subscriptions/connection-test.ts";
import { type OddServer, startOddServer } from "../azure/odd-server.ts";
import { IMPATIENT, plainIdentity, recordingLog, testConfig } from "../azure/services.ts";
import { stillClock } from "../settings/support.ts";

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
const SCOPE = `/subscriptions/${SUBSCRIPTION}`;
const OBJECT_ID = "99999999-9999-4999-8999-999999999999";

let server: OddServer;
beforeAll(async () => {
  server = await startOddServer();
});
afterAll(() => server.stop());

type Answer = { status: number; body: unknown };
const good = (body: unknown): Answer => ({ status: 200, body });
const refused = (status: number, code: string, inner?: string): Answer => ({
  status,
  body: { error: { code, message: "no", ...(inner ? { innererror: { code: inner } } : {}) } },
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

/** Responses of the cloud by host and path. Tests replace entries. */
let cloud: Map<string, Answer>;
beforeEach(() => {
  cloud = new Map();
  cloud.set(`management${SCOPE}`, good({ subscriptionId: SUBSCRIPTION, displayName: "Payments", state: "Enabled" }));
  setVaults([vault("kv-one")]);
  server.answer((request, response) => {
    const { status, body } = cloud.get(pathOf(request)) ?? good({ value: [] });
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
});
const pathOf = (request: IncomingMessage) =>
  `${request.headers.host?.split(".")[0]}${new URL(request.url ?? "", "https://x").pathname}`;
const setVaults = (vaults: object[]) =>
  cloud.set(`management${SCOPE}/providers/Microsoft.KeyVault/vaults`, good({ value: vaults }));

function run(identity: Partial<Identity> = {}, credentialType: CredentialType = "managedIdentity") {
  const config = testConfig({
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  const who: Identity = {
    ...plainIdentity,
    describe: async () => ({
      credentialType,
      objectId: OBJECT_ID,
      cloud: "AzureCloud",
      authorityHost: "https://login.localhost",
      tokenExpiresAt: "2026-11-21T11:00:00.000Z",
    }),
    ...identity,
  };
  const clients = { config, identity: who, log: recordingLog(), limits: IMPATIENT };
  return testConnection(SUBSCRIPTION, {
    resourceManager: createResourceManager(clients),
    keyVaults: createKeyVaults(clients),
    identity: who,
    clock: stillClock(),
  });
}

test("if everything can be read, every step succeeds", async () => {
  const result = await run();
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

test("a subscription without vaults succeeds", async () => {
  setVaults([]);
  const result = await run();
  expect([result.ok, result.sampledVaults, result.steps.length]).toEqual([true, [], 2]);
});

test("of many vaults a few are tested, spread over the listing", async () => {
  setVaults(Array.from({ length: 48 }, (_, i) => vault(`kv-${i}`)));
  const { sampledVaults, steps } = await run();
  expect(sampledVaults).toEqual([0, 9, 19, 28, 38].map((i) => vaultId(`kv-${i}`)));
  expect(sampledVaults).toHaveLength(SAMPLED_VAULTS);
  expect(steps).toHaveLength(2 + 3 * SAMPLED_VAULTS);
});

test("a subscription that can't be read is fixed by the watch template, with the identity filled in", async () => {
  cloud.set(`management${SCOPE}`, refused(404, "SubscriptionNotFound"));
  cloud.set(`management${SCOPE}/providers/Microsoft.KeyVault/vaults`, refused(403, "AuthorizationFailed"));
  const result = await run();
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

test("the command for a subscription deploys the watch template, with every required parameter", async () => {
  cloud.set(`management${SCOPE}`, refused(403, "AuthorizationFailed"));
  const command = (await run()).steps[0]!.remedy!.azCliCommand!;
  const file = /--template-file (\S+)/.exec(command)![1]!;
  const template = readFileSync(path.join(import.meta.dirname, "../..", file), "utf8");
  const required = [...template.matchAll(/^param (\w+) \w+$/gm)].map(([, name]) => name!);
  const given = [...command.slice(command.indexOf("--parameters")).matchAll(/(\w+)="/g)].map(([, name]) => name!);
  expect(given.sort()).toEqual(required.sort());
  expect(template).toContain("roleName: 'Credential Lifecycle Inventory Reader (");
});

test("a developer's own sign-in gets the role that the template created, since the template assigns service principals", async () => {
  cloud.set(`management${SCOPE}`, refused(403, "AuthorizationFailed"));
  const { remedy } = (await run({}, "developerSignIn")).steps[0]!;
  expect(remedy!.azCliCommand).toBe(
    `az role assignment create --assignee-object-id "${OBJECT_ID}" --assignee-principal-type User --role "Credential Lifecycle Inventory Reader (<environment name>, ${SUBSCRIPTION})" --scope "${SCOPE}"`,
  );
  expect(remedy!.text).toContain("infra/azure/watch/subscription.bicep");
});

test("a denied list of a vault with role-based access is fixed by Key Vault Reader, and the other lists are still tested", async () => {
  cloud.set("kv-one/keys", refused(403, "Forbidden", "ForbiddenByRbac"));
  const { steps } = await run();
  expect(steps.filter((one) => !one.ok)).toEqual([
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

test("a vault with access policies is fixed by its policy, not by a role", async () => {
  setVaults([vault("kv-old", { enableRbacAuthorization: false })]);
  for (const list of ["secrets", "keys", "certificates"])
    cloud.set(`kv-old/${list}`, refused(403, "Forbidden", "AccessDenied"));
  const { steps } = await run();
  const remedies = steps.slice(2).map((one) => one.remedy!);
  expect(remedies.map((one) => one.roleDefinition)).toEqual([null, null, null]);
  for (const { text } of remedies) expect(text).toMatch(/ The command needs Azure CLI 2\.90 or later\.$/);
  expect(remedies.map((one) => one.azCliCommand)).toEqual([
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --secret-permissions list`,
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --key-permissions list get getrotationpolicy`,
    `az keyvault set-policy --name "kv-old" --object-id "${OBJECT_ID}" --certificate-permissions list get`,
  ]);
});

test("a vault behind a firewall is fixed by its network rules, not by a role", async () => {
  cloud.set("kv-one/secrets", refused(403, "Forbidden", "ForbiddenByFirewall"));
  const failed = (await run()).steps.find((one) => !one.ok);
  expect([failed?.code, failed?.remedy?.roleDefinition]).toEqual(["firewall", null]);
  expect(failed?.remedy?.azCliCommand).toContain('az keyvault network-rule add --name "kv-one"');
  expect(failed?.remedy?.text).toMatch(/ The command needs Azure CLI 2\.90 or later\.$/);

  setVaults([vault("kv-one", { publicNetworkAccess: "Disabled" })]);
  const shut = (await run()).steps.find((one) => !one.ok);
  expect([shut?.code, shut?.remedy?.azCliCommand]).toEqual(["firewall", null]);
});

test("a vault with a foreign address fails, and nothing is sent there", async () => {
  setVaults([vault("kv-one", { vaultUri: `https://evil.localhost:${server.port}/` })]);
  const { steps } = await run();
  expect(steps.slice(2).map((one) => one.code)).toEqual(["foreignHost", "foreignHost", "foreignHost"]);
  expect(server.requests.some(({ host }) => host.startsWith("evil"))).toBe(false);
});

test("if the service does not know its own identity, the command has a placeholder", async () => {
  const { CloudFailure } = await import("../../shared/platform/azure/failure.ts");
  cloud.set(`management${SCOPE}`, refused(403, "AuthorizationFailed"));
  const describe = () => Promise.reject(new CloudFailure("unreachable", "No answer.", { remedy: "Wait." }));
  const command = (await run({ describe })).steps[0]?.remedy?.azCliCommand;
  expect(command).toContain("<object id of the service's identity>");
});
