import { type Assignment, CONFIGURATION_RESOURCE, MAIL_RESOURCE } from "simulated-cloud/authorization.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../../../test/support/service.ts";
import { parseTemplates } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Grant, grantsOf } from "../grants.ts";

const SERVICE_VAULT = "kv-lifecycle-service";
const SUBSCRIPTION = "aaaaaaaa-1111-4111-8111-111111111111";

let service: Service;
let grants: Grant[];
/** Dependencies that the service reaches with its identity instead of a connection string. */
let addresses: Record<string, string>;
beforeAll(async () => {
  const all = grantsOf((await parseTemplates(readInfraFiles())).bicep);
  grants = all.filter(({ principal }) => principal === "{identity.principal_id}");
  const item = [{ name: "one", expiresInDays: 5 }];
  const vault = { name: "kv-watched", secrets: item, keys: item, certificates: [{ name: "one" }] };
  service = await Service.start({
    company: { subscriptions: [{ name: "Payments", id: SUBSCRIPTION, vaults: [vault] }] },
    hosts: 0,
    env: {
      COMMUNICATION_CONNECTION_STRING: "",
      APP_CONFIGURATION_CONNECTION_STRING: "",
      ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
    },
  });
  const { port } = new URL(service.environment.AZURE_RESOURCE_MANAGER_ENDPOINT!);
  addresses = {
    COMMUNICATION_ENDPOINT: `https://acme.communication.localhost:${port}`,
    APP_CONFIGURATION_ENDPOINT: `https://acme.azconfig.localhost:${port}`,
  };
  await service.addHost(addresses);
});
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.allowOnly(undefined));

/** Scopes of the templates in the simulated cloud. Storage, host and telemetry don't exist there. */
function assignments(of: readonly Grant[]): Assignment[] {
  const scopes: Record<string, string> = {
    watched: `/subscriptions/${SUBSCRIPTION}`,
    vault: service.cloud.control.vaultId(SERVICE_VAULT)!,
    communication_service: MAIL_RESOURCE,
    app_configuration: CONFIGURATION_RESOURCE,
  };
  return of.flatMap(({ scope, actions, dataActions }) =>
    scopes[scope] ? [{ scope: scopes[scope], actions, dataActions }] : [],
  );
}

const without = (role: string) => assignments(grants.filter((grant) => grant.role !== role));

/** Output of a new process without cached state. */
async function unhealthy(): Promise<string[]> {
  const host = await service.addHost(addresses);
  const token = await service.signIn(ADMIN);
  const { body } = await service.call("GET", `${host.url}/health?deep=true`, { token });
  await host.stop("SIGKILL");
  service.hosts.pop();
  const dependencies = body.dependencies as { name: string; status: string }[];
  return dependencies.filter(({ status }) => status !== "healthy").map(({ name }) => name);
}

test("with exactly what the templates grant, every feature works", { timeout: 300_000 }, async () => {
  expect(grants.map(({ role }) => role)).toContain("Key Vault Reader");
  service.cloud.control.allowOnly(assignments(grants));
  service.cloud.control.resetCounts();
  service.cloud.control.setConfiguration("credential-lifecycle:warningExpiryDays", "77");

  const scan = await service.scan();
  expect(scan).toMatchObject({ status: "completed" });
  const { body: assets } = await service.admin("GET", "/api/assets/discovery/assets");
  expect(assets.items).toHaveLength(3);

  const rule = { name: "Team", alertType: "expiration", recipients: ["team@acme.example"] };
  const mail = await service.admin("POST", "/alerts/rules", rule);
  expect(mail.status).toBe(201);
  const sent = await service.admin("POST", `${mail.headers.get("location")}/test`);
  expect(sent.body.delivery.status).toBe("delivered");
  const webhookUrl = `${service.cloud.controlUrl.replace("/control", "")}/sink/hook`;
  const webhook = await service.admin("POST", "/alerts/rules", {
    name: "Hook",
    alertType: "expiration",
    deliveryMethod: "webhook",
    webhookUrl,
  });
  expect(webhook.status).toBe(201);
  expect((await service.admin("DELETE", webhook.headers.get("location")!)).status).toBe(200);
  expect(await unhealthy()).toEqual([]);

  const counts = service.cloud.control.counts();
  const refused = service.cloud.control
    .requests({})
    .filter(({ status, operation }) => status === 403 && operation !== "unknown");
  expect(refused).toEqual([]);
  // Permissions that the features used, to detect a role that nothing needs.
  expect(Object.keys(counts)).toEqual(
    expect.arrayContaining([
      "arm.listVaults",
      "arm.diagnosticSettings",
      "keyvault.listSecrets",
      "keyvault.listKeys",
      "keyvault.getRotationPolicy",
      "keyvault.getCertificate",
      "keyvault.setSecret",
      "keyvault.deleteSecret",
      "mail.send",
      "appconfiguration.list",
    ]),
  );
});

describe("a role that is missing is named", () => {
  test.each([
    ["Key Vault Reader", "the role Key Vault Reader on this vault"],
    [
      "inventoryReaderDefinition",
      "the custom role Credential Lifecycle Inventory Reader on the subscription: deploy infra/azure/watch/subscription.bicep there",
    ],
  ])("%s, by the scan", { timeout: 150_000 }, async (role, remedy) => {
    service.cloud.control.allowOnly(without(role));
    const { scanId, status } = await service.scan();
    expect(status).not.toBe("completed");
    const { text } = await service.admin("GET", `/api/assets/discovery/scan/${scanId}/results`);
    expect(text).toContain("accessDenied");
    expect(text).toContain(remedy);
    expect(text).not.toMatch(/role Reader\b/);
  });

  test.each([
    ["Key Vault Secrets Officer", "serviceKeyVault"],
    ["Communication and Email Service Owner", "mail"],
    ["App Configuration Data Reader", "appConfiguration"],
  ])("%s, by the health of %s", { timeout: 300_000 }, async (role, dependency) => {
    service.cloud.control.allowOnly(without(role));
    expect(await unhealthy()).toEqual([dependency]);
  });
});
