import { appIdOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { company as companyWithTenants, registrationOf } from "../b2c/support.ts";
import { authorityBody } from "../certificate-renewal/renewal-service.ts";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";

// Tests of the versions of single resources, whose address has an id: `ETag`, `If-None-Match` and 304 for each of them.
// versions.test.ts tests the answers without an id.

const SUBSCRIPTION = "77777777-7777-4777-8777-777777777777";
const APP = "Shop API";
const company: Company = {
  ...companyWithTenants,
  subscriptions: [
    {
      name: "Shop",
      id: SUBSCRIPTION,
      vaults: [{ name: "kv-shop", secrets: [{ name: "db" }], certificates: [{ name: "www" }] }, { name: "kv-copies" }],
    },
  ],
  applications: [{ name: APP, secrets: [{ name: "current", expiresInDays: 20 }] }],
};

let service: Service;
let token: string;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
  token = await service.signIn(ADMIN);
  expect(await service.scan()).toMatchObject({ status: "completed" });
});
afterAll(() => service?.stop());

/** Creates a resource and returns the answer's body. */
async function create(method: string, path: string, body: object) {
  const answer = await service.call(method, path, { token, body });
  expect([200, 201], `${path}: ${answer.text}`).toContain(answer.status);
  return answer.body;
}

/** Creates one resource of each kind. Returns their addresses by the path of the OpenAPI document. */
async function createResources(): Promise<Record<string, string>> {
  const rotation = "/api/automation/rotation";
  const sync = "/api/automation/sync";
  const until = new Date(Date.now() + 30 * 86_400_000).toISOString();
  const registration = registrationOf(service.cloud, "outlet", { autoDiscover: false });
  await create("POST", `${rotation}/discover`, {});
  await create("PUT", `${rotation}/apps/${appIdOf(APP)}/policy`, { automatic: false });
  await create("POST", `${sync}/providers/aws`, service.cloud.control.providers.configurations().aws!);
  await create("POST", "/b2c/tenants", registration);
  await create("POST", "/subscriptions", { subscriptionId: SUBSCRIPTION, name: "Shop" });
  const rule = { name: "Soon", alertType: "expiration", deliveryMethod: "email", recipients: ["a@acme.example"] };
  const { id: ruleId } = await create("POST", "/alerts/rules", rule);
  const { id: exemptionId } = await create("POST", "/compliance/exemptions", {
    checkId: "secret-expired",
    scope: { type: "vault", id: "kv-shop" },
    category: "waiver",
    reason: "Accepted until the migration is over.",
    until: until.slice(0, 10),
  });
  const { recordId } = await create("POST", `${sync}/records`, {
    sourceVault: "kv-shop",
    sourceSecret: "db",
    targetProvider: "azure",
    targetService: "keyvault",
    targetRegion: "kv-copies",
    targetName: "db",
    enabled: false,
  });
  const renewal = "/api/automation/certificates";
  const { authorityId } = await create("POST", `${renewal}/authorities`, authorityBody(service));
  const certificatePolicy = `${renewal}/kv-shop.certificate.www/policy`;
  await create("PUT", certificatePolicy, { authorityId });
  const { id: streamId } = await create("POST", "/audit/streams", {
    name: "Hub",
    destination: "eventHubs",
    endpoint: `https://evhns-lifecycle.servicebus.localhost:${new URL(service.environment.SERVICE_KEY_VAULT_URL!).port}`,
    eventHub: "audit",
    enabled: false,
  });
  return {
    "/api/automation/certificates/authorities/{authority_id}": `${renewal}/authorities/${authorityId}`,
    "/api/automation/certificates/{asset_id}/policy": certificatePolicy,
    "/audit/streams/{stream_id}": `/audit/streams/${streamId}`,
    "/auth/users/{user_id}": `/auth/users/${ADMIN.username}`,
    "/alerts/rules/{rule_id}": `/alerts/rules/${ruleId}`,
    "/subscriptions/{subscription_id}": `/subscriptions/${SUBSCRIPTION}`,
    "/compliance/exemptions/{exemption_id}": `/compliance/exemptions/${exemptionId}`,
    "/api/automation/rotation/apps/{app_id}/policy": `${rotation}/apps/${appIdOf(APP)}/policy`,
    "/api/automation/sync/records/{record_id}": `${sync}/records/${recordId}`,
    "/api/automation/sync/records/{record_id}/status": `${sync}/records/${recordId}/status`,
    "/api/automation/sync/providers/{provider}": `${sync}/providers/aws`,
    "/b2c/tenants/{tenant_id}": `/b2c/tenants/${registration.tenantId}`,
  };
}

test("every resource with a version and an id is answered with 304 while it has not changed", async () => {
  const resources = await createResources();
  const { body: document } = await service.call("GET", "/openapi.json");
  const versioned = Object.entries<{ get?: { responses: object } }>(document.paths).flatMap(([path, { get }]) =>
    path.includes("{") && get !== undefined && "304" in get.responses ? [path] : [],
  );
  expect(Object.keys(resources).sort()).toEqual(versioned.sort());
  for (const path of Object.values(resources)) {
    const read = (headers: Record<string, string>) =>
      service.call("GET", path, { token, headers: { "Accept-Encoding": "identity", ...headers } });
    const first = await read({});
    const etag = first.headers.get("etag")!;
    expect([first.status, etag], path).toEqual([200, expect.stringMatching(/^"[^"]+"$/)]);
    const same = await read({ "If-None-Match": etag });
    expect([same.status, same.text, same.headers.get("etag")], path).toEqual([304, "", etag]);
    const other = await read({ "If-None-Match": '"other"' });
    expect([other.status, other.body], path).toEqual([200, first.body]);
  }
});
