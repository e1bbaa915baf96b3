import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { createServices, type Services } from "../../functions/services.ts";
import { createSignInFailures } from "../../shared/access/sign-in-failures.ts";
import { keyedHash } from "../../shared/access/tokens.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { DELIVERY_ROW, Deliveries } from "../../shared/alerts/delivery.ts";
import { newDelivery } from "../../shared/alerts/evaluate.ts";
import { createHistory } from "../../shared/alerts/history.ts";
import type { TrackedItem } from "../../shared/alerts/items.ts";
import { RULES, Rules, ruleKey } from "../../shared/alerts/rule.ts";
import { TrackedRows, trackedKey } from "../../shared/alerts/tracked-alerts.ts";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { SCAN_ROW, Scans, scanPartition } from "../../shared/discovery/scan.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { MatchRows, matchKey, matchPartition } from "../../shared/rotation/match.ts";
import type { Answer, CallOptions, Service } from "../support/service.ts";
import type { Fault } from "../support/table-proxy.ts";
import { createUsers, makeToken } from "../support/users.ts";

/** One request that changes something, and how to check whether it did. */
export interface Change {
  method: string;
  path: string;
  options?: CallOptions;
  /** Status code of success. */
  status: number;
  /** Allowed responses to a repeat if the first outcome was unknown. */
  settles: number[];
  /** The present state of the change. `begun`: it is in progress, shown as such, and a repeat completes it. */
  state(): Promise<"done" | "undone" | "begun">;
  /** The type of its audit entries, and their target if they don't have the request's id. */
  event: string;
  ofRequest?: (entry: { details?: Record<string, unknown>; target?: { id: string } }) => boolean;
  /** Outcomes of the entries of one completed request. Default: `intent` and `success`. */
  outcomes?: string[];
  /** Waits until no background work of the request is left. */
  settled?(): Promise<void>;
}

export interface ChangingEndpoint {
  /** As in the OpenAPI document. */
  endpoint: string;
  prepare(): Promise<Change>;
  /** The tested faults. Default: all. Hashing a password takes long. */
  faults?: readonly Fault[];
  /** Maximum number of tested writes: the rest repeat these for further rows. */
  writes?: number;
}

/** The application of this company, and the vault secret that contains its credential. */
export const APPLICATION = "Outcomes";
export const SECRET = "outcomes-client-secret";

const PASSWORD = "a long enough passphrase";

/** POST, PUT and DELETE endpoints that change nothing, or share all their code with a tested one. */
export const LEFT_OUT: Record<string, string> = {
  "POST /subscriptions/{subscription_id}/test": "reads only",
  "POST /auth/sso/config/test": "reads only",
  "POST /api/settings/integrations/devops/test": "reads only",
  "POST /auth/sso/discover": "reads only",
  "POST /api/automation/sync/records/{record_id}/plan": "reads only",
  "POST /b2c/tenants/{tenant_id}/test": "reads only",
  "POST /alerts/preview": "reads only",
  "POST /alerts/rules/{rule_id}/preview": "reads only",
  ...Object.fromEntries(
    [
      "POST /api/automation/rotation/discover",
      "POST /api/automation/rotation/rotate",
      "POST /api/assets/dependencies/rotate/{secret_id}",
      "POST /api/automation/rotation/rotations/{rotation_id}/cancel",
      "POST /api/automation/rotation/rotations/{rotation_id}/retry",
      "POST /api/automation/rotation/rotations/{rotation_id}/finish",
      "POST /api/automation/sync/records/{record_id}/sync",
      "POST /b2c/tenants/{tenant_id}/discover",
      "POST /api/assets/dependencies/discover",
    ].map((endpoint) => [endpoint, "begins work whose every step is lost or killed in tests of its own fixture"]),
  ),
  "POST /auth/sso/callback": "needs a response that was signed for it: test/sso/saml/sign-in.test.ts",
  "POST /api/automation/rotation/discover": "killed at its writes in test/applications/faults.test.ts",
  ...Object.fromEntries(
    ["features", "logging", "alert-defaults", "retention", "compliance-policy", "automation"].map((category) => [
      `PUT /api/settings/${category}`,
      "the same code as PUT /api/settings/performance",
    ]),
  ),
};

const DEVOPS = "/api/settings/integrations/devops";
const PROJECT = "aaaaaaaa-1111-4111-8111-111111111111";
/** The new values of each category of settings. */
const devopsChanges: Record<string, (number: number) => object> = {
  "": (number) => ({ orgUrl: `https://dev.azure.com/acme-${number}` }),
  "/projects": (number) => ({ projectIds: [`Shop ${number}`] }),
  "/copies": (number) => ({
    copies: [{ projectId: PROJECT, groupId: number, variable: "DB", vaultName: "kv-one", secretName: "db" }],
  }),
};

const ROTATION = `/api/automation/rotation/apps/${appIdOf(APPLICATION)}`;
const SYNC_RECORDS = "/api/automation/sync/records";
const SYNC_PROVIDER = "/api/automation/sync/providers/aws";

/**
 * Every endpoint that changes something. The service has scanned a vault `kv-one` with a secret `db`, and `SECRET`, which
 * contains the credential of the discovered application `APPLICATION`.
 */
export function changingEndpoints(service: Service, token: () => string): ChangingEndpoint[] {
  let number = 0;
  let fixture: Services | undefined;
  const services = () =>
    (fixture ??= createServices(
      loadConfig({ ...service.environment, AzureWebJobsStorage: service.azurite.connectionString() }),
    ));
  const ok = (answer: Answer): Answer => {
    if (answer.status >= 300) throw new Error(`${answer.status}: ${answer.text}`);
    return answer;
  };
  const call = async (method: string, path: string, body?: unknown) =>
    ok(await service.call(method, path, { token: token(), body })).body;
  const statusOf = async (path: string) => (await service.call("GET", path, { token: token() })).status;
  const exists = (path: string) => async () =>
    (await statusOf(path)) === 200 ? ("done" as const) : ("undone" as const);
  const isGone = (path: string) => async () =>
    (await statusOf(path)) === 404 ? ("done" as const) : ("undone" as const);

  const mailRule = (name: string) => ({
    name,
    alertType: "expiration",
    thresholds: [30],
    recipients: ["team@acme.example"],
  });
  const webhookRule = (name: string) => ({
    name,
    alertType: "expired",
    deliveryMethod: "webhook",
    webhookUrl: service.cloud.controlUrl.replace("/control", "/sink/outcomes"),
  });
  const newRule = (body: object) => call("POST", "/alerts/rules", body);
  const named = (what: string) => `${what} ${++number}`;
  const storedRule = (id: string) => services().tables.get(Rules, RULES, ruleKey(id));
  const ruleNamed = async (name: string) =>
    (await call("GET", "/alerts/rules?limit=1000")).items.some((rule: { name: string }) => rule.name === name)
      ? ("done" as const)
      : ("undone" as const);

  /** A rule that has notified of a secret. */
  async function ruleWithAlert(name: string): Promise<string> {
    const { id } = await newRule({ ...mailRule(name), enabled: false });
    const item: TrackedItem = {
      kind: "asset",
      id: "kv-one.secret.db",
      type: "secret",
      name: "db",
      vaultName: "kv-one",
      vaultId: "/vaults/kv-one",
      subscriptionId: "one",
      expiresOn: 1,
      threshold: 30,
    };
    const now = new Date().toISOString();
    const alert = { deliveryId: "", since: now, toldAt: now, times: 1, item };
    await services().tables.put(TrackedRows, id, trackedKey(item), alert);
    return id;
  }
  const acknowledgedIn = (ruleId: string, wanted: number) => async () =>
    (await call("GET", `/alerts/acknowledgements?rule_id=${ruleId}`)).total === wanted
      ? ("done" as const)
      : ("undone" as const);

  /** A copy of one user under another name, because hashing a password takes time. */
  async function user(): Promise<{ username: string; token: string }> {
    const { tables } = services();
    const read = () => tables.get(User, USERS_PARTITION, "template");
    if (!(await read())) await createUsers(service, [{ username: "template", password: PASSWORD, role: "user" }]);
    const username = `user-${++number}`;
    // The service's clock follows the store and may be behind this process's clock, so an earlier token is revoked in any case.
    const tokensValidFrom = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    await tables.insert(User, USERS_PARTITION, username, {
      ...withoutKeys((await read())!),
      username,
      tokensValidFrom,
    });
    const iat = (Date.now() - HOUR_MS / 2) / 1000;
    return { username, token: await makeToken(service, username, { claims: { iat } }) };
  }
  const tokenHolds = async (held: string) =>
    (await service.call("GET", "/auth/me", { token: held })).status === 200 ? ("undone" as const) : ("done" as const);

  const sessionsOf = async (username: string): Promise<{ id: string }[]> =>
    (await call("GET", `/auth/sessions?user=${username}`)).items;

  async function subscription() {
    const subscriptionId = randomUUID();
    await call("POST", "/subscriptions", { subscriptionId, name: "one" });
    return subscriptionId;
  }

  const performance = async () =>
    (await call("GET", "/api/settings/performance")).find(
      ({ key }: { key: string }) => key === "discoveryMaxWorkers",
    ) as { value: number; source: string };
  const setWorkers = (value: number) => call("PUT", "/api/settings/performance", { discoveryMaxWorkers: value });
  const withoutOverride = async () =>
    (await performance()).source === "override" ? ("undone" as const) : ("done" as const);

  /** A scan that stays queued, because no message is sent. */
  async function queuedScan(): Promise<string> {
    const { tables, audit, clock, randomness } = services();
    const quiet = { debug() {}, info() {}, warn() {}, error() {} };
    const discovery = createDiscovery({
      tables,
      audit,
      clock,
      randomness,
      log: quiet,
      queues: { send: async () => {}, checkReachable: async () => {} },
      active: { enter: async () => {} } as never,
      requireWatched: async () => {},
    });
    return (await discovery.start({ mode: "force" }, { actor: "admin", requestId: randomUUID() })).scanId;
  }

  /** Waits until no scan runs. A scan whose start or message was cut off continues only with the watch timer, minutes later. */
  async function scansSettled(): Promise<void> {
    for (let tries = 0; tries < 10; tries++) {
      const { items } = await call("GET", "/api/assets/discovery/scans?limit=3");
      if (!items.some(({ status }: { status: string }) => status === "queued" || status === "running")) return;
      await delay(200);
    }
  }

  /** A delivery two years old. */
  async function oldDelivery(): Promise<string> {
    const { tables, randomness } = services();
    const { id } = await newRule(mailRule(named("history")));
    const at = new Date(Date.now() - 2 * 365 * DAY_MS);
    const deliveryId = randomness.ulid(at);
    const made = newDelivery((await storedRule(id))!, { deliveryId, createdAt: at.toISOString(), items: [] });
    await createHistory(tables).record({ ...made, status: "delivered", finishedAt: at.toISOString() });
    return deliveryId;
  }
  const purged = (deliveryId: string) => async () =>
    (await services().tables.get(Deliveries, deliveryId, DELIVERY_ROW)) ? ("undone" as const) : ("done" as const);

  const newTenant = () => ({
    tenantId: randomUUID(),
    tenantDomain: `outcomes${++number}.onmicrosoft.com`,
    displayName: named("customers"),
    clientId: randomUUID(),
    clientSecret: "of outcomes",
    autoDiscover: false,
  });
  async function tenant(): Promise<string> {
    const { tenantId } = await call("POST", "/b2c/tenants", newTenant());
    return `/b2c/tenants/${tenantId}`;
  }

  const exemption = (scope: object) => ({
    checkId: "secret-content-type",
    scope,
    category: "waiver",
    reason: "outcomes",
    until: new Date(Date.now() + DAY_MS).toISOString(),
  });
  const ASSET = { type: "asset", id: "kv-one.secret.db" };

  /** A paused record, so that no run works in the background of its request. */
  const newRecord = () => ({
    sourceVault: "kv-one",
    sourceSecret: "db",
    targetProvider: "azure",
    targetService: "keyvault",
    targetRegion: "kv-one",
    targetName: `copy-${++number}`,
    enabled: false,
  });
  async function record(): Promise<string> {
    const { recordId } = await call("POST", SYNC_RECORDS, newRecord());
    return `${SYNC_RECORDS}/${recordId}`;
  }

  const provider = () => ({
    ...service.cloud.control.providers.configurations().aws,
    expiresOn: new Date(Date.now() + ++number * DAY_MS).toISOString(),
  });
  const forgetProvider = () => service.call("DELETE", SYNC_PROVIDER, { token: token() });

  const POLICY = `${ROTATION}/policy`;
  const newPolicy = () => ({ automatic: false, overlapDays: 1 + (++number % 90) });
  const forgetPolicy = () => service.call("DELETE", POLICY, { token: token() });

  const MATCH = { assetId: `kv-one.secret.${SECRET}` };
  /** Without proofs and confirmations of the match, and with room for as many proofs as allowed. */
  async function forgetMatch(): Promise<void> {
    const { tables } = services();
    await tables.remove(MatchRows, matchPartition(appIdOf(APPLICATION)), matchKey("kv-one", SECRET));
    const storage = service.azurite.connectionString();
    const limits = TableClient.fromConnectionString(storage, "RateLimits", { allowInsecureConnection: true });
    await limits.createTable();
    for await (const { partitionKey, rowKey } of limits.listEntities())
      await limits.deleteEntity(partitionKey!, rowKey!);
  }
  const match = async (): Promise<{ evidence: string[]; verified: string }> =>
    (await call("GET", `${ROTATION}/matches`)).items.find(({ assetId }: typeof MATCH) => assetId === MATCH.assetId);
  const isConfirmed = async () => (await match()).evidence.includes("confirmed");

  return [
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await user();
        const signedIn = async () =>
          (await services().tables.get(User, USERS_PARTITION, username))?.lastSignInAt
            ? ("done" as const)
            : ("undone" as const);
        return {
          method: "POST",
          path: "/auth/login",
          options: {
            body: { username, password: PASSWORD },
            headers: { "X-Forwarded-For": `192.0.2.${number % 250}` },
          },
          status: 200,
          settles: [200],
          state: signedIn,
          event: "user.signedIn",
          outcomes: ["success"],
        };
      },
    },
    {
      endpoint: "POST /auth/logout",
      async prepare() {
        const one = await user();
        return {
          method: "POST",
          path: "/auth/logout",
          options: { token: one.token },
          status: 200,
          settles: [200, 401],
          state: () => tokenHolds(one.token),
          event: "user.signedOut",
        };
      },
    },
    {
      endpoint: "POST /auth/password",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const one = await user();
        return {
          method: "POST",
          path: "/auth/password",
          options: { token: one.token, body: { currentPassword: PASSWORD, newPassword: "another long passphrase" } },
          status: 200,
          settles: [200, 401],
          state: () => tokenHolds(one.token),
          event: "user.passwordChanged",
        };
      },
    },
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await user();
        const from = { "X-Forwarded-For": `192.0.2.${number % 250}`, "Sec-Fetch-Site": "same-origin" };
        return {
          method: "POST",
          path: "/auth/login",
          options: { body: { username, password: PASSWORD, session: true }, headers: from },
          status: 200,
          settles: [200],
          state: async () => ((await sessionsOf(username)).length > 0 ? "done" : "undone"),
          event: "user.signedIn",
          outcomes: ["success"],
        };
      },
    },
    {
      endpoint: "DELETE /auth/sessions/{session_id}",
      async prepare() {
        const one = await user();
        const body = { username: one.username, password: PASSWORD, session: true };
        const from = { "X-Forwarded-For": `192.0.2.${number % 250}`, "Sec-Fetch-Site": "same-origin" };
        ok(await service.call("POST", "/auth/login", { body, headers: from }));
        const [session] = await sessionsOf(one.username);
        return {
          method: "DELETE",
          path: `/auth/sessions/${session!.id}`,
          options: { token: one.token },
          status: 200,
          settles: [200, 404],
          state: async () => ((await sessionsOf(one.username)).length === 0 ? "done" : "undone"),
          event: "session.ended",
        };
      },
    },
    {
      endpoint: "POST /auth/tokens",
      async prepare() {
        const one = await user();
        return {
          method: "POST",
          path: "/auth/tokens",
          options: { token: one.token, body: { name: "nightly" } },
          status: 201,
          // The token was not returned, so its name identifies the one to revoke.
          settles: [201, 409],
          state: async () => ((await call("GET", `/auth/tokens?user=${one.username}`)).total === 1 ? "done" : "undone"),
          event: "apiToken.created",
        };
      },
    },
    {
      endpoint: "DELETE /auth/tokens/{token_id}",
      async prepare() {
        const one = await user();
        const made = ok(
          await service.call("POST", "/auth/tokens", { token: one.token, body: { name: "nightly" } }),
        ).body;
        return {
          method: "DELETE",
          path: `/auth/tokens/${made.id}`,
          status: 200,
          settles: [200, 404],
          state: () => tokenHolds(made.token),
          event: "apiToken.ended",
        };
      },
    },
    {
      endpoint: "POST /auth/users",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const username = `made-${++number}`;
        return {
          method: "POST",
          path: "/auth/users",
          options: { body: { username, password: PASSWORD } },
          status: 201,
          settles: [201, 409],
          state: exists(`/auth/users/${username}`),
          event: "user.created",
        };
      },
    },
    {
      endpoint: "PUT /auth/users/{user_id}",
      async prepare() {
        const one = await user();
        const sso = { issuer: "https://idp.example", subject: one.username };
        return {
          method: "PUT",
          path: `/auth/users/${one.username}`,
          options: { body: { role: "admin", sso } },
          status: 200,
          settles: [200],
          state: async () => {
            const now = await call("GET", `/auth/users/${one.username}`);
            return now.role === "admin" && now.sso?.subject === one.username ? "done" : "undone";
          },
          event: "user.updated",
        };
      },
    },
    {
      endpoint: "DELETE /auth/users/{user_id}",
      async prepare() {
        const { username } = await user();
        const sso = { issuer: "https://idp.example", subject: username };
        await call("PUT", `/auth/users/${username}`, { sso });
        return {
          method: "DELETE",
          path: `/auth/users/${username}`,
          status: 200,
          settles: [200, 404],
          state: isGone(`/auth/users/${username}`),
          event: "user.deleted",
        };
      },
    },
    {
      endpoint: "POST /auth/users/{user_id}/unlock",
      async prepare() {
        const { username } = await user();
        const { config, tables, clock } = services();
        const hash = (text: string) => keyedHash(config.JWT_SIGNING_KEYS[0]!.key, "sign-in", text);
        const failures = createSignInFailures({ tables, clock, hash });
        for (let failure = 0; failure < 5; failure++) {
          await failures.begin({ username, address: "198.51.100.1", known: false });
        }
        return {
          method: "POST",
          path: `/auth/users/${username}/unlock`,
          status: 200,
          settles: [200],
          state: async () => ((await call("GET", `/auth/users/${username}`)).lockedUntil === null ? "done" : "undone"),
          event: "user.unlocked",
        };
      },
    },
    {
      endpoint: "DELETE /auth/sso/refused/{identity_id}",
      async prepare() {
        const { username } = await user();
        await call("PUT", `/auth/users/${username}`, { sso: { issuer: "https://idp.example", subject: username } });
        await call("DELETE", `/auth/users/${username}`);
        const refused = async () =>
          (await call("GET", "/auth/sso/refused?limit=1000")).items.find(
            (one: { username: string }) => one.username === username,
          );
        return {
          method: "DELETE",
          path: `/auth/sso/refused/${(await refused()).id}`,
          status: 200,
          settles: [200, 404],
          state: async () => ((await refused()) ? "undone" : "done"),
          event: "user.identityAllowed",
        };
      },
    },
    {
      endpoint: "PUT /auth/sso/config",
      async prepare() {
        const loginButtonText = named("sign in");
        const shown = async () => (await call("GET", "/auth/sso/config")).loginButtonText;
        return {
          method: "PUT",
          path: "/auth/sso/config",
          options: { body: { loginButtonText, oidcIssuer: "https://idp.example", oidcClientSecret: "of outcomes" } },
          status: 200,
          settles: [200],
          state: async () => ((await shown()) === loginButtonText ? "done" : "undone"),
          event: "sso.configured",
        };
      },
    },
    {
      endpoint: "DELETE /auth/sso/config",
      async prepare() {
        // Turning off is visible only in the change, because it was never turned on.
        const { etag } = await call("PUT", "/auth/sso/config", { loginButtonText: named("sign in") });
        return {
          method: "DELETE",
          path: "/auth/sso/config",
          status: 200,
          settles: [200],
          state: async () => ((await call("GET", "/auth/sso/config")).etag === etag ? "undone" : "done"),
          event: "sso.disabled",
        };
      },
    },
    {
      endpoint: "POST /subscriptions",
      async prepare() {
        const subscriptionId = randomUUID();
        return {
          method: "POST",
          path: "/subscriptions",
          options: { body: { subscriptionId, name: "one" } },
          status: 201,
          settles: [201, 409],
          state: exists(`/subscriptions/${subscriptionId}`),
          event: "subscription.added",
        };
      },
    },
    {
      endpoint: "DELETE /subscriptions/{subscription_id}",
      async prepare() {
        const path = `/subscriptions/${await subscription()}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          settles: [200, 404],
          async state() {
            const { status, body } = await service.call("GET", path, { token: token() });
            return status === 404 ? "done" : body.state === "removing" ? "begun" : "undone";
          },
          event: "subscription.removed",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules",
      async prepare() {
        const body = webhookRule(named("created"));
        return {
          method: "POST",
          path: "/alerts/rules",
          options: { body },
          status: 201,
          settles: [201, 409],
          state: () => ruleNamed(body.name),
          event: "alertRule.created",
        };
      },
    },
    {
      endpoint: "PUT /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await newRule(webhookRule(named("to change")));
        const name = named("changed");
        return {
          method: "PUT",
          path: `/alerts/rules/${id}`,
          options: { body: { name, webhookUrl: `${webhookRule("").webhookUrl}-2` } },
          status: 200,
          settles: [200],
          state: () => ruleNamed(name),
          event: "alertRule.changed",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await newRule(webhookRule(named("to delete")));
        return {
          method: "DELETE",
          path: `/alerts/rules/${id}`,
          status: 200,
          settles: [200, 404],
          state: isGone(`/alerts/rules/${id}`),
          event: "alertRule.deleted",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/rotate-secret",
      async prepare() {
        const { id } = await newRule(webhookRule(named("to rotate")));
        const before = (await storedRule(id))!.webhookVersion;
        return {
          method: "POST",
          path: `/alerts/rules/${id}/rotate-secret`,
          status: 200,
          settles: [200],
          state: async () => ((await storedRule(id))!.webhookVersion === before ? "undone" : "done"),
          event: "alertRule.secretRotated",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/test",
      async prepare() {
        const { id } = await newRule(webhookRule(named("to test")));
        return {
          method: "POST",
          path: `/alerts/rules/${id}/test`,
          status: 200,
          settles: [200],
          async state() {
            const { items } = await call("GET", `/alerts/history?rule_id=${id}`);
            if (items.length === 0) return "undone";
            // The delivery itself contains what was sent. The list is updated by the next run of the rules at the latest.
            const entries = await Promise.all(
              items.map((item: { id: string }) => call("GET", `/alerts/history/${item.id}`)),
            );
            const sent = entries.some((entry) => entry.recipients[0].status === "delivered");
            return sent ? "done" : "begun";
          },
          event: "alert.sent",
          ofRequest: ({ details }) => details?.ruleId === id,
        };
      },
    },
    {
      endpoint: "PUT /alerts/owners",
      async prepare() {
        const owner = named("owner");
        return {
          method: "PUT",
          path: "/alerts/owners",
          options: { body: { owners: [{ owner, address: "owner@acme.example" }] } },
          status: 200,
          settles: [200],
          state: async () => ((await call("GET", "/alerts/owners")).items[0]?.owner === owner ? "done" : "undone"),
          event: "alertOwners.changed",
        };
      },
    },
    {
      endpoint: "POST /alerts/snoozes",
      async prepare() {
        const { id } = await newRule(mailRule(named("to snooze")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        return {
          method: "POST",
          path: "/alerts/snoozes",
          options: { body: { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until } },
          status: 201,
          settles: [201, 409],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 1 ? "done" : "undone"),
          event: "alertSnooze.created",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/snoozes/{snooze_id}",
      async prepare() {
        const { id } = await newRule(mailRule(named("to wake")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        const snooze = { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until };
        const made = await call("POST", "/alerts/snoozes", snooze);
        return {
          method: "DELETE",
          path: `/alerts/snoozes/${made.id}`,
          status: 200,
          settles: [200, 404],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 0 ? "done" : "undone"),
          event: "alertSnooze.deleted",
        };
      },
    },
    {
      endpoint: "POST /alerts/acknowledgements",
      async prepare() {
        const id = await ruleWithAlert(named("to acknowledge"));
        return {
          method: "POST",
          path: "/alerts/acknowledgements",
          options: { body: { ruleId: id, itemId: "kv-one.secret.db", note: "outcomes" } },
          status: 201,
          settles: [201, 409],
          state: acknowledgedIn(id, 1),
          event: "alert.acknowledged",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/acknowledgements/{acknowledgement_id}",
      async prepare() {
        const id = await ruleWithAlert(named("to escalate"));
        const made = await call("POST", "/alerts/acknowledgements", { ruleId: id, itemId: "kv-one.secret.db" });
        return {
          method: "DELETE",
          path: `/alerts/acknowledgements/${made.items[0].id}`,
          status: 200,
          settles: [200, 404],
          state: acknowledgedIn(id, 0),
          event: "alert.acknowledgementRemoved",
        };
      },
    },
    ...[ASSET, { type: "vault", id: "kv-one" }].map(
      (scope): ChangingEndpoint => ({
        endpoint: "POST /compliance/exemptions",
        async prepare() {
          const id = `secret-content-type.${scope.type}.${scope.id}`;
          await service.call("DELETE", `/compliance/exemptions/${id}`, { token: token() });
          return {
            method: "POST",
            path: "/compliance/exemptions",
            options: { body: exemption(scope) },
            status: 201,
            settles: [201, 409],
            state: exists(`/compliance/exemptions/${id}`),
            event: "compliance.exemptionCreated",
          };
        },
      }),
    ),
    ...[ASSET, { type: "vault", id: "kv-one" }].map(
      (scope): ChangingEndpoint => ({
        endpoint: "DELETE /compliance/exemptions/{exemption_id}",
        async prepare() {
          const path = `/compliance/exemptions/secret-content-type.${scope.type}.${scope.id}`;
          await service.call("DELETE", path, { token: token() });
          await call("POST", "/compliance/exemptions", exemption(scope));
          return {
            method: "DELETE",
            path,
            status: 200,
            settles: [200, 404],
            state: isGone(path),
            event: "compliance.exemptionRemoved",
          };
        },
      }),
    ),
    {
      endpoint: "POST /compliance/evaluate",
      async prepare() {
        const last = async () => (await call("GET", "/compliance/score")).evaluation?.evaluationId;
        const before = await last();
        return {
          method: "POST",
          path: "/compliance/evaluate",
          status: 200,
          settles: [200],
          state: async () => ((await last()) === before ? "undone" : "done"),
          event: "compliance.evaluationRequested",
        };
      },
    },
    {
      endpoint: "POST /api/settings/retention/purge",
      async prepare() {
        const deliveryId = await oldDelivery();
        return {
          method: "POST",
          path: "/api/settings/retention/purge",
          status: 200,
          settles: [200],
          state: purged(deliveryId),
          event: "history.purged",
          ofRequest: ({ target }) => target?.id === "alerts",
        };
      },
    },
    {
      endpoint: "POST /api/settings/retention/purge/{history_type}",
      async prepare() {
        const deliveryId = await oldDelivery();
        return {
          method: "POST",
          path: "/api/settings/retention/purge/alerts",
          status: 200,
          settles: [200],
          state: purged(deliveryId),
          event: "history.purged",
        };
      },
    },
    {
      endpoint: "PUT /api/settings/performance",
      async prepare() {
        const value = 11 + (++number % 100);
        return {
          method: "PUT",
          path: "/api/settings/performance",
          options: { body: { discoveryMaxWorkers: value } },
          status: 200,
          settles: [200],
          state: async () => ((await performance()).value === value ? "done" : "undone"),
          event: "settings.changed",
        };
      },
    },
    ...Object.entries(devopsChanges).map(
      ([part, body]): ChangingEndpoint => ({
        endpoint: `PUT ${DEVOPS}${part}`,
        async prepare() {
          const options = { body: body(++number) };
          const [member, value] = Object.entries(options.body)[0]!;
          return {
            method: "PUT",
            path: `${DEVOPS}${part}`,
            options,
            status: 200,
            settles: [200],
            state: async () => {
              const now = await call("GET", DEVOPS);
              return JSON.stringify(now[member]) === JSON.stringify(value) ? "done" : "undone";
            },
            event: "devops.configured",
          };
        },
      }),
    ),
    {
      endpoint: "POST /b2c/tenants",
      async prepare() {
        const body = newTenant();
        return {
          method: "POST",
          path: "/b2c/tenants",
          options: { body },
          status: 201,
          settles: [201, 409],
          state: exists(`/b2c/tenants/${body.tenantId}`),
          event: "b2cTenant.registered",
        };
      },
    },
    {
      endpoint: "PUT /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await tenant();
        const displayName = named("changed");
        return {
          method: "PUT",
          path,
          options: { body: { displayName, clientSecret: named("of outcomes, too") } },
          status: 200,
          settles: [200],
          state: async () => ((await call("GET", path)).displayName === displayName ? "done" : "undone"),
          event: "b2cTenant.changed",
        };
      },
    },
    {
      endpoint: "DELETE /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await tenant();
        return {
          method: "DELETE",
          path,
          status: 200,
          settles: [200, 404],
          state: isGone(path),
          event: "b2cTenant.removed",
        };
      },
    },
    {
      endpoint: "POST /api/automation/sync/records",
      async prepare() {
        const body = newRecord();
        return {
          method: "POST",
          path: SYNC_RECORDS,
          options: { body },
          status: 201,
          settles: [201, 409],
          state: async () => {
            const { items } = await call("GET", `${SYNC_RECORDS}?limit=1000`);
            return items.some(({ targetName }: typeof body) => targetName === body.targetName) ? "done" : "undone";
          },
          event: "syncRecord.created",
        };
      },
    },
    {
      endpoint: "PUT /api/automation/sync/records/{record_id}",
      async prepare() {
        const path = await record();
        const scheduleHours = 25 + (++number % 600);
        return {
          method: "PUT",
          path,
          options: { body: { scheduleHours } },
          status: 200,
          settles: [200],
          state: async () => ((await call("GET", path)).scheduleHours === scheduleHours ? "done" : "undone"),
          event: "syncRecord.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/automation/sync/records/{record_id}",
      async prepare() {
        const path = await record();
        return {
          method: "DELETE",
          path,
          status: 200,
          settles: [200, 404],
          state: isGone(path),
          event: "syncRecord.deleted",
        };
      },
    },
    ...[false, true].map(
      (isConfigured): ChangingEndpoint => ({
        endpoint: "POST /api/automation/sync/providers/{provider}",
        async prepare() {
          await (isConfigured ? call("POST", SYNC_PROVIDER, provider()) : forgetProvider());
          const body = provider();
          return {
            method: "POST",
            path: SYNC_PROVIDER,
            options: { body },
            status: 200,
            settles: [200],
            state: async () => ((await call("GET", SYNC_PROVIDER)).expiresOn === body.expiresOn ? "done" : "undone"),
            event: "syncProvider.configured",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/automation/sync/providers/{provider}",
      async prepare() {
        await call("POST", SYNC_PROVIDER, provider());
        return {
          method: "DELETE",
          path: SYNC_PROVIDER,
          status: 200,
          settles: [200, 404],
          state: async () => ((await call("GET", SYNC_PROVIDER)).configured ? "undone" : "done"),
          event: "syncProvider.removed",
        };
      },
    },
    ...[false, true].map(
      (isSet): ChangingEndpoint => ({
        endpoint: "PUT /api/automation/rotation/apps/{app_id}/policy",
        async prepare() {
          await (isSet ? call("PUT", POLICY, newPolicy()) : forgetPolicy());
          const body = newPolicy();
          return {
            method: "PUT",
            path: POLICY,
            options: { body },
            status: 200,
            settles: [200],
            state: async () => {
              const { body: now } = await service.call("GET", POLICY, { token: token() });
              return now.overlapDays === body.overlapDays ? "done" : "undone";
            },
            event: "rotation.policyChanged",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/automation/rotation/apps/{app_id}/policy",
      async prepare() {
        await call("PUT", POLICY, newPolicy());
        return {
          method: "DELETE",
          path: POLICY,
          status: 200,
          settles: [200, 404],
          state: isGone(POLICY),
          event: "rotation.policyRemoved",
        };
      },
    },
    {
      endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/verify",
      async prepare() {
        await forgetMatch();
        return {
          method: "POST",
          path: `${ROTATION}/matches/verify`,
          options: { body: MATCH },
          status: 200,
          settles: [200],
          state: async () => ((await match()).verified === "signIn" ? "done" : "undone"),
          event: "rotation.matchVerified",
        };
      },
    },
    ...[true, false].map(
      (confirmed): ChangingEndpoint => ({
        endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/confirm",
        async prepare() {
          await forgetMatch();
          if (!confirmed) await call("POST", `${ROTATION}/matches/confirm`, { ...MATCH, confirmed: true });
          return {
            method: "POST",
            path: `${ROTATION}/matches/confirm`,
            options: { body: { ...MATCH, confirmed } },
            status: 200,
            settles: [200],
            state: async () => ((await isConfirmed()) === confirmed ? "done" : "undone"),
            event: "rotation.matchConfirmed",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/settings/{category}/{key}",
      async prepare() {
        await setWorkers(11 + (++number % 100));
        return {
          method: "DELETE",
          path: "/api/settings/performance/discoveryMaxWorkers",
          status: 200,
          settles: [200, 404],
          state: withoutOverride,
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/settings/all",
      async prepare() {
        await setWorkers(11 + (++number % 100));
        return {
          method: "DELETE",
          path: "/api/settings/all",
          status: 200,
          settles: [200],
          state: withoutOverride,
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/assets/discovery/scan/{scan_id}",
      writes: 8,
      async prepare() {
        const scanId = await queuedScan();
        const path = `/api/assets/discovery/scan/${scanId}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          settles: [200, 409],
          async state() {
            const scan = await services().tables.get(Scans, scanPartition(scanId), SCAN_ROW);
            return scan?.cancelledBy === undefined ? "undone" : "done";
          },
          event: "scan.cancelled",
          settled: scansSettled,
        };
      },
    },
    {
      endpoint: "POST /api/assets/discovery/scan",
      async prepare() {
        const scans = async () => (await call("GET", "/api/assets/discovery/scans?limit=1")).total as number;
        const before = await scans();
        return {
          method: "POST",
          path: "/api/assets/discovery/scan",
          options: { body: { mode: "force" } },
          status: 201,
          settles: [201],
          state: async () => ((await scans()) > before ? "done" : "undone"),
          event: "scan.started",
          settled: scansSettled,
          outcomes: ["intent"],
        };
      },
    },
  ];
}
