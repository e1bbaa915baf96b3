/** Test cases for the page's forms: input, expected API errors, and the steps that edit and remove the object again. */

import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { expect, vi } from "vitest";
import type { Typed } from "./fill-in.ts";
import { service } from "./fixture.ts";
import { APP_001_SECRET, OUTLET } from "./seed-data.ts";

export interface Step {
  /** The address of another view to open first. */
  view?(): string | Promise<string>;
  /** Whether to reload the page first, because the data changes without user action. */
  again?: boolean;
  /** A button to click before the form can be opened. */
  first?: RegExp;
  /** The button that opens the form. */
  open: string | RegExp;
  /** Input that the API rejects, and the field that shows the error, if it belongs to one field. */
  wrong?: Typed;
  wrongField?: string;
  typed?: Typed;
  /** The buttons of the form to click in this order. The last one saves. */
  press: string[];
  /** Whether the input stays invalid and the form is canceled. */
  cancels?: boolean;
  /** The final message of the form. Without it, the form closes. */
  result?: RegExp;
  /** Checks the result through the API. */
  verify?(): Promise<unknown>;
}

export interface FormCase {
  /** API paths to delete before the test, so that a retry starts without objects of the failed run. */
  leftovers?(): string[] | Promise<string[]>;
  /** The address of the view. */
  view: string | (() => Promise<string>);
  steps: Step[];
}

/** A value for secret fields. The tests check that the page stores it nowhere. */
export const SECRET = "planted-4e1c-secret";

const get = async (path: string) => {
  const { status, body, text } = await service.admin("GET", path);
  expect(status, text).toBe(200);
  return body;
};
/** Returns the item of a list with this member value. */
const one = async (path: string, member: string, value: string) =>
  (await service.all(path)).find((item) => item[member] === value);
/** Returns the API paths of the items with these member values. */
const all = async (path: string, member: string, values: string[], id = "id") =>
  (await service.all(path)).filter((item) => values.includes(item[member])).map((item) => `${path}/${item[id]}`);
const rule = (name: string) => one("/alerts/rules", "name", name);
/** One date for input and checks, also if the tests run over midnight. */
const SOON = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
const AT_NOON = `${SOON}T12:00:00Z`;

/** The form case of an alert rule with a given channel. */
function ruleCase(channel: string, method: string, address: Typed, wrong: Typed, wrongField: string): FormCase {
  const [name, changed] = [`By ${channel}`, `By ${channel}, changed`];
  return {
    leftovers: () => all("/alerts/rules", "name", [name, changed]),
    view: "/alerts",
    steps: [
      {
        open: "Create rule",
        wrong: { Name: name, Channel: channel, ...address, ...wrong },
        wrongField,
        typed: address,
        press: ["Create rule"],
        ...(method === "webhook" && { result: /shown only once/ }),
        verify: async () =>
          expect(await rule(name)).toMatchObject({ deliveryMethod: method, thresholds: [30, 7, 1], enabled: true }),
      },
      {
        open: `Edit: ${name}`,
        wrong: { "Days before expiry": "4000" },
        wrongField: "Days before expiry",
        typed: { Name: changed, "Days before expiry": "20, 10", Frequency: "Daily digest" },
        press: ["Preview alerts", "Save"],
        verify: async () =>
          expect(await rule(changed)).toMatchObject({
            deliveryMethod: method,
            thresholds: [20, 10],
            deliveryMode: "digest",
          }),
      },
      {
        open: `Disable: ${changed}`,
        press: ["Disable"],
        verify: async () => expect((await rule(changed)).enabled).toBe(false),
      },
      {
        open: `Delete: ${changed}`,
        press: ["Delete rule"],
        verify: async () => expect(await rule(changed)).toBeUndefined(),
      },
    ],
  };
}
const hook = { URL: "https://hooks.example.invalid/planted-4e1c-secret" };
const withPassword = { URL: "https://somebody:else@hooks.example.invalid/" };

/** The form case of a sync provider, with a sync record of that provider. */
function provider(
  title: string,
  id: string,
  wrong: Typed,
  wrongField: string | undefined,
  labels: Record<string, string>,
  [targetService, name]: [targetService: string, name: string],
): FormCase {
  const now = async () =>
    (await get("/api/automation/sync/providers")).items.find((one: { provider: string }) => one.provider === id);
  const typed = () => {
    const known = service.cloud.control.providers.configurations()[id]!;
    return Object.fromEntries(Object.entries(labels).map(([label, member]) => [label, known[member]!]));
  };
  return {
    leftovers: async () => [...(await recordsOf(name)), `/api/automation/sync/providers/${id}`],
    view: "/sync",
    steps: [
      {
        open: `Configure: ${title}`,
        wrong,
        ...(wrongField !== undefined && { wrongField }),
        get typed() {
          return { ...typed(), "Credential expires": SOON };
        },
        press: ["Test and save"],
        verify: async () => {
          const { settings, expiresOn } = await now();
          expect(expiresOn).toContain(SOON);
          const body = { ...settings, expiresOn: AT_NOON };
          expect((await service.admin("POST", `/api/automation/sync/providers/${id}`, body)).status).toBe(200);
        },
      },
      {
        again: true,
        open: `Edit: ${title}`,
        press: ["Test and save"],
        verify: async () => expect(Date.parse((await now()).expiresOn)).toBe(Date.parse(AT_NOON)),
      },
      {
        open: `Edit: ${title}`,
        typed: { "Credential expires": "" },
        press: ["Test and save"],
        verify: async () => expect(await now()).toMatchObject({ configured: true, expiresOn: null }),
      },
      ...record(id, targetService, name).steps,
      {
        view: () => "/sync",
        open: `Remove: ${title}`,
        press: ["Remove credentials"],
        verify: async () => expect(await now()).toMatchObject({ configured: false }),
      },
    ],
  };
}

/** The page's names of the sync providers. */
const TARGETS: Record<string, string> = {
  azure: "Azure Key Vault",
  aws: "AWS",
  hashicorp: "HashiCorp Vault",
  google: "Google Cloud",
  github: "GitHub",
  kubernetes: "Kubernetes",
};
const recordsOf = (name: string) => all("/api/automation/sync/records", "targetName", [name], "recordId");

/** The form case of a sync record. */
function record(target: string, targetService: string, name: string, more: Typed = {}): FormCase {
  const list = "/api/automation/sync/records";
  const now = () => one(list, "targetName", name);
  return {
    leftovers: () => recordsOf(name),
    view: "/sync",
    steps: [
      {
        open: "Create sync",
        wrong: {
          "Source key vault": "kv-shop",
          "Source secret": "smtp",
          Target: TARGETS[target]!,
          "Target service": targetService,
          "Target name": "a b/../?",
          ...more,
        },
        wrongField: "Target name",
        typed: { "Target name": name, "Check interval (hours)": "48", Enabled: false },
        press: ["Create sync"],
        verify: async () =>
          expect(await now()).toMatchObject({
            targetProvider: target,
            scheduleHours: 48,
            enabled: false,
            state: "paused",
          }),
      },
      {
        view: async () => `/sync/${(await now()).recordId}`,
        open: "Edit",
        typed: {
          "Check interval (hours)": "12",
          Enabled: true,
          "If the target was changed": "Report the difference",
        },
        press: ["Save"],
        verify: async () => expect(await now()).toMatchObject({ scheduleHours: 12, enabled: true, onDrift: "report" }),
      },
      {
        open: "Sync now",
        press: ["Show plan", "Sync now"],
        verify: () => expect.poll(async () => (await now()).state).toBe("inSync"),
      },
      {
        again: true,
        open: "Delete sync",
        press: ["Delete sync"],
        verify: async () => expect(await now()).toBeUndefined(),
      },
    ],
  };
}

/** An unreachable provider: its configuration can be saved but not enabled. */
const IDP = "https://idp.example.invalid";
const sso = () => get("/auth/sso/config");
const outlet = () => {
  const found = service.cloud.control.tenants.list().find(({ domain }) => domain === OUTLET.domain)!;
  return { ...found, secret: secretValueOf(OUTLET.registration, "lifecycle") };
};
const devops = () => get("/api/settings/integrations/devops");
const setting = async (category: string, key: string) =>
  (await get(`/api/settings/${category}`)).find((item: { key: string }) => item.key === key);
const user = () => one("/auth/users", "username", "typed.user");
const token = () => one("/auth/tokens", "name", "Nightly export");
const application = async () =>
  (await get("/api/automation/rotation/apps?limit=100")).items.find(
    ({ credentials, displayName }: { credentials: { kind: string }[]; displayName: string }) =>
      displayName.startsWith("App") && credentials.some(({ kind }) => kind === "secret"),
  );
const app001 = () => one("/api/automation/rotation/apps", "displayName", "App 001");
const matchesOf = (appId: string) => `/api/automation/rotation/apps/${appId}/matches`;
const match = async () => one(matchesOf((await app001()).appId), "assetId", APP_001_SECRET);
const policy = async () => (await get(`/api/automation/rotation/apps/${(await application()).appId}`)).policy;

export const FORMS: Record<string, FormCase> = {
  "an email rule": ruleCase(
    "Email",
    "email",
    { "Email addresses": "on-call@acme.example" },
    { "Email addresses": "nobody" },
    "Email addresses",
  ),
  "a webhook rule": ruleCase("Webhook", "webhook", hook, withPassword, "URL"),
  "a Slack rule": ruleCase("Slack", "slack", hook, withPassword, "URL"),
  "a Teams rule": ruleCase("Microsoft Teams", "teams", hook, withPassword, "URL"),
  "a PagerDuty rule": ruleCase(
    "PagerDuty",
    "pagerDuty",
    { "Integration key (Events API v2)": "0123456789abcdef0123456789abcdef" },
    { "Integration key (Events API v2)": "short" },
    "Integration key (Events API v2)",
  ),
  "a ServiceNow rule": ruleCase(
    "ServiceNow",
    "serviceNow",
    { "Instance URL": "https://acme.example.invalid", Username: "integration", Password: SECRET },
    { "Instance URL": "https://somebody:else@acme.example.invalid" },
    "Instance URL",
  ),
  "a snooze of an asset": {
    leftovers: () => all("/alerts/snoozes", "reason", ["Seen to"]),
    view: "/alerts",
    steps: [
      {
        open: "Snooze an asset",
        wrong: { Asset: "nothing", Reason: "Seen to", "Until (end of day)": SOON },
        typed: { Asset: "kv-shop.secret.db" },
        press: ["Snooze"],
        verify: async () =>
          expect(await one("/alerts/snoozes", "assetId", "kv-shop.secret.db")).toMatchObject({ reason: "Seen to" }),
      },
      {
        open: "End snooze: kv-shop.secret.db",
        press: ["End snooze"],
        verify: async () => expect(await one("/alerts/snoozes", "assetId", "kv-shop.secret.db")).toBeUndefined(),
      },
    ],
  },
  "a snooze by filter": {
    leftovers: () => all("/alerts/snoozes", "reason", ["The move"]),
    view: "/alerts",
    steps: [
      {
        open: "Snooze by filter",
        wrong: { Vault: "kv-shop", Reason: "The move", "Until (end of day)": "2020-01-01" },
        wrongField: "Until (end of day)",
        typed: { "Until (end of day)": SOON },
        press: ["Snooze"],
        verify: async () =>
          expect(await one("/alerts/snoozes", "reason", "The move")).toMatchObject({ filters: { vault: "kv-shop" } }),
      },
      {
        open: "End snooze: vault kv-shop",
        press: ["End snooze"],
        verify: async () => expect(await one("/alerts/snoozes", "reason", "The move")).toBeUndefined(),
      },
    ],
  },
  "a snooze on the asset page": {
    leftovers: () => all("/alerts/snoozes", "reason", ["Renewed today"]),
    view: "/inventory/kv-shop.secret.smtp",
    steps: [
      {
        open: /^Snooze: /,
        wrong: { Reason: "Renewed today", "Until (end of day)": "2020-01-01" },
        wrongField: "Until (end of day)",
        typed: { "Until (end of day)": SOON },
        press: ["Snooze"],
        verify: async () =>
          expect(await one("/alerts/snoozes", "reason", "Renewed today")).toMatchObject({
            assetId: "kv-shop.secret.smtp",
            ruleId: expect.any(String),
          }),
      },
      { view: () => "/alerts", open: "End snooze: kv-shop.secret.smtp", press: ["End"] },
    ],
  },
  owners: {
    view: "/alerts",
    steps: [
      {
        open: "Edit owners",
        wrong: { Owners: "payments: nobody" },
        wrongField: "Owners",
        typed: { Owners: "payments: pay@acme.example\nteam: one: one@acme.example" },
        press: ["Save"],
        verify: async () =>
          expect((await get("/alerts/owners")).items).toMatchObject([
            { owner: "payments", address: "pay@acme.example" },
            { owner: "team: one", address: "one@acme.example" },
          ]),
      },
    ],
  },
  "an exemption": {
    leftovers: () => all("/compliance/exemptions", "reason", ["Goes next month"]),
    view: "/compliance?vault=kv-shop",
    steps: [
      {
        first: /expir/i,
        open: "Exempt",
        wrong: { Reason: "Goes next month", Expires: "2020-01-01" },
        wrongField: "Expires",
        typed: { Scope: "This vault", Expires: SOON },
        press: ["Exempt"],
        verify: async () =>
          expect(await one("/compliance/exemptions", "reason", "Goes next month")).toMatchObject({
            scope: { type: "vault" },
            category: "waiver",
          }),
      },
      {
        open: /^Remove exemption: /,
        press: ["Remove exemption"],
        verify: async () => expect(await service.all("/compliance/exemptions")).toEqual([]),
      },
    ],
  },
  "a subscription": {
    leftovers: () => ["/subscriptions/99999999-2222-4333-8444-555555555555"],
    view: "/vaults",
    steps: [
      {
        open: "Add subscription",
        wrong: { "Subscription ID": "none", Name: "Typed" },
        wrongField: "Subscription ID",
        typed: { "Subscription ID": "99999999-2222-4333-8444-555555555555" },
        press: ["Add subscription"],
        verify: async () => expect(await one("/subscriptions", "name", "Typed")).toMatchObject({ source: "api" }),
      },
      { open: "Test access: Typed", press: ["Test access"], result: /[✓✗]/ },
      {
        open: "Remove: Typed",
        press: ["Remove subscription"],
        verify: async () => expect((await one("/subscriptions", "name", "Typed"))?.source).not.toBe("api"),
      },
    ],
  },
  "a setting that is a number": {
    view: "/settings",
    steps: [
      {
        open: "Edit: Critical expiry threshold",
        wrong: { "*": "300" },
        wrongField: "*",
        typed: { "*": "5" },
        press: ["Save"],
        verify: async () =>
          expect(await setting("compliance-policy", "criticalExpiryDays")).toMatchObject({
            value: 5,
            source: "override",
          }),
      },
      {
        open: "Reset: Critical expiry threshold",
        press: ["Reset setting"],
        verify: async () => expect((await setting("compliance-policy", "criticalExpiryDays")).source).toBe("default"),
      },
    ],
  },
  "a setting with options": {
    view: "/settings",
    steps: [
      {
        open: "Edit: Log level",
        typed: { "*": "WARNING" },
        press: ["Save"],
        verify: async () => expect((await setting("logging", "logLevel")).value).toBe("WARNING"),
      },
      {
        open: "Reset: Log level",
        press: ["Reset setting"],
        verify: async () => expect((await setting("logging", "logLevel")).source).toBe("default"),
      },
    ],
  },
  "the scope of monitoring": {
    view: "/settings",
    steps: [
      {
        open: "Edit: Monitor all subscriptions",
        typed: { "*": false },
        press: ["Preview changes", "Save"],
        verify: async () => expect((await setting("features", "watchAll")).value).toBe(false),
      },
      {
        open: "Reset: Monitor all subscriptions",
        press: ["Preview changes", "Reset setting"],
        verify: async () =>
          expect(await setting("features", "watchAll")).toMatchObject({ value: true, source: "default" }),
      },
    ],
  },
  "a purge": {
    view: "/settings",
    steps: [
      {
        open: "Purge: Audit log",
        typed: { "Retention (days)": "3000" },
        press: ["Purge"],
        result: /entries deleted/,
      },
    ],
  },
  "an API token": {
    leftovers: () => all("/auth/tokens", "name", ["Nightly export"]),
    view: "/access",
    steps: [
      {
        open: "Create token",
        typed: {
          Name: "Nightly export",
          Role: "Operator: read access, scans, snoozes and exemptions",
          "Validity (days)": "14",
        },
        press: ["Create token"],
        result: /shown only once/,
        verify: async () => expect(await token()).toMatchObject({ role: "operator", user: "admin" }),
      },
      {
        open: "Revoke: Nightly export",
        press: ["Revoke token"],
        verify: async () => expect(await token()).toBeUndefined(),
      },
    ],
  },
  "a user": {
    leftovers: () => all("/auth/users", "username", ["typed.user"]),
    view: "/access",
    steps: [
      {
        open: "Create user",
        wrong: { Username: "typed.user", "Email address": "typed@acme.example", Password: "short" },
        wrongField: "Password",
        typed: { Password: SECRET, Role: "Auditor: read access, including the audit log" },
        press: ["Create user"],
        verify: async () => expect(await user()).toMatchObject({ role: "auditor", email: "typed@acme.example" }),
      },
      {
        open: "Edit: typed.user",
        typed: { Role: "User: read access", Status: "Disabled" },
        press: ["Save"],
        verify: async () => expect(await user()).toMatchObject({ role: "user", state: "disabled" }),
      },
      {
        open: "Reset password: typed.user",
        wrong: { "New password": "short" },
        wrongField: "New password",
        typed: { "New password": `${SECRET}, another` },
        press: ["Reset password"],
        verify: async () => expect(await user()).toMatchObject({ mustChangePassword: true }),
      },
      { open: "Delete: typed.user", press: ["Delete user"], verify: async () => expect(await user()).toBeUndefined() },
    ],
  },
  "OpenID Connect": {
    leftovers: () => ["/auth/sso/config"],
    view: "/sso",
    steps: [
      {
        open: "Configure OpenID Connect",
        wrong: { Issuer: "http://idp.example.invalid", "Client ID": "lifecycle", "Client secret": SECRET },
        wrongField: "Issuer",
        typed: { Issuer: IDP, "Client secret expires": SOON },
        press: ["Test connection", "Save"],
        verify: async () =>
          expect(await sso()).toMatchObject({
            providerType: "oidc",
            oidcIssuer: IDP,
            oidcClientSecretSet: true,
            oidcClientSecretExpiresOn: expect.stringContaining(SOON),
          }),
      },
      {
        open: "Edit user access",
        wrong: { "Role mapping": "Admins = emperor", "Roles claim or attribute": "roles" },
        wrongField: "Role mapping",
        typed: { "Role mapping": "Admins = admin", "Allowed email domains": "acme.example" },
        press: ["Save"],
        verify: async () =>
          expect(await sso()).toMatchObject({
            roleMapping: { Admins: "admin" },
            rolesClaim: "roles",
            allowedEmailDomains: ["acme.example"],
          }),
      },
      // A new secret without an expiry date.
      {
        open: "Configure OpenID Connect",
        typed: { "Client secret": `${SECRET}, another`, "Sign-in button text": "Acme" },
        press: ["Test connection", "Save"],
        verify: async () =>
          expect(await sso()).toMatchObject({ loginButtonText: "Acme", oidcClientSecretExpiresOn: null }),
      },
      { open: "Turn off passwords", wrong: {}, press: ["Turn off passwords"], cancels: true },
      {
        open: "Delete configuration",
        press: ["Delete configuration"],
        verify: async () => expect(await sso()).toMatchObject({ isEnabled: false }),
      },
    ],
  },
  SAML: {
    leftovers: () => ["/auth/sso/config"],
    view: "/sso",
    steps: [
      {
        open: "Configure SAML",
        get typed() {
          return {
            "Provider metadata": service.cloud.saml.metadata().replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, IDP),
            "Sign requests with the service's own key": true,
          };
        },
        press: ["Test connection", "Save"],
        verify: async () => expect(await sso()).toMatchObject({ providerType: "saml", samlSignRequests: true }),
      },
      {
        open: "Delete configuration",
        press: ["Delete configuration"],
        verify: async () => expect(await sso()).toMatchObject({ isEnabled: false }),
      },
    ],
  },
  "sync to AWS": provider(
    "Amazon Web Services",
    "aws",
    {
      "Access key ID": "AKIAIOSFODNN7EXAMPLE",
      "Secret access key": "planted-4e1c-secret".padEnd(40, "x"),
      Region: "no region",
    },
    "Region",
    { "Access key ID": "accessKeyId", "Secret access key": "secretAccessKey", Region: "region" },
    ["Parameter Store", "/typed/copy"],
  ),
  "sync to HashiCorp Vault": provider(
    "HashiCorp Vault",
    "hashicorp",
    { Address: "http://store.example.invalid", Token: SECRET },
    "Address",
    { Address: "address", "Mount path": "mount", Token: "token" },
    ["KV secrets engine", "typed/copy"],
  ),
  "sync to Google": provider(
    "Google Cloud",
    "google",
    { "Project ID": "acme-shop", "Service account key file (JSON)": SECRET },
    "Service account key file (JSON)",
    { "Project ID": "projectId", "Service account key file (JSON)": "serviceAccountKey" },
    ["Secret Manager", "typed-copy"],
  ),
  "sync to GitHub": provider("GitHub", "github", { Token: "" }, undefined, { Token: "token" }, [
    "Actions secret",
    "acme/shop/TYPED_COPY",
  ]),
  "sync to Kubernetes": provider(
    "Kubernetes",
    "kubernetes",
    { Address: "http://store.example.invalid", Namespace: "shop", "Service account token": SECRET },
    "Address",
    {
      Address: "address",
      "CA certificate (PEM)": "caCertificate",
      Namespace: "namespace",
      "Service account token": "token",
    },
    ["Secret", "typed-copy"],
  ),
  "a sync to another key vault": record("azure", "Key vault", "typed-copy", { "Target key vault": "kv-copies" }),
  "a B2C tenant": {
    leftovers: () => [`/b2c/tenants/${outlet().id}`],
    view: "/b2c",
    steps: [
      {
        open: "Add tenant",
        get wrong() {
          const { domain, clientId, secret } = outlet();
          return {
            "Tenant ID": "none",
            Name: "Outlet",
            Domain: domain,
            "Client ID": clientId,
            "Client secret": secret,
          };
        },
        wrongField: "Tenant ID",
        get typed() {
          return { "Tenant ID": outlet().id, "Client secret expires": SOON };
        },
        press: ["Add tenant"],
        verify: async () =>
          expect(await get(`/b2c/tenants/${outlet().id}`)).toMatchObject({
            displayName: "Outlet",
            clientSecretExpiresOn: expect.stringContaining(SOON),
          }),
      },
      {
        view: () => `/b2c/${outlet().id}`,
        open: "Test connection",
        press: ["Test connection"],
        result: /Connection test (passed|failed)/,
      },
      // A new secret without an expiry date.
      {
        open: "Edit",
        wrong: { "Refresh interval (hours)": "5", Domain: "no domain" },
        wrongField: "Domain",
        get typed() {
          return { Domain: outlet().domain, "Client secret": outlet().secret, Name: "Outlets" };
        },
        press: ["Save"],
        verify: async () => {
          const now = await get(`/b2c/tenants/${outlet().id}`);
          expect(now).toMatchObject({ displayName: "Outlets", discoveryIntervalHours: 5 });
          expect(now.clientSecretExpiresOn?.slice(0, 10)).not.toBe(SOON);
        },
      },
      { open: "Refresh", press: ["Refresh"] },
      {
        open: "Remove tenant",
        press: ["Remove tenant"],
        verify: async () => expect((await service.admin("GET", `/b2c/tenants/${outlet().id}`)).status).toBe(404),
      },
    ],
  },
  "Azure DevOps": {
    view: "/devops",
    steps: [
      {
        open: "Edit organization",
        wrong: { "Organization URL": "https://elsewhere.example/acme" },
        wrongField: "Organization URL",
        typed: { "Organization URL": "https://dev.azure.com/acme" },
        press: ["Save"],
        verify: async () => expect((await devops()).orgUrl).toBe("https://dev.azure.com/acme"),
      },
      { open: "Test connection", press: ["Test connection"], result: /Connection test (passed|failed)/ },
      {
        open: "Select projects",
        typed: { "All projects, including future ones": false, Shop: true },
        press: ["Save"],
        verify: async () => expect((await devops()).projectIds).toHaveLength(1),
      },
      {
        open: "Select projects",
        typed: { "All projects, including future ones": true },
        press: ["Save"],
        verify: async () => expect((await devops()).projectIds).toEqual([]),
      },
      {
        open: "Edit copies",
        wrong: { Copies: "no project, x, DB, kv-shop/db" },
        wrongField: "Copies",
        typed: { Copies: "" },
        press: ["Save"],
        verify: async () => expect((await devops()).copies).toEqual([]),
      },
    ],
  },
  "a matching vault secret": {
    view: async () => {
      const { appId } = await app001();
      await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
      const isListed = async () => (await get(matchesOf(appId))).items.length > 0;
      await vi.waitUntil(isListed, { timeout: 150_000, interval: 200 });
      return `/rotation/apps/${appId}`;
    },
    steps: [
      { open: `Verify match: ${APP_001_SECRET}`, press: ["Read secret and sign in"], result: /secret/ },
      {
        open: `Confirm match: ${APP_001_SECRET}`,
        press: ["Confirm match"],
        verify: async () =>
          expect(await match()).toMatchObject({
            confidence: "certain",
            evidence: expect.arrayContaining(["confirmed"]),
          }),
      },
      {
        open: `Remove confirmation: ${APP_001_SECRET}`,
        press: ["Remove confirmation"],
        verify: async () => expect(await match()).toMatchObject({ confidence: "likely" }),
      },
    ],
  },
  "a rotation policy": {
    leftovers: async () => [`/api/automation/rotation/apps/${(await application()).appId}/policy`],
    view: async () => `/rotation/apps/${(await application()).appId}`,
    steps: [
      {
        open: "Set policy",
        wrong: { "Overlap period (days)": "9", "Vault secrets to write": "nothing" },
        wrongField: "Vault secrets to write",
        typed: { "Vault secrets to write": "", "Validity (days)": "60" },
        press: ["Save"],
        verify: async () => expect(await policy()).toMatchObject({ overlapDays: 9, expiryDays: 60, automatic: false }),
      },
      {
        open: "Edit policy",
        typed: { "Overlap period (days)": "10" },
        press: ["Save"],
        verify: async () => expect(await policy()).toMatchObject({ overlapDays: 10, expiryDays: 60 }),
      },
      { open: "Delete policy", press: ["Delete policy"], verify: async () => expect(await policy()).toBeNull() },
    ],
  },
};
