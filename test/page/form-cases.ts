/**
 * Test cases of the page's forms, which forms.ts runs. A case opens forms one after the other: it creates an object with
 * invalid and then with valid input, edits the object, and removes it again.
 */
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { expect, vi } from "vitest";
import type { FormInput } from "./fill-in.ts";
import { service } from "./fixture.ts";
import { APP_001_SECRET, OUTLET } from "./seed-data.ts";

export interface Step {
  /** The address of another view to open first. */
  view?(): string | Promise<string>;
  /** Whether to reload the page first, because the step before changed data without the page. */
  again?: boolean;
  /** A button to click before the form can be opened. */
  first?: RegExp;
  /** The button that opens the form. */
  open: string | RegExp;
  /** Input by field label that the API rejects. It is submitted first. */
  wrong?: FormInput;
  /** The field that shows the error. Without it, the form shows the error as a whole. */
  wrongField?: string;
  /** Valid input by field label, which is filled in after the invalid input. Fields that it lacks keep the input of `wrong`. */
  typed?: FormInput;
  /** The buttons of the form to click in this order. The first one submits the invalid input too. The last one saves. */
  press: string[];
  /** Whether the form is canceled after the invalid input. */
  cancels?: boolean;
  /** The final message of the form. Without it, the form closes. */
  result?: RegExp;
  /** Checks the result through the API. */
  verify?(): Promise<unknown>;
}

export interface FormCase {
  /** Returns API paths of objects to delete before the test, so that a retry starts without objects of the failed run. */
  leftovers?(): string[] | Promise<string[]>;
  /** The address of the view. */
  view: string | (() => Promise<string>);
  steps: Step[];
}

const ENDPOINTS = "/api/assets/dependencies/endpoints?assetId=kv-certificates.certificate.imported";

/** The input of secret fields. forms.ts checks that the page stores it nowhere. */
export const SECRET = "planted-4e1c-secret";

const get = async (path: string) => {
  const { status, body, text } = await service.admin("GET", path);
  expect(status, text).toBe(200);
  return body;
};
/** Returns the item of a list whose member has this value. */
const findItem = async (path: string, member: string, value: string) =>
  (await service.listAll(path)).find((item) => item[member] === value);
/** Returns the API paths of the items of a list whose member has one of these values. */
const findPaths = async (path: string, member: string, values: string[], id = "id") =>
  (await service.listAll(path)).filter((item) => values.includes(item[member])).map((item) => `${path}/${item[id]}`);
const readRule = (name: string) => findItem("/alerts/rules", "name", name);
/** The expiry date of created objects. It is computed once, so that input and checks agree if the tests run over midnight. */
const EXPIRY_DATE = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
const EXPIRY_TIME = `${EXPIRY_DATE}T12:00:00Z`;

/**
 * The form case of an alert rule with a given channel.
 *
 * @param channel - The page's name of the delivery method, for example "Microsoft Teams".
 * @param method - The API's name of the delivery method, for example `teams`.
 */
function ruleCase(channel: string, method: string, address: FormInput, wrong: FormInput, wrongField: string): FormCase {
  const [name, changed] = [`By ${channel}`, `By ${channel}, changed`];
  return {
    leftovers: () => findPaths("/alerts/rules", "name", [name, changed]),
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
          expect(await readRule(name)).toMatchObject({ deliveryMethod: method, thresholds: [30, 7, 1], enabled: true }),
      },
      {
        open: `Edit: ${name}`,
        wrong: { "Days before expiry": "4000" },
        wrongField: "Days before expiry",
        typed: { Name: changed, "Days before expiry": "20, 10", Frequency: "Daily digest" },
        press: ["Preview alerts", "Save rule"],
        verify: async () =>
          expect(await readRule(changed)).toMatchObject({
            deliveryMethod: method,
            thresholds: [20, 10],
            deliveryMode: "digest",
          }),
      },
      {
        open: `Disable: ${changed}`,
        press: ["Disable rule"],
        verify: async () => expect((await readRule(changed)).enabled).toBe(false),
      },
      {
        open: `Delete rule: ${changed}`,
        press: ["Delete rule"],
        verify: async () => expect(await readRule(changed)).toBeUndefined(),
      },
    ],
  };
}
/** The address of a webhook, which is a secret. */
const webhookAddress = { URL: "https://hooks.example.invalid/planted-4e1c-secret" };
/** An address with a password, which the API rejects. */
const addressWithPassword = { URL: "https://somebody:else@hooks.example.invalid/" };

/**
 * The form case of a sync provider, with a sync record of that provider.
 *
 * @param wrong - Invalid input. `wrongField` is the field that shows the error.
 * @param labels - For each field label, the member of the provider's configuration in the simulated cloud that is valid input.
 * @param target - The target of the sync record: the page's name of the provider's service, and the name of the copy.
 */
function providerCase(
  title: string,
  id: string,
  wrong: FormInput,
  wrongField: string | undefined,
  labels: Record<string, string>,
  [targetService, name]: [targetService: string, name: string],
): FormCase {
  const readProvider = async () =>
    (await get("/api/automation/sync/providers")).items.find((one: { provider: string }) => one.provider === id);
  const validInput = () => {
    const configuration = service.cloud.control.providers.configurations()[id]!;
    return Object.fromEntries(Object.entries(labels).map(([label, member]) => [label, configuration[member]!]));
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
          return { ...validInput(), "Credential expires": EXPIRY_DATE };
        },
        press: ["Test and save"],
        verify: async () => {
          const { settings, expiresOn } = await readProvider();
          expect(expiresOn).toContain(EXPIRY_DATE);
          // Adds a time of day through the API. The next step checks that a form without changes keeps it.
          const body = { ...settings, expiresOn: EXPIRY_TIME };
          expect((await service.admin("POST", `/api/automation/sync/providers/${id}`, body)).status).toBe(200);
        },
      },
      {
        again: true,
        open: `Edit: ${title}`,
        press: ["Test and save"],
        verify: async () => expect(Date.parse((await readProvider()).expiresOn)).toBe(Date.parse(EXPIRY_TIME)),
      },
      {
        open: `Edit: ${title}`,
        typed: { "Credential expires": "" },
        press: ["Test and save"],
        verify: async () => expect(await readProvider()).toMatchObject({ configured: true, expiresOn: null }),
      },
      ...syncRecordCase(id, targetService, name).steps,
      {
        view: () => "/sync",
        open: `Delete credentials: ${title}`,
        press: ["Delete credentials"],
        verify: async () => expect(await readProvider()).toMatchObject({ configured: false }),
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
const recordsOf = (name: string) => findPaths("/api/automation/sync/records", "targetName", [name], "recordId");

/** The form case of a sync record. */
function syncRecordCase(target: string, targetService: string, name: string, more: FormInput = {}): FormCase {
  const list = "/api/automation/sync/records";
  const readRecord = () => findItem(list, "targetName", name);
  return {
    leftovers: () => recordsOf(name),
    view: "/sync",
    steps: [
      {
        open: "Create sync",
        wrong: {
          "Source key vault name": "kv-shop",
          "Source secret name": "smtp",
          "Target provider": TARGETS[target]!,
          Service: targetService,
          "Target secret name": "a b/../?",
          ...more,
        },
        wrongField: "Target secret name",
        typed: { "Target secret name": name, "Check interval (hours)": "48", "Enable sync": false },
        press: ["Create sync"],
        verify: async () =>
          expect(await readRecord()).toMatchObject({
            targetProvider: target,
            scheduleHours: 48,
            enabled: false,
            state: "paused",
          }),
      },
      {
        view: async () => `/sync/${(await readRecord()).recordId}`,
        open: "Edit sync",
        typed: {
          "Check interval (hours)": "12",
          "Enable sync": true,
          "If someone changes the target value": "Only report the difference",
        },
        press: ["Save sync"],
        verify: async () =>
          expect(await readRecord()).toMatchObject({ scheduleHours: 12, enabled: true, onDrift: "report" }),
      },
      {
        open: "Sync now",
        press: ["Preview sync", "Sync now"],
        verify: () => expect.poll(async () => (await readRecord()).state).toBe("inSync"),
      },
      {
        again: true,
        open: "Delete sync",
        press: ["Delete sync"],
        verify: async () => expect(await readRecord()).toBeUndefined(),
      },
    ],
  };
}

/** The address of an identity provider that does not exist. Its configuration can be saved but not enabled. */
const UNREACHABLE_IDP = "https://idp.example.invalid";
const readSsoConfig = () => get("/auth/sso/config");
/**
 * Returns the B2C tenant of the simulated company that the service does not know yet, with the client secret of its
 * registration.
 */
const readOutletTenant = () => {
  const tenant = service.cloud.control.tenants.list().find(({ domain }) => domain === OUTLET.domain)!;
  return { ...tenant, secret: secretValueOf(OUTLET.registration, "lifecycle") };
};
const readDevopsSettings = () => get("/api/settings/integrations/devops");
const readSetting = async (category: string, key: string) =>
  (await get(`/api/settings/${category}`)).find((item: { key: string }) => item.key === key);
const readTypedUser = () => findItem("/auth/users", "username", "typed.user");
const readTypedToken = () => findItem("/auth/tokens", "name", "Nightly export");
/** Returns an application with a client secret, other than the one whose name is hostile text. */
const readApplication = async () =>
  (await get("/api/automation/rotation/apps?limit=100")).items.find(
    ({ credentials, displayName }: { credentials: { kind: string }[]; displayName: string }) =>
      displayName.startsWith("App") && credentials.some(({ kind }) => kind === "secret"),
  );
/** App 001 has a client secret, and the vault secret APP_001_SECRET is tagged with the application's ID. */
const readApp001 = () => findItem("/api/automation/rotation/apps", "displayName", "App 001");
const matchesOf = (appId: string) => `/api/automation/rotation/apps/${appId}/matches`;
const readApp001Match = async () => findItem(matchesOf((await readApp001()).appId), "assetId", APP_001_SECRET);
const readPolicy = async () => (await get(`/api/automation/rotation/apps/${(await readApplication()).appId}`)).policy;

export const FORM_CASES: Record<string, FormCase> = {
  "an email rule": ruleCase(
    "Email",
    "email",
    { "Email addresses": "on-call@acme.example" },
    { "Email addresses": "nobody" },
    "Email addresses",
  ),
  "a webhook rule": ruleCase("Webhook", "webhook", webhookAddress, addressWithPassword, "URL"),
  "a Slack rule": ruleCase("Slack", "slack", webhookAddress, addressWithPassword, "URL"),
  "a Teams rule": ruleCase("Microsoft Teams", "teams", webhookAddress, addressWithPassword, "URL"),
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
  "a snooze by filter": {
    leftovers: () => findPaths("/alerts/snoozes", "reason", ["The move"]),
    view: "/alerts",
    steps: [
      {
        open: "Snooze several assets",
        wrong: { Vault: "kv-shop", Reason: "The move", "Until (end of day)": "2020-01-01" },
        wrongField: "Until (end of day)",
        typed: { "Until (end of day)": EXPIRY_DATE },
        press: ["Snooze matching assets"],
        verify: async () =>
          expect(await findItem("/alerts/snoozes", "reason", "The move")).toMatchObject({
            filters: { vault: "kv-shop" },
          }),
      },
      {
        open: "End snooze: vault kv-shop",
        press: ["End snooze"],
        verify: async () => expect(await findItem("/alerts/snoozes", "reason", "The move")).toBeUndefined(),
      },
    ],
  },
  "a snooze on the asset page": {
    leftovers: () => findPaths("/alerts/snoozes", "reason", ["Renewed today"]),
    view: "/inventory/kv-shop.secret.smtp",
    steps: [
      {
        open: /^Snooze: /,
        wrong: { Reason: "Renewed today", "Until (end of day)": "2020-01-01" },
        wrongField: "Until (end of day)",
        typed: { "Until (end of day)": EXPIRY_DATE },
        press: ["Snooze asset"],
        verify: async () =>
          expect(await findItem("/alerts/snoozes", "reason", "Renewed today")).toMatchObject({
            assetId: "kv-shop.secret.smtp",
            ruleId: expect.any(String),
          }),
      },
      { view: () => "/alerts", open: "End snooze: kv-shop/smtp", press: ["End snooze"] },
    ],
  },
  "an endpoint of a certificate": {
    leftovers: () => [`${ENDPOINTS}&host=www.contoso.invalid`],
    view: "/inventory/kv-certificates.certificate.imported",
    steps: [
      {
        open: "Add endpoint",
        wrong: { "Host name": "www.contoso.invalid", Port: "22" },
        wrongField: "Port",
        typed: { Port: "443", "Platform, and its time to serve a new version": "Front Door: within 72 hours" },
        press: ["Add endpoint"],
        verify: async () =>
          // The name does not exist, so that the check finds no server.
          expect(await findItem(ENDPOINTS, "host", "www.contoso.invalid")).toMatchObject({
            port: 443,
            platform: "frontDoor",
            problems: [{ code: "unreachable" }],
          }),
      },
      { open: "Check endpoints", press: ["Check now"] },
      {
        open: "Remove: www.contoso.invalid:443",
        press: ["Remove endpoint"],
        verify: async () => expect(await service.listAll(ENDPOINTS)).toEqual([]),
      },
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
        press: ["Save owners"],
        verify: async () =>
          expect((await get("/alerts/owners")).items).toMatchObject([
            { owner: "payments", address: "pay@acme.example" },
            { owner: "team: one", address: "one@acme.example" },
          ]),
      },
    ],
  },
  "an exemption": {
    leftovers: () => findPaths("/compliance/exemptions", "reason", ["Goes next month"]),
    view: "/compliance?vault=kv-shop",
    steps: [
      {
        first: /expir/i,
        open: "Exempt from check",
        wrong: { Reason: "Goes next month", Expires: "2020-01-01" },
        wrongField: "Expires",
        typed: { Scope: "This vault", Expires: EXPIRY_DATE },
        press: ["Create exemption"],
        verify: async () =>
          expect(await findItem("/compliance/exemptions", "reason", "Goes next month")).toMatchObject({
            scope: { type: "vault" },
            category: "waiver",
          }),
      },
      {
        open: /^Remove exemption: /,
        press: ["Remove exemption"],
        verify: async () => expect(await service.listAll("/compliance/exemptions")).toEqual([]),
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
        verify: async () => expect(await findItem("/subscriptions", "name", "Typed")).toMatchObject({ source: "api" }),
      },
      { open: "Test access: Typed", press: ["Test access"], result: /[✓✗]/ },
      {
        open: "Remove: Typed",
        press: ["Remove subscription"],
        verify: async () => expect((await findItem("/subscriptions", "name", "Typed"))?.source).not.toBe("api"),
      },
    ],
  },
  "a setting that is a number": {
    view: "/settings",
    steps: [
      {
        open: "Edit: Critical expiry threshold",
        // "*" is the first field of the form, here the only one.
        wrong: { "*": "300" },
        wrongField: "*",
        typed: { "*": "5" },
        press: ["Save setting"],
        verify: async () =>
          expect(await readSetting("compliance-policy", "criticalExpiryDays")).toMatchObject({
            value: 5,
            source: "override",
          }),
      },
      {
        open: "Reset setting: Critical expiry threshold",
        press: ["Reset setting"],
        verify: async () =>
          expect((await readSetting("compliance-policy", "criticalExpiryDays")).source).toBe("default"),
      },
    ],
  },
  "a setting with options": {
    view: "/settings",
    steps: [
      {
        open: "Edit: Log level",
        typed: { "*": "WARNING" },
        press: ["Save setting"],
        verify: async () => expect((await readSetting("logging", "logLevel")).value).toBe("WARNING"),
      },
      {
        open: "Reset setting: Log level",
        press: ["Reset setting"],
        verify: async () => expect((await readSetting("logging", "logLevel")).source).toBe("default"),
      },
    ],
  },
  "the scope of monitoring": {
    view: "/settings",
    steps: [
      {
        open: "Monitor all subscriptions",
        press: ["Preview changes", "Turn off"],
        verify: async () => expect((await readSetting("features", "watchAll")).value).toBe(false),
      },
      {
        open: "Reset setting: Monitor all subscriptions",
        press: ["Preview changes", "Reset setting"],
        verify: async () =>
          expect(await readSetting("features", "watchAll")).toMatchObject({ value: true, source: "default" }),
      },
    ],
  },
  "a purge": {
    view: "/settings",
    steps: [
      {
        open: "Delete old entries: Audit log",
        typed: { "Delete entries older than (days)": "3000" },
        press: ["Delete old entries"],
        result: /entr(?:y|ies) deleted/,
      },
    ],
  },
  "an API token": {
    leftovers: () => findPaths("/auth/tokens", "name", ["Nightly export"]),
    view: "/access",
    steps: [
      {
        open: "Create token",
        typed: {
          Name: "Nightly export",
          Role: "Operator: read access, starting scans and syncs, canceling rotations, snoozes and exemptions",
          "Validity (days)": "14",
        },
        press: ["Create token"],
        result: /shown only once/,
        verify: async () => expect(await readTypedToken()).toMatchObject({ role: "operator", user: "admin" }),
      },
      {
        open: "Revoke: Nightly export",
        press: ["Revoke token"],
        verify: async () => expect(await readTypedToken()).toBeUndefined(),
      },
    ],
  },
  "a user": {
    leftovers: () => findPaths("/auth/users", "username", ["typed.user"]),
    view: "/access",
    steps: [
      {
        open: "Create user",
        wrong: { Username: "typed.user", "Email address": "typed@acme.example", Password: "short" },
        wrongField: "Password",
        typed: { Password: SECRET, Role: "Auditor: read access, including the audit log" },
        press: ["Create user"],
        verify: async () =>
          expect(await readTypedUser()).toMatchObject({ role: "auditor", email: "typed@acme.example" }),
      },
      {
        open: "Edit: typed.user",
        typed: { Role: "User: read access", Status: "Disabled" },
        press: ["Save user"],
        verify: async () => expect(await readTypedUser()).toMatchObject({ role: "user", state: "disabled" }),
      },
      {
        open: "Reset password: typed.user",
        wrong: { "New password": "short" },
        wrongField: "New password",
        typed: { "New password": `${SECRET}, another` },
        press: ["Reset password"],
        verify: async () => expect(await readTypedUser()).toMatchObject({ mustChangePassword: true }),
      },
      {
        open: "Delete user: typed.user",
        press: ["Delete user"],
        verify: async () => expect(await readTypedUser()).toBeUndefined(),
      },
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
        typed: { Issuer: UNREACHABLE_IDP, "Client secret expires": EXPIRY_DATE },
        press: ["Test connection", "Save configuration"],
        verify: async () =>
          expect(await readSsoConfig()).toMatchObject({
            providerType: "oidc",
            oidcIssuer: UNREACHABLE_IDP,
            oidcClientSecretSet: true,
            oidcClientSecretExpiresOn: expect.stringContaining(EXPIRY_DATE),
          }),
      },
      {
        open: "Edit user access",
        wrong: { "Role mapping": "Admins = emperor", "Roles claim or attribute": "roles" },
        wrongField: "Role mapping",
        typed: { "Role mapping": "Admins = admin", "Allowed email domains": "acme.example" },
        press: ["Save user access"],
        verify: async () =>
          expect(await readSsoConfig()).toMatchObject({
            roleMapping: { Admins: "admin" },
            rolesClaim: "roles",
            allowedEmailDomains: ["acme.example"],
          }),
      },
      // A new secret without an expiry date.
      {
        open: "Configure OpenID Connect",
        typed: { "Client secret": `${SECRET}, another`, "Sign-in button text": "Acme" },
        press: ["Test connection", "Save configuration"],
        verify: async () =>
          expect(await readSsoConfig()).toMatchObject({ loginButtonText: "Acme", oidcClientSecretExpiresOn: null }),
      },
      // The API rejects this while single sign-on is not enabled.
      { open: "Turn off password sign-in", wrong: {}, press: ["Turn off password sign-in"], cancels: true },
      {
        open: "Disable single sign-on",
        press: ["Disable single sign-on"],
        verify: async () => expect(await readSsoConfig()).toMatchObject({ isEnabled: false }),
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
            "Provider metadata": service.cloud.saml
              .metadata()
              .replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, UNREACHABLE_IDP),
            "Sign requests with the service's own key": true,
          };
        },
        press: ["Test connection", "Save configuration"],
        verify: async () =>
          expect(await readSsoConfig()).toMatchObject({ providerType: "saml", samlSignRequests: true }),
      },
      {
        open: "Configure SAML",
        wrong: { "Single logout URL": "http://idp.example.invalid/slo" },
        wrongField: "Single logout URL",
        typed: { "Single logout URL": `${UNREACHABLE_IDP}/slo` },
        press: ["Test connection", "Save configuration"],
        verify: async () =>
          expect(await readSsoConfig()).toMatchObject({
            samlLogoutUrl: `${UNREACHABLE_IDP}/slo`,
            samlEntryPoint: expect.stringContaining(UNREACHABLE_IDP),
            samlSignRequests: true,
          }),
      },
      {
        open: "Disable single sign-on",
        press: ["Disable single sign-on"],
        verify: async () => expect(await readSsoConfig()).toMatchObject({ isEnabled: false }),
      },
    ],
  },
  "sync to AWS": providerCase(
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
  "sync to HashiCorp Vault": providerCase(
    "HashiCorp Vault",
    "hashicorp",
    { Address: "http://store.example.invalid", Token: SECRET },
    "Address",
    { Address: "address", "Mount path": "mount", Token: "token" },
    ["KV secrets engine", "typed/copy"],
  ),
  "sync to Google": providerCase(
    "Google Cloud",
    "google",
    { "Project ID": "acme-shop", "Service account key file (JSON)": SECRET },
    "Service account key file (JSON)",
    { "Project ID": "projectId", "Service account key file (JSON)": "serviceAccountKey" },
    ["Secret Manager", "typed-copy"],
  ),
  "sync to GitHub": providerCase("GitHub", "github", { Token: "" }, undefined, { Token: "token" }, [
    "Actions secret",
    "acme/shop/TYPED_COPY",
  ]),
  "sync to Kubernetes": providerCase(
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
  "a sync to another key vault": syncRecordCase("azure", "Key vault", "typed-copy", {
    "Target key vault name": "kv-copies",
  }),
  "a B2C tenant": {
    leftovers: () => [`/b2c/tenants/${readOutletTenant().id}`],
    view: "/b2c",
    steps: [
      {
        open: "Add tenant",
        get wrong() {
          const { domain, clientId, secret } = readOutletTenant();
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
          return { "Tenant ID": readOutletTenant().id, "Client secret expires": EXPIRY_DATE };
        },
        press: ["Test connection", "Add tenant"],
        verify: async () =>
          expect(await get(`/b2c/tenants/${readOutletTenant().id}`)).toMatchObject({
            displayName: "Outlet",
            clientSecretExpiresOn: expect.stringContaining(EXPIRY_DATE),
          }),
      },
      {
        view: () => `/b2c/${readOutletTenant().id}`,
        open: "Test connection",
        press: ["Test connection"],
        result: /Connection test (passed|failed)/,
      },
      // A new secret without an expiry date.
      {
        open: "Edit tenant",
        wrong: { "Refresh interval (hours)": "5", Domain: "no domain" },
        wrongField: "Domain",
        get typed() {
          return { Domain: readOutletTenant().domain, "Client secret": readOutletTenant().secret, Name: "Outlets" };
        },
        press: ["Save tenant"],
        verify: async () => {
          const tenant = await get(`/b2c/tenants/${readOutletTenant().id}`);
          expect(tenant).toMatchObject({ displayName: "Outlets", discoveryIntervalHours: 5 });
          // The date that a discovery found in the tenant, or null.
          expect(tenant.clientSecretExpiresOn?.slice(0, 10)).not.toBe(EXPIRY_DATE);
        },
      },
      { open: "Refresh credentials", press: ["Refresh credentials"] },
      {
        open: "Remove tenant",
        press: ["Remove tenant"],
        verify: async () =>
          expect((await service.admin("GET", `/b2c/tenants/${readOutletTenant().id}`)).status).toBe(404),
      },
    ],
  },
  "Azure DevOps": {
    view: "/devops",
    steps: [
      {
        open: "Connect organization",
        wrong: { "Organization URL": "https://elsewhere.example/acme" },
        wrongField: "Organization URL",
        typed: { "Organization URL": "https://dev.azure.com/acme" },
        press: ["Connect organization"],
        verify: async () => expect((await readDevopsSettings()).orgUrl).toBe("https://dev.azure.com/acme"),
      },
      { open: "Test connection", press: ["Test connection"], result: /Connection test (passed|failed)/ },
      {
        open: "Select projects",
        typed: { "All projects, including future ones": false, Shop: true },
        press: ["Save projects"],
        verify: async () => expect((await readDevopsSettings()).projectIds).toHaveLength(1),
      },
      {
        open: "Select projects",
        typed: { "All projects, including future ones": true },
        press: ["Save projects"],
        verify: async () => expect((await readDevopsSettings()).projectIds).toEqual([]),
      },
      {
        open: "Add variables with copies",
        wrong: { "Variables with copies": "no project, x, DB, kv-shop/db" },
        wrongField: "Variables with copies",
        typed: { "Variables with copies": "" },
        press: ["Save list"],
        verify: async () => expect((await readDevopsSettings()).copies).toEqual([]),
      },
    ],
  },
  "a matching vault secret": {
    view: async () => {
      const { appId } = await readApp001();
      // Runs the timer that finds matches now.
      await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
      const isListed = async () => (await get(matchesOf(appId))).items.length > 0;
      await vi.waitUntil(isListed, { timeout: 150_000, interval: 200 });
      return `/rotation/apps/${appId}`;
    },
    steps: [
      { open: "Test match: kv-copies/app-001", press: ["Read secret and sign in"], result: /secret/ },
      {
        open: "Confirm match: kv-copies/app-001",
        press: ["Confirm match"],
        verify: async () =>
          expect(await readApp001Match()).toMatchObject({
            confidence: "certain",
            evidence: expect.arrayContaining(["confirmed"]),
          }),
      },
      {
        open: `Remove confirmation: ${APP_001_SECRET}`,
        press: ["Remove confirmation"],
        verify: async () => expect(await readApp001Match()).toMatchObject({ confidence: "likely" }),
      },
    ],
  },
  "a rotation policy": {
    leftovers: async () => [`/api/automation/rotation/apps/${(await readApplication()).appId}/policy`],
    view: async () => `/rotation/apps/${(await readApplication()).appId}`,
    steps: [
      {
        open: "Set policy",
        wrong: { "Overlap period (days)": "9", "Key Vault secrets to update": "nothing", Saturday: true },
        wrongField: "Key Vault secrets to update",
        typed: { "Key Vault secrets to update": "", "Validity of the new secret (days)": "60" },
        press: ["Save policy"],
        verify: async () =>
          expect(await readPolicy()).toMatchObject({
            overlapDays: 9,
            expiryDays: 60,
            automatic: false,
            // The times are the defaults of the form.
            maintenanceWindow: { days: ["saturday"], from: "22:00", to: "04:00" },
          }),
      },
      {
        open: "Edit policy",
        // A maintenance window is open for at least an hour.
        wrong: { "Overlap period (days)": "10", Sunday: true, "Opens at": "20:30", "Closes at": "21:00" },
        wrongField: "Closes at",
        typed: { "Closes at": "23:00", "Time zone": "Europe/Berlin (Central European Time)" },
        press: ["Save policy"],
        verify: async () =>
          expect(await readPolicy()).toMatchObject({
            overlapDays: 10,
            expiryDays: 60,
            maintenanceWindow: {
              days: ["saturday", "sunday"],
              from: "20:30",
              to: "23:00",
              timeZone: "Europe/Berlin",
            },
          }),
      },
      {
        open: "Edit policy",
        typed: { Saturday: false, Sunday: false },
        press: ["Save policy"],
        verify: async () => expect(await readPolicy()).toMatchObject({ overlapDays: 10, maintenanceWindow: null }),
      },
      { open: "Delete policy", press: ["Delete policy"], verify: async () => expect(await readPolicy()).toBeNull() },
    ],
  },
};
