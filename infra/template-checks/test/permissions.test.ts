import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type Assignment, CONFIGURATION_RESOURCE, MAIL_RESOURCE } from "simulated-cloud/authorization.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../../../test/support/service.ts";
import { parseTemplates } from "../check.ts";
import { readInfraFiles } from "../files.ts";
import { type Grant, grantsOf } from "../grants.ts";

// Tests that the roles that the Bicep templates grant to the service are sufficient. The service runs against the simulated
// cloud, which denies every request that these roles do not allow.

const SERVICE_VAULT = "kv-lifecycle-service";
const SUBSCRIPTION = "aaaaaaaa-1111-4111-8111-111111111111";

/**
 * A storage account that denies each request, as Azure does without a role. Tables answer in JSON, queues in XML:
 * https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
 */
const denyingStorage = createServer((incoming, answer) => {
  incoming.resume();
  const code = "AuthorizationPermissionMismatch";
  const message = "This request is not authorized to perform this operation using this permission.";
  const isJson = incoming.headers.accept?.includes("json");
  answer.writeHead(403, { "x-ms-error-code": code, "content-type": isJson ? "application/json" : "application/xml" });
  answer.end(
    isJson
      ? JSON.stringify({ "odata.error": { code, message: { lang: "en-US", value: message } } })
      : `<?xml version="1.0" encoding="utf-8"?><Error><Code>${code}</Code><Message>${message}</Message></Error>`,
  );
});

let service: Service;
/** Role assignments ("grants") to the identity of the service, read from the Bicep templates. */
let grants: Grant[];
/** Environment variables with the endpoints that the service uses with its identity instead of a connection string. */
let endpoints: Record<string, string>;
beforeAll(async () => {
  const allGrants = grantsOf((await parseTemplates(readInfraFiles())).bicep);
  grants = allGrants.filter(({ principal }) => principal === "{identity.principal_id}");
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
  endpoints = {
    COMMUNICATION_ENDPOINT: `https://acme.communication.localhost:${port}`,
    APP_CONFIGURATION_ENDPOINT: `https://acme.azconfig.localhost:${port}`,
  };
  await service.addHost(endpoints);
});
beforeAll(() => new Promise<void>((resolve) => denyingStorage.listen(0, "127.0.0.1", resolve)));
afterAll(async () => {
  await service?.stop();
  denyingStorage.close();
  denyingStorage.closeAllConnections();
});
afterEach(() => service.cloud.control.allowOnly(undefined));

/**
 * Converts grants of the templates to role assignments of the simulated cloud. Omits grants on storage, the function app and
 * telemetry, which the simulated cloud does not have.
 */
function toAssignments(templateGrants: readonly Grant[]): Assignment[] {
  const scopes: Record<string, string> = {
    // By the name of the scope in the templates.
    watched: `/subscriptions/${SUBSCRIPTION}`,
    vault: service.cloud.control.vaultId(SERVICE_VAULT)!,
    communication_service: MAIL_RESOURCE,
    app_configuration: CONFIGURATION_RESOURCE,
  };
  return templateGrants.flatMap(({ scope, actions, dataActions }) =>
    scopes[scope] ? [{ scope: scopes[scope], actions, dataActions }] : [],
  );
}

const assignmentsWithout = (role: string) => toAssignments(grants.filter((grant) => grant.role !== role));

/**
 * Returns environment variables with which one storage service denies each request, as Azure does without a role on it. Azurite
 * itself does not evaluate roles.
 */
function withDeniedStorage(kind: "Table" | "Queue"): Record<string, string> {
  const { port } = denyingStorage.address() as AddressInfo;
  const connectionString = service.environment.AzureWebJobsStorage!;
  expect(connectionString).toContain(`${kind}Endpoint=`);
  const denied = `${kind}Endpoint=http://127.0.0.1:${port}/devstoreaccount1`;
  return { ...endpoints, AzureWebJobsStorage: connectionString.replace(new RegExp(`${kind}Endpoint=[^;]+`), denied) };
}

/** Returns the unhealthy dependencies that `/health` lists. Starts a new host, because a running one has cached results. */
async function unhealthyDependencies(environment = endpoints): Promise<string[]> {
  const host = await service.addHost(environment);
  const token = await service.signIn(ADMIN);
  const { body } = await service.call("GET", `${host.url}/health?deep=true`, { token });
  await host.stop("SIGKILL");
  service.hosts.pop();
  const dependencies = body.dependencies as { name: string; status: string }[];
  return dependencies.filter(({ status }) => status !== "healthy").map(({ name }) => name);
}

test("the roles of the templates allow scans, alerts by mail and webhook, and the health check", {
  timeout: 300_000,
}, async () => {
  expect(grants.map(({ role }) => role)).toContain("Key Vault Reader");
  service.cloud.control.allowOnly(toAssignments(grants));
  service.cloud.control.resetCounts();
  service.cloud.control.setConfiguration("credential-lifecycle:warningExpiryDays", "77");

  const scan = await service.scan();
  expect(scan).toMatchObject({ status: "completed" });
  const { body: assets } = await service.admin("GET", "/api/assets/discovery/assets");
  expect(assets.items).toHaveLength(3);

  const rule = { name: "Team", alertType: "expiration", recipients: ["team@acme.example"] };
  const mailRule = await service.admin("POST", "/alerts/rules", rule);
  expect(mailRule.status).toBe(201);
  const sent = await service.admin("POST", `${mailRule.headers.get("location")}/test`);
  expect(sent.body.delivery.status).toBe("delivered");
  const webhookUrl = `${service.cloud.controlUrl.replace("/control", "")}/sink/hook`;
  const webhookRule = await service.admin("POST", "/alerts/rules", {
    name: "Hook",
    alertType: "expiration",
    deliveryMethod: "webhook",
    webhookUrl,
  });
  expect(webhookRule.status).toBe(201);
  expect((await service.admin("DELETE", webhookRule.headers.get("location")!)).status).toBe(200);
  expect(await unhealthyDependencies()).toEqual([]);

  const counts = service.cloud.control.counts();
  const deniedRequests = service.cloud.control
    .requests({})
    .filter(({ status, operation }) => status === 403 && operation !== "unknown");
  expect(deniedRequests).toEqual([]);
  // The features above sent these requests, so each granted role was used.
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

describe("a missing role is reported", () => {
  test.each([
    ["Key Vault Reader", "the role Key Vault Reader on this vault"],
    [
      "inventoryReaderDefinition",
      "the custom role Credential Lifecycle Inventory Reader on the subscription (the deployment template for monitored subscriptions creates and assigns it",
    ],
  ])("%s, by the scan, with the role to assign", { timeout: 150_000 }, async (role, remedy) => {
    service.cloud.control.allowOnly(assignmentsWithout(role));
    const { scanId, status } = await service.scan();
    expect(status).not.toBe("completed");
    const { text } = await service.admin("GET", `/api/assets/discovery/scan/${scanId}/results`);
    expect(text).toContain("accessDenied");
    expect(text).toContain(remedy);
    expect(text).not.toMatch(/role Reader\b/);
  });

  test("Key Vault Secrets Officer, by the sign-in of a new process, which can't verify the signed rows of users", {
    timeout: 300_000,
  }, async () => {
    service.cloud.control.allowOnly(assignmentsWithout("Key Vault Secrets Officer"));
    const host = await service.addHost(endpoints);
    const answer = await service.call("POST", `${host.url}/auth/login`, { body: ADMIN });
    await host.stop("SIGKILL");
    service.hosts.pop();
    expect(answer.status).toBe(503);
    expect(answer.body.detail).toContain("Key Vault Secrets Officer");
  });

  test("Storage Queue Data Contributor, by the health check, which shows queues as unhealthy", {
    timeout: 300_000,
  }, async () => {
    expect(await unhealthyDependencies(withDeniedStorage("Queue"))).toEqual(["queues"]);
  });

  test("Storage Table Data Contributor, by the first request", { timeout: 300_000 }, async () => {
    const host = await service.addHost(withDeniedStorage("Table"));
    const signIn = await service.call("POST", `${host.url}/auth/login`, { body: ADMIN });
    await host.stop("SIGKILL");
    service.hosts.pop();
    expect(signIn.status).toBe(503);
    expect(signIn.body.detail).toContain("Storage Table Data Contributor");
  });

  test.each([
    ["Communication and Email Service Owner", "mail"],
    ["App Configuration Data Reader", "appConfiguration"],
  ])("%s, by the health check, which shows %s as unhealthy", { timeout: 300_000 }, async (role, dependency) => {
    service.cloud.control.allowOnly(assignmentsWithout(role));
    expect(await unhealthyDependencies()).toEqual([dependency]);
  });
});
