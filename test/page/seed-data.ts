/**
 * The data that the tests of the web page use: a simulated company, and objects that createSeedData creates through the API.
 * Many names contain markup that changes the page's title if the page interprets it.
 */
import { setTimeout as delay } from "node:timers/promises";
import { initialKey } from "simulated-cloud/arm/resource-keys.ts";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyTenant } from "simulated-cloud/company/tenants.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { applications } from "../applications/applications-fixture.ts";
import type { Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

/** Markup that must be shown as text. Short enough for every name field. */
export const MARKUP = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`;
/** Markup with a direction mark and a very long word, for names from other systems. */
export const HOSTILE = `${MARKUP}\u202egnp.exe ${"W".repeat(120)}`;

/** Number of secrets in the vault kv-many, which fill more than two pages of the asset list. */
export const MANY_ASSETS = 2_200;

/** A second tenant of the company that is not registered yet. */
export const OUTLET: CompanyTenant = {
  name: "Acme Outlet",
  domain: "acmeoutlet.onmicrosoft.com",
  type: "AAD B2C",
  registration: "Outlet Credential Lifecycle",
  applications: [
    { name: "Outlet Credential Lifecycle", secrets: [{ name: "lifecycle", expiresInDays: 60 }] },
    { name: "Outlet Web", secrets: [{ name: "web", expiresInDays: 5 }] },
  ],
};

/** The vault secret that stores the client secret of App 001. */
export const APP_001_SECRET = "kv-copies.secret.app-001";

const [firstApplication, ...otherApplications] = applications(3);
export const COMPANY: Company = {
  subscriptions: [
    {
      name: "Shop",
      vaults: [
        {
          name: "kv-shop",
          secrets: [
            { name: "db", expiresInDays: 20, tags: { owner: HOSTILE } },
            { name: "smtp", expiresInDays: 3 },
            { name: "gone", expiresInDays: -2 },
          ],
          keys: [{ name: "signing", expiresInDays: 200 }],
        },
        // A vault that denies the service access to its objects.
        { name: "kv-walled", generate: { secrets: 3 }, reach: "denied" },
        // Assets without violations of compliance checks. They fill more than two pages of the asset list.
        {
          name: "kv-many",
          secrets: Array.from({ length: MANY_ASSETS }, (_, index) => ({
            name: `many-${String(index).padStart(4, "0")}`,
            contentType: "text/plain",
            expiresInDays: 300,
            tags: { owner: "many" },
          })),
        },
        {
          name: "kv-copies",
          secrets: [
            {
              name: "app-001",
              contentType: "text/plain",
              expiresInDays: 300,
              tags: { "entra-app-id": appIdOf("App 001") },
            },
            {
              name: "storage-key",
              value: initialKey("Microsoft.Storage/storageAccounts", "stshop", "key1"),
              contentType: "text/plain",
              expiresInDays: 250,
              // Not on the day of the applications' client secrets, for which this secret would then be a likely match.
              createdDaysAgo: 85,
              tags: { owner: "shop" },
            },
          ],
        },
        // Certificates of which one is renewed by its policy, and one was imported by hand.
        {
          name: "kv-certificates",
          certificates: [
            { name: "shop", issuer: "DigiCert", expiresInDays: 250, tags: { owner: "shop" } },
            { name: "imported", issuer: "Unknown", expiresInDays: 200, tags: { owner: "shop" } },
          ],
        },
      ],
      resources: [
        { type: "Microsoft.Storage/storageAccounts", name: "stshop", kind: "StorageV2" },
        {
          type: "Microsoft.Web/sites",
          name: "app-orders",
          kind: "app,linux",
          identity: { system: true },
          properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
          settings: { DB: "@Microsoft.KeyVault(VaultName=kv-shop;SecretName=db)" },
          tags: { env: HOSTILE },
        },
      ],
    },
  ],
  applications: [
    { ...firstApplication!, name: HOSTILE, secrets: [{ name: HOSTILE, expiresInDays: 3 }] },
    ...otherApplications,
    { name: "App with a certificate", certificates: [{ name: "signing", expiresInDays: 300 }] },
  ],
  tenants: [OUTLET],
  devops: {
    organization: "acme",
    projects: [{ name: "Shop", groups: [{ name: HOSTILE, vault: "kv-shop", variables: { db: { enabled: true } } }] }],
  },
};

export const PASSWORD = "a password of their own";
/** Users other than the administrator, named after their roles. */
export const OTHER_USERS = ["user", "auditor", "operator"] as const;
/** ID of a registered B2C tenant that the simulated cloud does not have. */
const TENANT = "11111111-2222-4333-8444-555555555555";

/** Addresses of the views of created objects: an alert rule, an entry of the alert history, an application and so on. */
export type SeedAddresses = Record<
  "rule" | "entry" | "application" | "credential" | "rotation" | "record" | "tenant",
  string
>;

/** Creates users and one object of each kind, and returns the addresses of the objects' views. */
export async function createSeedData(service: Service): Promise<SeedAddresses> {
  const create = async (method: string, path: string, body: object) => {
    const answer = await service.admin(method, path, body);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.body;
  };
  await createUsers(
    service,
    OTHER_USERS.map((role) => ({ username: role, password: PASSWORD, role })),
  );
  // Reads all secrets, while the other objects are created.
  const discovered = create("POST", "/api/automation/rotation/credentials/discover", {});
  const alertType = "expiration";
  const recipients = ["on-call@acme.example"];
  const createdRule = await create("POST", "/alerts/rules", {
    name: MARKUP,
    alertType,
    deliveryMethod: "email",
    recipients,
  });
  const soon = new Date(Date.now() + 9 * DAY_MS).toISOString();
  await create("POST", "/alerts/snoozes", { filters: { vault: "kv-copies" }, reason: MARKUP, until: soon });
  await create("PUT", "/alerts/owners", { owners: [{ owner: MARKUP, address: "owner@acme.example" }] });
  await create("POST", "/auth/tokens", { name: MARKUP, role: "user" });
  await create("PUT", "/api/settings/retention", { scanRetentionDays: 80 });
  await create("PUT", "/api/settings/integrations/devops", { orgUrl: "https://dev.azure.com/acme" });
  await create("PUT", "/auth/sso/config", {
    loginButtonText: MARKUP.slice(0, 64),
    roleMapping: { [MARKUP]: "admin" },
    rolesClaim: "roles",
  });
  const record = await create("POST", "/api/automation/sync/records", {
    sourceVault: "kv-shop",
    sourceSecret: "smtp",
    targetProvider: "azure",
    targetService: "keyvault",
    targetName: "smtp",
    targetRegion: "kv-copies",
  });
  await create("POST", "/b2c/tenants", {
    tenantId: TENANT,
    tenantDomain: "acme.onmicrosoft.com",
    displayName: MARKUP,
    clientId: TENANT,
    clientSecret: "client secret",
  });
  const generate = { length: 32, alphabet: "hex" };
  const { rotationId } = await create("POST", "/api/assets/dependencies/rotate/kv-shop.secret.gone", {
    generate,
    issuerAccepts: true,
    skipVerification: true,
  });
  // Wait for the rotation, then send the rule's alerts.
  await service.waitForEmptyQueues();
  await fetch(`${service.url}/admin/functions/evaluateAlerts`, { method: "POST", body: "{}" });
  const delivered = async () =>
    (await service.admin("GET", "/alerts/history?status=delivered&limit=1")).body.items[0]?.id;
  let entry: string | undefined;
  for (; entry === undefined; entry = await delivered()) await delay(100);
  const { items } = (await service.admin("GET", "/api/automation/rotation/apps?limit=100")).body;
  // The application whose name is HOSTILE.
  const { appId } = items.find(({ displayName }: { displayName: string }) => displayName.startsWith("<img"));
  const run = await discovered;
  const isCompared = async () => {
    const { body } = await service.admin("GET", `/api/automation/rotation/credentials/runs/${run.runId}`);
    return body.status !== "running";
  };
  while (!(await isCompared())) await delay(100);
  const [credential] = (await service.admin("GET", "/api/automation/rotation/credentials")).body.items;
  return {
    credential: `/credentials/${credential.credentialId}`,
    rule: `/alerts/rules/${createdRule.id}`,
    entry: `/alerts/history/${entry}`,
    application: `/rotation/apps/${appId}`,
    rotation: `/rotation/${rotationId}`,
    record: `/sync/${record.recordId}`,
    tenant: `/b2c/${TENANT}`,
  };
}
