/** The forms of the page, each with what a person types, what the API then answers, how it is changed and removed. */
import { expect, vi } from "vitest";
import { secretValueOf } from "../../infra/local/cloud/company/applications.ts";
import type { Typed } from "./fill-in.ts";
import { service } from "./opened.ts";
import { HOLDS_APP_001, OUTLET } from "./planted.ts";

export interface Step {
  /** The address of another view, gone to first. */
  view?(): string | Promise<string>;
  /** Whether the page is loaded again first, since what it shows has changed by itself. */
  again?: boolean;
  /** What has to be pressed before the form can be opened. */
  first?: RegExp;
  /** The button that opens the form. */
  open: string | RegExp;
  /** What the API refuses of it, and the field where it says so, if it is one field's. */
  wrong?: Typed;
  wrongField?: string;
  typed?: Typed;
  /** The buttons of the form, one after the other; the last one saves. */
  press: string[];
  /** Whether it stays refused, and the form is given up. */
  leaves?: boolean;
  /** What the form says in the end; without it the form closes. */
  says?: RegExp;
  /** What holds afterwards, as the API has it. */
  seen?(): Promise<unknown>;
}

export interface FormCase {
  /** Where what an earlier try has left is deleted, so that this one begins as that one did. */
  left?(): string[] | Promise<string[]>;
  /** The view's address, or what finds it out. */
  view: string | (() => Promise<string>);
  steps: Step[];
}

/** What is typed into secret fields; it is looked for afterwards wherever it should not be. */
export const SECRET = "planted-4e1c-secret";

const get = async (path: string) => {
  const { status, body, text } = await service.admin("GET", path);
  expect(status, text).toBe(200);
  return body;
};
/** Of a list the one with such a member. */
const one = async (path: string, member: string, value: string) =>
  (await service.all(path)).find((item) => item[member] === value);
/** The addresses of those of a list with such a member. */
const all = async (path: string, member: string, values: string[], id = "id") =>
  (await service.all(path)).filter((item) => values.includes(item[member])).map((item) => `${path}/${item[id]}`);
const rule = (name: string) => one("/alerts/rules", "name", name);
/** One day for all that is typed and looked for, also at midnight. */
const SOON = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
const AT_NOON = `${SOON}T12:00:00Z`;

/** A rule of a channel, with what is typed of its address. */
function ruleBy(channel: string, method: string, address: Typed, wrong: Typed, wrongField: string): FormCase {
  const [name, changed] = [`By ${channel}`, `By ${channel}, changed`];
  return {
    left: () => all("/alerts/rules", "name", [name, changed]),
    view: "/alerts",
    steps: [
      {
        open: "New rule",
        wrong: { Name: name, "Told by": channel, ...address, ...wrong },
        wrongField,
        typed: address,
        press: ["Create"],
        ...(method === "webhook" && { says: /shown only now/ }),
        seen: async () =>
          expect(await rule(name)).toMatchObject({ deliveryMethod: method, thresholds: [30, 7, 1], enabled: true }),
      },
      {
        open: `Change: ${name}`,
        wrong: { "Days before the end": "4000" },
        wrongField: "Days before the end",
        typed: { Name: changed, "Days before the end": "20, 10", "When it is sent": "In a daily digest" },
        press: ["Show what it would tell", "Change"],
        seen: async () =>
          expect(await rule(changed)).toMatchObject({
            deliveryMethod: method,
            thresholds: [20, 10],
            deliveryMode: "digest",
          }),
      },
      {
        open: `Switch off: ${changed}`,
        press: ["Switch off"],
        seen: async () => expect((await rule(changed)).enabled).toBe(false),
      },
      { open: `Delete: ${changed}`, press: ["Delete"], seen: async () => expect(await rule(changed)).toBeUndefined() },
    ],
  };
}
const hook = { Address: "https://hooks.example.invalid/planted-4e1c-secret" };
const inside = { Address: "https://somebody:else@hooks.example.invalid/" };

/** How the service signs in where it copies to, and a copy there. */
function provider(
  title: string,
  id: string,
  wrong: Typed,
  wrongField: string | undefined,
  labels: Record<string, string>,
  [keptIn, name]: [keptIn: string, name: string],
): FormCase {
  const now = async () =>
    (await get("/api/automation/sync/providers")).items.find((one: { provider: string }) => one.provider === id);
  const typed = () => {
    const known = service.cloud.control.providers.configurations()[id]!;
    return Object.fromEntries(Object.entries(labels).map(([label, member]) => [label, known[member]!]));
  };
  return {
    left: async () => [...(await recordsOf(name)), `/api/automation/sync/providers/${id}`],
    view: "/sync",
    steps: [
      {
        open: `Set up: ${title}`,
        wrong,
        ...(wrongField !== undefined && { wrongField }),
        get typed() {
          return { ...typed(), "The credential ends on": SOON };
        },
        press: ["Try and save"],
        seen: async () => {
          const { settings, expiresOn } = await now();
          expect(expiresOn).toContain(SOON);
          const body = { ...settings, expiresOn: AT_NOON };
          expect((await service.admin("POST", `/api/automation/sync/providers/${id}`, body)).status).toBe(200);
        },
      },
      {
        again: true,
        open: `Change: ${title}`,
        press: ["Try and save"],
        seen: async () => expect(Date.parse((await now()).expiresOn)).toBe(Date.parse(AT_NOON)),
      },
      {
        open: `Change: ${title}`,
        typed: { "The credential ends on": "" },
        press: ["Try and save"],
        seen: async () => expect(await now()).toMatchObject({ configured: true, expiresOn: null }),
      },
      ...record(id, keptIn, name).steps,
      {
        view: () => "/sync",
        open: `Remove: ${title}`,
        press: ["Remove"],
        seen: async () => expect(await now()).toMatchObject({ configured: false }),
      },
    ],
  };
}

const recordsOf = (name: string) => all("/api/automation/sync/records", "targetName", [name], "recordId");

/** A copy in another store. */
function record(to: string, keptIn: string, name: string, more: Typed = {}): FormCase {
  const list = "/api/automation/sync/records";
  const now = () => one(list, "targetName", name);
  return {
    left: () => recordsOf(name),
    view: "/sync",
    steps: [
      {
        open: "New copy",
        wrong: { "Key vault": "kv-shop", Secret: "smtp", To: to, "Kept in": keptIn, "Name there": "a b/../?", ...more },
        wrongField: "Name there",
        typed: { "Name there": name, "Looked at every so many hours": "48", "Switched on": false },
        press: ["Create"],
        seen: async () =>
          expect(await now()).toMatchObject({ targetProvider: to, scheduleHours: 48, enabled: false, state: "paused" }),
      },
      {
        view: async () => `/sync/${(await now()).recordId}`,
        open: "Change",
        typed: {
          "Looked at every so many hours": "12",
          "Switched on": true,
          "What somebody else changes there": "is told of",
        },
        press: ["Change"],
        seen: async () => expect(await now()).toMatchObject({ scheduleHours: 12, enabled: true, onDrift: "report" }),
      },
      {
        open: "Copy now",
        press: ["Show what would be done", "Copy"],
        seen: () => expect.poll(async () => (await now()).state).toBe("inSync"),
      },
      {
        again: true,
        open: "Delete",
        press: ["Delete"],
        seen: async () => expect(await now()).toBeUndefined(),
      },
    ],
  };
}

/** Providers are reached by https alone, and this one by nobody: what is typed can be saved, and is not switched on. */
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
const match = async () => one(matchesOf((await app001()).appId), "assetId", HOLDS_APP_001);
const policy = async () => (await get(`/api/automation/rotation/apps/${(await application()).appId}`)).policy;

export const FORMS: Record<string, FormCase> = {
  "a rule by mail": ruleBy(
    "Mail",
    "email",
    { "E-mail addresses": "on-call@acme.example" },
    { "E-mail addresses": "nobody" },
    "E-mail addresses",
  ),
  "a rule by webhook": ruleBy("Webhook", "webhook", hook, inside, "Address"),
  "a rule by Slack": ruleBy("Slack", "slack", hook, inside, "Address"),
  "a rule by Teams": ruleBy("Microsoft Teams", "teams", hook, inside, "Address"),
  "a rule by PagerDuty": ruleBy(
    "PagerDuty",
    "pagerDuty",
    { "Integration key of the Events API v2": "0123456789abcdef0123456789abcdef" },
    { "Integration key of the Events API v2": "short" },
    "Integration key of the Events API v2",
  ),
  "a rule by ServiceNow": ruleBy(
    "ServiceNow",
    "serviceNow",
    { "Address of the instance": "https://acme.example.invalid", Username: "integration", Password: SECRET },
    { "Address of the instance": "https://somebody:else@acme.example.invalid" },
    "Address of the instance",
  ),
  "a snooze of an asset": {
    left: () => all("/alerts/snoozes", "reason", ["Seen to"]),
    view: "/alerts",
    steps: [
      {
        open: "Snooze an asset",
        wrong: { Asset: "nothing", Reason: "Seen to", "Until the end of": SOON },
        typed: { Asset: "kv-shop.secret.db" },
        press: ["Snooze"],
        seen: async () =>
          expect(await one("/alerts/snoozes", "assetId", "kv-shop.secret.db")).toMatchObject({ reason: "Seen to" }),
      },
      {
        open: "End now: kv-shop.secret.db",
        press: ["End"],
        seen: async () => expect(await one("/alerts/snoozes", "assetId", "kv-shop.secret.db")).toBeUndefined(),
      },
    ],
  },
  "a snooze of all that fit": {
    left: () => all("/alerts/snoozes", "reason", ["The move"]),
    view: "/alerts",
    steps: [
      {
        open: "Snooze all that fit",
        wrong: { "Only this vault": "kv-shop", Reason: "The move", "Until the end of": "2020-01-01" },
        wrongField: "Until the end of",
        typed: { "Until the end of": SOON },
        press: ["Snooze"],
        seen: async () =>
          expect(await one("/alerts/snoozes", "reason", "The move")).toMatchObject({ filters: { vault: "kv-shop" } }),
      },
      {
        open: "End now: vault kv-shop",
        press: ["End"],
        seen: async () => expect(await one("/alerts/snoozes", "reason", "The move")).toBeUndefined(),
      },
    ],
  },
  "a snooze where it was told of": {
    left: () => all("/alerts/snoozes", "reason", ["Renewed today"]),
    view: "/inventory/kv-shop.secret.smtp",
    steps: [
      {
        open: /^Snooze: /,
        wrong: { Reason: "Renewed today", "Until the end of": "2020-01-01" },
        wrongField: "Until the end of",
        typed: { "Until the end of": SOON },
        press: ["Snooze"],
        seen: async () =>
          expect(await one("/alerts/snoozes", "reason", "Renewed today")).toMatchObject({
            assetId: "kv-shop.secret.smtp",
            ruleId: expect.any(String),
          }),
      },
      { view: () => "/alerts", open: "End now: kv-shop.secret.smtp", press: ["End"] },
    ],
  },
  owners: {
    view: "/alerts",
    steps: [
      {
        open: "Change the owners",
        wrong: { Owners: "payments: nobody" },
        wrongField: "Owners",
        typed: { Owners: "payments: pay@acme.example\nteam: one: one@acme.example" },
        press: ["Save"],
        seen: async () =>
          expect((await get("/alerts/owners")).items).toMatchObject([
            { owner: "payments", address: "pay@acme.example" },
            { owner: "team: one", address: "one@acme.example" },
          ]),
      },
    ],
  },
  "an exemption": {
    left: () => all("/compliance/exemptions", "reason", ["Goes next month"]),
    view: "/compliance?vault=kv-shop",
    steps: [
      {
        first: /expir/i,
        open: "Exempt",
        wrong: { Reason: "Goes next month", Until: "2020-01-01" },
        wrongField: "Until",
        typed: { For: "vault", Until: SOON },
        press: ["Exempt"],
        seen: async () =>
          expect(await one("/compliance/exemptions", "reason", "Goes next month")).toMatchObject({
            scope: { type: "vault" },
            category: "waiver",
          }),
      },
      {
        open: /^Remove: /,
        press: ["Remove"],
        seen: async () => expect(await service.all("/compliance/exemptions")).toEqual([]),
      },
    ],
  },
  "a subscription": {
    left: () => ["/subscriptions/99999999-2222-4333-8444-555555555555"],
    view: "/vaults",
    steps: [
      {
        open: "Add a subscription",
        wrong: { "Subscription id": "none", Name: "Typed" },
        wrongField: "Subscription id",
        typed: { "Subscription id": "99999999-2222-4333-8444-555555555555" },
        press: ["Add"],
        seen: async () => expect(await one("/subscriptions", "name", "Typed")).toMatchObject({ source: "api" }),
      },
      { open: "Test: Typed", press: ["Test"], says: /[✓✗]/ },
      {
        open: "Remove: Typed",
        press: ["Remove"],
        seen: async () => expect((await one("/subscriptions", "name", "Typed"))?.source).not.toBe("api"),
      },
    ],
  },
  "a setting that is a number": {
    view: "/settings",
    steps: [
      {
        open: "Change: criticalExpiryDays",
        wrong: { "*": "300" },
        wrongField: "*",
        typed: { "*": "5" },
        press: ["Change"],
        seen: async () =>
          expect(await setting("compliance-policy", "criticalExpiryDays")).toMatchObject({
            value: 5,
            source: "override",
          }),
      },
      {
        open: "Reset: criticalExpiryDays",
        press: ["Reset"],
        seen: async () => expect((await setting("compliance-policy", "criticalExpiryDays")).source).toBe("default"),
      },
    ],
  },
  "a setting that is chosen": {
    view: "/settings",
    steps: [
      {
        open: "Change: logLevel",
        typed: { "*": "WARNING" },
        press: ["Change"],
        seen: async () => expect((await setting("logging", "logLevel")).value).toBe("WARNING"),
      },
      {
        open: "Reset: logLevel",
        press: ["Reset"],
        seen: async () => expect((await setting("logging", "logLevel")).source).toBe("default"),
      },
    ],
  },
  "what is watched": {
    view: "/settings",
    steps: [
      {
        open: "Change: watchAll",
        typed: { "*": false },
        press: ["Show what would change", "Change"],
        seen: async () => expect((await setting("features", "watchAll")).value).toBe(false),
      },
      {
        open: "Reset: watchAll",
        press: ["Show what would change", "Reset"],
        seen: async () =>
          expect(await setting("features", "watchAll")).toMatchObject({ value: true, source: "default" }),
      },
    ],
  },
  "a purge": {
    view: "/settings",
    steps: [
      {
        open: "Purge: audit",
        typed: { "Keep so many days": "3000" },
        press: ["Purge"],
        says: /entries removed/,
      },
    ],
  },
  "an API token": {
    left: () => all("/auth/tokens", "name", ["Nightly export"]),
    view: "/access",
    steps: [
      {
        open: "New token",
        typed: { Name: "Nightly export", Role: "operator: reads, scans, snoozes, exempts", "Days it holds": "14" },
        press: ["Create"],
        says: /shown only now/,
        seen: async () => expect(await token()).toMatchObject({ role: "operator", user: "admin" }),
      },
      { open: "End: Nightly export", press: ["End"], seen: async () => expect(await token()).toBeUndefined() },
    ],
  },
  "a user": {
    left: () => all("/auth/users", "username", ["typed.user"]),
    view: "/access",
    steps: [
      {
        open: "New user",
        wrong: { Username: "typed.user", "E-mail address": "typed@acme.example", Password: "short" },
        wrongField: "Password",
        typed: { Password: SECRET, Role: "auditor: reads, the audit log too" },
        press: ["Create"],
        seen: async () => expect(await user()).toMatchObject({ role: "auditor", email: "typed@acme.example" }),
      },
      {
        open: "Change: typed.user",
        typed: { Role: "user: reads", State: "disabled" },
        press: ["Change"],
        seen: async () => expect(await user()).toMatchObject({ role: "user", state: "disabled" }),
      },
      {
        open: "Reset the password: typed.user",
        wrong: { "New password": "short" },
        wrongField: "New password",
        typed: { "New password": `${SECRET}, another` },
        press: ["Reset"],
        seen: async () => expect(await user()).toMatchObject({ mustChangePassword: true }),
      },
      { open: "Delete: typed.user", press: ["Delete"], seen: async () => expect(await user()).toBeUndefined() },
    ],
  },
  "OpenID Connect": {
    left: () => ["/auth/sso/config"],
    view: "/sso",
    steps: [
      {
        open: "Set up OpenID Connect",
        wrong: { Issuer: "http://idp.example.invalid", "Client id": "lifecycle", "Client secret": SECRET },
        wrongField: "Issuer",
        typed: { Issuer: IDP, "The client secret ends on": SOON },
        press: ["Test", "Save"],
        seen: async () =>
          expect(await sso()).toMatchObject({
            providerType: "oidc",
            oidcIssuer: IDP,
            oidcClientSecretSet: true,
            oidcClientSecretExpiresOn: expect.stringContaining(SOON),
          }),
      },
      {
        open: "Change who comes in",
        wrong: { "Role mapping": "Admins = emperor", "Where the provider says the roles": "roles" },
        wrongField: "Role mapping",
        typed: { "Role mapping": "Admins = admin", "Only with a verified address in": "acme.example" },
        press: ["Save"],
        seen: async () =>
          expect(await sso()).toMatchObject({
            roleMapping: { Admins: "admin" },
            rolesClaim: "roles",
            allowedEmailDomains: ["acme.example"],
          }),
      },
      // Another secret, of which nobody has said when it ends.
      {
        open: "Set up OpenID Connect",
        typed: { "Client secret": `${SECRET}, another`, "Text of the sign-in button": "Acme" },
        press: ["Test", "Save"],
        seen: async () =>
          expect(await sso()).toMatchObject({ loginButtonText: "Acme", oidcClientSecretExpiresOn: null }),
      },
      { open: "Switch passwords off", wrong: {}, press: ["Switch off"], leaves: true },
      { open: "Remove", press: ["Remove"], seen: async () => expect(await sso()).toMatchObject({ isEnabled: false }) },
    ],
  },
  SAML: {
    left: () => ["/auth/sso/config"],
    view: "/sso",
    steps: [
      {
        open: "Set up SAML",
        get typed() {
          return {
            "The provider's metadata": service.cloud.saml.metadata().replaceAll(/http:\/\/127\.0\.0\.1:\d+/g, IDP),
            "Sign our requests, with a key of our own": true,
          };
        },
        press: ["Test", "Save"],
        seen: async () => expect(await sso()).toMatchObject({ providerType: "saml", samlSignRequests: true }),
      },
      { open: "Remove", press: ["Remove"], seen: async () => expect(await sso()).toMatchObject({ isEnabled: false }) },
    ],
  },
  "sync to AWS": provider(
    "Amazon Web Services",
    "aws",
    {
      "Access key id": "AKIAIOSFODNN7EXAMPLE",
      "Secret access key": "planted-4e1c-secret".padEnd(40, "x"),
      Region: "no region",
    },
    "Region",
    { "Access key id": "accessKeyId", "Secret access key": "secretAccessKey", Region: "region" },
    ["parameterstore", "/typed/copy"],
  ),
  "sync to HashiCorp Vault": provider(
    "HashiCorp Vault",
    "hashicorp",
    { Address: "http://store.example.invalid", Token: SECRET },
    "Address",
    { Address: "address", Mount: "mount", Token: "token" },
    ["kv", "typed/copy"],
  ),
  "sync to Google": provider(
    "Google Cloud",
    "google",
    { "Project id": "acme-shop", "Content of the service account's key file": SECRET },
    "Content of the service account's key file",
    { "Project id": "projectId", "Content of the service account's key file": "serviceAccountKey" },
    ["secretmanager", "typed-copy"],
  ),
  "sync to GitHub": provider("GitHub", "github", { Token: "" }, undefined, { Token: "token" }, [
    "actions",
    "acme/shop/TYPED_COPY",
  ]),
  "sync to Kubernetes": provider(
    "Kubernetes",
    "kubernetes",
    { Address: "http://store.example.invalid", Namespace: "shop", "Token of the service account": SECRET },
    "Address",
    {
      Address: "address",
      "Certificate of its authority (PEM)": "caCertificate",
      Namespace: "namespace",
      "Token of the service account": "token",
    },
    ["secret", "typed-copy"],
  ),
  "a copy in Azure": record("azure", "keyvault", "typed-copy", { "Key vault there": "kv-copies" }),
  "a B2C tenant": {
    left: () => [`/b2c/tenants/${outlet().id}`],
    view: "/b2c",
    steps: [
      {
        open: "Add a tenant",
        get wrong() {
          const { domain, clientId, secret } = outlet();
          return {
            "Tenant id": "none",
            Name: "Outlet",
            Domain: domain,
            "Client id": clientId,
            "Client secret": secret,
          };
        },
        wrongField: "Tenant id",
        get typed() {
          return { "Tenant id": outlet().id, "The client secret ends on": SOON };
        },
        press: ["Add"],
        seen: async () =>
          expect(await get(`/b2c/tenants/${outlet().id}`)).toMatchObject({
            displayName: "Outlet",
            clientSecretExpiresOn: expect.stringContaining(SOON),
          }),
      },
      {
        view: () => `/b2c/${outlet().id}`,
        open: "Test",
        press: ["Test"],
        says: /can be read/,
      },
      // Another secret, of which nobody has said when it ends.
      {
        open: "Change",
        wrong: { "Every so many hours": "5", Domain: "no domain" },
        wrongField: "Domain",
        get typed() {
          return { Domain: outlet().domain, "Client secret": outlet().secret, Name: "Outlets" };
        },
        press: ["Save"],
        seen: async () => {
          const now = await get(`/b2c/tenants/${outlet().id}`);
          expect(now).toMatchObject({ displayName: "Outlets", discoveryIntervalHours: 5 });
          expect(now.clientSecretExpiresOn?.slice(0, 10)).not.toBe(SOON);
        },
      },
      { open: "Read it now", press: ["Read"] },
      {
        open: "Remove",
        press: ["Remove"],
        seen: async () => expect((await service.admin("GET", `/b2c/tenants/${outlet().id}`)).status).toBe(404),
      },
    ],
  },
  "Azure DevOps": {
    view: "/devops",
    steps: [
      {
        open: "Change the organization",
        wrong: { "Address of the organization": "https://elsewhere.example/acme" },
        wrongField: "Address of the organization",
        typed: { "Address of the organization": "https://dev.azure.com/acme" },
        press: ["Save"],
        seen: async () => expect((await devops()).orgUrl).toBe("https://dev.azure.com/acme"),
      },
      { open: "Test", press: ["Test"], says: /It (works|does not work yet)/ },
      {
        open: "Choose projects",
        typed: { "All, and those that are made later": false, Shop: true },
        press: ["Save"],
        seen: async () => expect((await devops()).projectIds).toHaveLength(1),
      },
      {
        open: "Choose projects",
        typed: { "All, and those that are made later": true },
        press: ["Save"],
        seen: async () => expect((await devops()).projectIds).toEqual([]),
      },
      {
        open: "Change the copies",
        wrong: { Copies: "no project, x, DB, kv-shop/db" },
        wrongField: "Copies",
        typed: { Copies: "" },
        press: ["Save"],
        seen: async () => expect((await devops()).copies).toEqual([]),
      },
    ],
  },
  "a vault secret that holds an application's": {
    view: async () => {
      const { appId } = await app001();
      await fetch(`${service.url}/admin/functions/indexRotationMatches`, { method: "POST", body: "{}" });
      const isListed = async () => (await get(matchesOf(appId))).items.length > 0;
      await vi.waitUntil(isListed, { timeout: 150_000, interval: 200 });
      return `/rotation/apps/${appId}`;
    },
    steps: [
      { open: `Prove: ${HOLDS_APP_001}`, press: ["Read it and sign in"], says: /secret/ },
      {
        open: `Confirm: ${HOLDS_APP_001}`,
        press: ["Confirm"],
        seen: async () =>
          expect(await match()).toMatchObject({
            confidence: "certain",
            evidence: expect.arrayContaining(["confirmed"]),
          }),
      },
      {
        open: `Take the word back: ${HOLDS_APP_001}`,
        press: ["Take it back"],
        seen: async () => expect(await match()).toMatchObject({ confidence: "likely" }),
      },
    ],
  },
  "a rotation policy": {
    left: async () => [`/api/automation/rotation/apps/${(await application()).appId}/policy`],
    view: async () => `/rotation/apps/${(await application()).appId}`,
    steps: [
      {
        open: "Set a policy",
        wrong: { "Days in which both hold": "9", "Only these vault secrets": "nothing" },
        wrongField: "Only these vault secrets",
        typed: { "Only these vault secrets": "", "Days the new one holds": "60" },
        press: ["Save"],
        seen: async () => expect(await policy()).toMatchObject({ overlapDays: 9, expiryDays: 60, automatic: false }),
      },
      {
        open: "Change the policy",
        typed: { "Days in which both hold": "10" },
        press: ["Save"],
        seen: async () => expect(await policy()).toMatchObject({ overlapDays: 10, expiryDays: 60 }),
      },
      { open: "Remove the policy", press: ["Remove"], seen: async () => expect(await policy()).toBeNull() },
    ],
  },
};
