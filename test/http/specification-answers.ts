import { setTimeout as delay } from "node:timers/promises";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { licence } from "../support/licence.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import { ADMIN, type CallOptions, Service } from "../support/service.ts";
import { SPECIFICATION } from "./specification.ts";

/**
 * Sends every call of the specification and describes the answers, so that two builds can be compared. Runs unchanged in a
 * checkout of an earlier version: record-specification.ts says how.
 */

const ORIGIN = "http://localhost:7071";
const APPLICATION = "Payments";
const SECRET = "payments-secret";
const [appId, secretId] = [appIdOf(APPLICATION), keyIdOf(APPLICATION, "current")];
const TENANT_ID = "c97a9dbf-bd9f-4433-aea9-295c8898e41d";
const REGISTRATION = "Outlet Credential Lifecycle";
const USER = { username: "reader", password: "quiet-library-window" };

const COMPANY: Company = {
  subscriptions: [
    {
      name: "One",
      vaults: [
        {
          name: "kv-one",
          secrets: [
            // Half days, so that the number of days left stays the same while the calls are sent.
            { name: "db", expiresInDays: 5.5 },
            {
              name: SECRET,
              value: secretValueOf(APPLICATION, "current"),
              contentType: `payments:${appId}:${secretId}`,
            },
          ],
          keys: [{ name: "orders", expiresInDays: 200.5 }],
          // The status is `warning` in every version: earlier ones count only the days until expiry, and in later ones the renewal
          // is late.
          certificates: [
            {
              name: "www",
              expiresInDays: 20.5,
              issuer: "DigiCert",
              validityDays: 190,
              renewal: { action: "AutoRenew", daysBeforeExpiry: 25 },
            },
          ],
        },
      ],
    },
  ],
  applications: [{ name: APPLICATION, secrets: [{ name: "current", expiresInDays: 90.5 }] }],
  tenants: [
    {
      id: TENANT_ID,
      name: "Outlet",
      domain: "outlet.onmicrosoft.com",
      type: "AAD B2C",
      registration: REGISTRATION,
      applications: [{ name: REGISTRATION, secrets: [{ name: "lifecycle", expiresInDays: 60.5 }] }],
    },
  ],
  devops: { organization: "acme", projects: [{ name: "Shop" }, { name: "Docs" }] },
};

/** Starts a service for these calls. All settings that the specification does not name have their defaults. */
export async function startForSpecification(): Promise<Service> {
  const env = { PUBLIC_BASE_URL: ORIGIN, TRUSTED_PROXY_HOPS: "2", LICENSE_KEY: await licence() };
  return await Service.start({ company: COMPANY, env });
}

/** One answer: its status, its media type, and the values of each member by path, such as `items[].id`. */
export interface DescribedAnswer {
  status: number;
  type: string;
  members: Record<string, string[]>;
}
/** Calls that the service rejects, because the specification's body lacks a member that it needs. */
const FAILING = ["POST /api/assets/dependencies/rotate/{secret_id}"];

/** Frameworks that were added after the recording. Answers are compared without them. */
const ADDED_FRAMEWORKS = new Set(["bsi-c5-2020", "dora", "hipaa-security-rule", "nis2", "owasp-nhi-2025"]);

/** Returns a body without the items of lists that name one of `ADDED_FRAMEWORKS`. */
function withoutAddedFrameworks(body: unknown): unknown {
  const isAdded = (item: unknown): boolean => {
    const { id, framework } = Object(item) as Record<string, unknown>;
    return [item, id, framework].some((name) => ADDED_FRAMEWORKS.has(String(name)));
  };
  if (Array.isArray(body)) return body.filter((item) => !isAdded(item)).map(withoutAddedFrameworks);
  if (typeof body !== "object" || body === null) return body;
  return Object.fromEntries(Object.entries(body).map(([name, value]) => [name, withoutAddedFrameworks(value)]));
}

/** Stands for the values of a member that differ between two services of one version. */
export const VARIES = "<varies>";
/** Answers by call, such as `POST /alerts/rules` and `POST /alerts/rules without a token`. */
export type SpecificationAnswers = Record<string, DescribedAnswer>;

/** Sends the calls to a service that `startForSpecification` started. */
export async function readSpecificationAnswers(service: Service): Promise<SpecificationAnswers> {
  const answers: SpecificationAnswers = {};
  const bodies = new Map<string, unknown>();
  const paths = new Map<string, string>();
  const token = await service.signIn(ADMIN);

  /** Sends one call of the specification and describes its answer. @param variant - Appended to the name of the call. */
  async function ask(endpoint: string, path: string, options: CallOptions = {}, variant = "") {
    const { status, headers, body } = await service.call(endpoint.split(" ")[0]!, path, options);
    const type = headers.get("content-type")?.split(";")[0] ?? "";
    const location = headers.get("location");
    const described =
      type.includes("json") && endpoint !== "GET /openapi.json" ? withoutAddedFrameworks(body) : undefined;
    const name = endpoint + variant;
    if (answers[name]) throw new Error(`${name} was sent before`);
    answers[name] = { status, type, members: membersOf({ ...(location && { location }), body: described }) };
    return { body, headers };
  }
  /** Sends a call as the administrator, which must succeed. The calls that must fail are sent to the same path. */
  async function admin(endpoint: string, body?: unknown, path = endpoint.split(" ")[1]!) {
    if (body !== undefined) bodies.set(endpoint, body);
    paths.set(endpoint, path);
    const answer = await ask(endpoint, path, { token, body });
    if (answers[endpoint]!.status >= 400 && !FAILING.includes(endpoint))
      throw new Error(`${endpoint} answered ${JSON.stringify(answer.body)}`);
    return answer.body;
  }
  /** Waits for work in the background. */
  async function waitUntil(path: string, isReached: (body: Record<string, unknown>) => boolean): Promise<void> {
    const deadline = Date.now() + 150_000;
    for (;;) {
      const { body, text } = await service.admin("GET", path);
      if (isReached(body)) return;
      if (Date.now() > deadline) throw new Error(`${path} is still ${text}`);
      await delay(200);
    }
  }

  // Authentication and health
  await ask("POST /auth/login", "/auth/login", { body: ADMIN });
  for (const path of ["/health", "/system/license/status", "/docs", "/redoc", "/openapi.json"])
    await ask(`GET ${path}`, path);
  await admin("GET /auth/me");
  await admin("GET /identity");

  // Discovery
  const SCANS = "/api/assets/discovery";
  const { scanId } = await admin(`POST ${SCANS}/scan`, { mode: "full" });
  await service.waitForScan(scanId);
  await service.waitUntilIdle(60_000);
  for (const part of ["status", "results"])
    await admin(`GET ${SCANS}/scan/{scan_id}/${part}`, undefined, `${SCANS}/scan/${scanId}/${part}`);
  await admin(`GET ${SCANS}/scans`, undefined, `${SCANS}/scans?limit=10&offset=0`);
  await admin(`GET ${SCANS}/assets`, undefined, `${SCANS}/assets?type=secret&status=critical&vault=kv-one`);
  await admin(`GET ${SCANS}/assets/{asset_id}`, undefined, `${SCANS}/assets/kv-one.secret.db`);
  await admin(`GET ${SCANS}/vaults`);

  // Compliance
  await admin("POST /compliance/evaluate");
  await service.waitUntilIdle(60_000);
  await admin("GET /compliance/score");
  await admin("GET /compliance/violations", undefined, "/compliance/violations?severity=high&limit=10&offset=0");
  const frameworks = await admin("GET /compliance/frameworks");
  await admin(
    "GET /compliance/frameworks/{framework_id}",
    undefined,
    `/compliance/frameworks/${frameworks.items.find(({ id }: { id: string }) => !ADDED_FRAMEWORKS.has(id)).id}`,
  );

  // Alerts
  const { id: ruleId } = await admin("POST /alerts/rules", {
    name: "Expiring",
    alertType: "expiration",
    thresholdDays: 30,
    deliveryMethod: "email",
    deliveryMode: "digest",
    recipients: ["team@acme.example"],
    enabled: true,
  });
  await admin("GET /alerts/rules");
  await admin("PUT /alerts/rules/{rule_id}", { thresholdDays: 20 }, `/alerts/rules/${ruleId}`);
  await admin("POST /alerts/rules/{rule_id}/test", undefined, `/alerts/rules/${ruleId}/test`);
  await service.waitUntilIdle(60_000);
  await admin("GET /alerts/history", undefined, "/alerts/history?status=delivered");
  await admin("DELETE /alerts/rules/{rule_id}", undefined, `/alerts/rules/${ruleId}`);

  // Subscriptions
  const subscriptionId = "0b1f6471-1bf0-4dda-aec3-111111111111";
  await admin("POST /subscriptions", { subscriptionId, name: "Two" });
  await admin("GET /subscriptions");
  await admin("POST /subscriptions/{subscription_id}/test", undefined, `/subscriptions/${subscriptionId}/test`);
  await admin("DELETE /subscriptions/{subscription_id}", undefined, `/subscriptions/${subscriptionId}`);

  // Rotation
  const ROTATION = "/api/automation/rotation";
  await admin(`POST ${ROTATION}/discover`);
  await service.waitUntilIdle(60_000);
  await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
  const matches = `${ROTATION}/apps/${appId}/matches`;
  await waitUntil(matches, ({ total }) => total === 1);
  await admin(`GET ${ROTATION}/apps`);
  await admin(`GET ${ROTATION}/apps/{app_id}/matches`, undefined, matches);
  const rotation = await admin(`POST ${ROTATION}/rotate`, {
    appId,
    secretId,
    expiryDays: 180,
    updateKeyVaults: true,
  });
  await waitUntil(`${ROTATION}/rotations/${rotation.rotationId}`, ({ status }) => status === "overlapping");
  await admin(`GET ${ROTATION}/history`);

  // Sync
  const SYNC = "/api/automation/sync";
  const { accessKeyId, secretAccessKey, region } = service.cloud.control.providers.configurations().aws as Record<
    string,
    string
  >;
  await admin(`POST ${SYNC}/providers/{provider}`, { accessKeyId, secretAccessKey, region }, `${SYNC}/providers/aws`);
  const { recordId } = await admin(`POST ${SYNC}/records`, {
    sourceVault: "kv-one",
    sourceSecret: "db",
    targetProvider: "aws",
    targetService: "secretsmanager",
    targetName: "copied",
    targetRegion: region,
    scheduleHours: 24,
    enabled: true,
  });
  const record = `${SYNC}/records/${recordId}`;
  await admin(`POST ${SYNC}/records/{record_id}/sync`, undefined, `${record}/sync`);
  await waitUntil(`${record}/status`, ({ state }) => state === "inSync");
  await service.waitUntilIdle(60_000);
  await admin(`GET ${SYNC}/records/{record_id}/status`, undefined, `${record}/status`);
  await admin(`GET ${SYNC}/records`);

  // Dependencies
  const DEPENDENCIES = "/api/assets/dependencies";
  await admin(`GET ${DEPENDENCIES}`);
  const ofSecret = "kv-one.secret.db";
  await admin(`GET ${DEPENDENCIES}/blast-radius/{secret_id}`, undefined, `${DEPENDENCIES}/blast-radius/${ofSecret}`);
  await admin(
    `POST ${DEPENDENCIES}/rotate/{secret_id}`,
    { includeResources: [], skipVerification: true },
    `${DEPENDENCIES}/rotate/${ofSecret}`,
  );

  // Settings
  const SETTINGS = "/api/settings";
  await admin(`GET ${SETTINGS}/all`);
  const changes = {
    performance: { discoveryMaxWorkers: 5, discoveryScanTimeout: 600 },
    features: { enableNotifications: false, enableComplianceScanning: true },
    logging: { logLevel: "WARNING" },
    "alert-defaults": { defaultThresholdDays: 14 },
    "compliance-policy": { criticalExpiryDays: 6, warningExpiryDays: 29 },
    retention: { auditRetentionDays: 400, rotationRetentionDays: 401 },
    automation: { rotationTriggerDays: 13, defaultValidityDays: 90 },
  };
  for (const [category, change] of Object.entries(changes)) {
    await admin(`PUT ${SETTINGS}/${category}`, change);
    await admin(`GET ${SETTINGS}/${category}`);
  }
  // No entry is so old, so nothing is deleted.
  await admin(`POST ${SETTINGS}/retention/purge`, { retentionDays: 3000 });
  await admin(
    `POST ${SETTINGS}/retention/purge/{history_type}`,
    { retentionDays: 3000 },
    `${SETTINGS}/retention/purge/sync`,
  );
  await admin(`GET ${SETTINGS}/retention/stats`);
  await admin(`DELETE ${SETTINGS}/{category}/{key}`, undefined, `${SETTINGS}/logging/logLevel`);
  await admin(`DELETE ${SETTINGS}/all`);

  // DevOps integration
  const DEVOPS = `${SETTINGS}/integrations/devops`;
  await admin(`PUT ${DEVOPS}`, { orgUrl: "https://dev.azure.com/acme" });
  await admin(`POST ${DEVOPS}/test`);
  await admin(`PUT ${DEVOPS}/projects`, { projectIds: [] });
  await admin(`GET ${DEVOPS}`);

  // Users
  const { id: userId } = await admin("POST /auth/users", { ...USER, email: "reader@acme.example", role: "user" });
  await admin("GET /auth/users");
  await admin("PUT /auth/users/{user_id}", { email: "books@acme.example" }, `/auth/users/${userId}`);
  await admin("POST /auth/users/{user_id}/unlock", undefined, `/auth/users/${userId}/unlock`);
  const userToken = await service.signIn(USER);

  // B2C registry
  const clientId = service.cloud.control.tenants.list().find(({ id }) => id === TENANT_ID)!.clientId;
  await admin("POST /b2c/tenants", {
    tenantId: TENANT_ID,
    tenantDomain: "outlet.onmicrosoft.com",
    displayName: "Outlet",
    clientId,
    clientSecret: secretValueOf(REGISTRATION, "lifecycle"),
    autoDiscover: false,
    discoveryIntervalHours: 24,
  });
  for (const part of ["test", "discover"])
    await admin(`POST /b2c/tenants/{tenant_id}/${part}`, undefined, `/b2c/tenants/${TENANT_ID}/${part}`);
  await service.waitUntilIdle(60_000);
  await admin("GET /b2c/tenants");

  // SSO
  await ask("GET /auth/sso/status", "/auth/sso/status", {}, " before it is configured");
  const { issuer: oidcIssuer, clientId: oidcClientId, clientSecret: oidcClientSecret } = service.cloud.oidc;
  const provider = { providerType: "oidc", oidcIssuer, oidcClientId, oidcClientSecret };
  await admin("PUT /auth/sso/config", {
    ...provider,
    isEnabled: true,
    oidcScopes: ["openid", "profile", "email"],
    autoCreateUsers: true,
    defaultRole: "user",
    ssoOnlyMode: false,
    loginButtonText: "Sign in with Acme",
  });
  await admin("POST /auth/sso/config/test", provider);
  await ask("GET /auth/sso/status", "/auth/sso/status");
  await ask("POST /auth/sso/discover", "/auth/sso/discover", { body: { issuerUrl: oidcIssuer } });
  const { headers } = await ask("GET /auth/sso/login", "/auth/sso/login?returnUrl=/docs");
  const callback = new URL(await new ProviderVisitor().choose(headers.get("location")!, "uma"));
  await ask("GET /auth/sso/callback", callback.pathname + callback.search, {
    headers: { cookie: headers.getSetCookie()[0]!.split(";")[0]! },
  });
  await admin("GET /auth/sso/config");
  await admin("DELETE /auth/sso/config");

  // Audit
  const AUDIT_QUERY = "start_date=2020-01-01T00:00:00Z&end_date=2100-01-01T00:00:00Z";
  await admin(
    "GET /audit/entries",
    undefined,
    `/audit/entries?${AUDIT_QUERY}&event_type=subscription.added&actor=admin&limit=1&offset=0`,
  );
  for (const format of ["json", "csv", "pdf"])
    await ask(
      "GET /audit/export",
      `/audit/export?format=${format}&start_date=2020-01-01&end_date=2020-01-02`,
      { token },
      format === "json" ? "" : ` ${format}`,
    );

  // Calls that must fail: without a token, as a user, with a body of another form.
  for (const [endpoint, path] of paths) {
    await ask(endpoint, path, { body: bodies.get(endpoint) }, " without a token");
    if (endpoint.startsWith("GET ")) continue;
    await ask(endpoint, path, { token: userToken, body: bodies.get(endpoint) }, " as a user");
    if (bodies.has(endpoint)) await ask(endpoint, path, { token, body: [] }, " with a list as body");
  }
  const wrongPassword = { ...ADMIN, password: "not the password" };
  await ask("POST /auth/login", "/auth/login", { body: wrongPassword }, " with a wrong password");
  await admin("DELETE /auth/users/{user_id}", undefined, `/auth/users/${userId}`);
  await ask("POST /auth/logout", "/auth/logout", { token: userToken }, " of a deleted user");
  await ask("POST /auth/logout", "/auth/logout", { token });
  await ask("GET /auth/me", "/auth/me", { token }, " after the sign-out");

  const missing = Object.values(SPECIFICATION)
    .flat()
    .filter((endpoint) => !answers[endpoint]);
  if (missing.length > 0) throw new Error(`Not sent: ${missing.join(", ")}`);
  return answers;
}

const REPLACED: readonly [RegExp, string][] = [
  [/\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi, "<id>"],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, "<time>"],
  [/(localhost|127\.0\.0\.1):\d+/g, "<host>"],
  [/^[\w-]+\.[\w-]+\.[\w-]{20,}$/, "<token>"],
  [/^(?=.*\d)[\w+/=-]{20,}$/, "<code>"],
];

/** Returns the kind of a text that varies or may be reworded, otherwise the text itself. */
function describeText(text: string): string {
  const replaced = REPLACED.reduce((result, [pattern, replacement]) => result.replace(pattern, replacement), text);
  if (/\s/.test(replaced)) return "<text>";
  return replaced.startsWith("http") ? replaced.replace(/=[^&]*/g, "=<value>") : replaced;
}

/** Returns the values of each member of a body by path. Elements of lists share their path; values are sorted and distinct. */
function membersOf(body: unknown): Record<string, string[]> {
  const values = new Map<string, Set<string>>();
  const add = (path: string, value: string) => values.set(path, (values.get(path) ?? new Set()).add(value));
  function visit(value: unknown, path: string): void {
    if (Array.isArray(value)) {
      add(path, "<list>");
      for (const element of value) visit(element, `${path}[]`);
    } else if (typeof value === "object" && value !== null) {
      for (const [name, member] of Object.entries(value)) visit(member, `${path}.${describeText(name)}`);
    } else if (value !== undefined) add(path, typeof value === "string" ? describeText(value) : String(value));
  }
  visit(body, "");
  return Object.fromEntries([...values].map(([path, all]) => [path, [...all].sort()]));
}
