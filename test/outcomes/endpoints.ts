/**
 * The requests of every endpoint that changes something, with their preparation and how to read whether the change happened.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { TableClient } from "@azure/data-tables";
import { Secret, TOTP } from "otpauth";
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
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { MatchRows, matchKey, matchPartition } from "../../shared/rotation/match.ts";
import type { Answer, CallOptions, Service } from "../support/service.ts";
import type { Fault } from "../support/table-proxy.ts";
import { createUsers, makeToken } from "../support/users.ts";

/** One request that changes something, and how to find out whether it did. */
export interface Change {
  method: string;
  path: string;
  options?: CallOptions;
  /** Status code of success. */
  status: number;
  /** Allowed status codes of a repeated request, if the outcome of the first one was unknown. */
  allowedOnRepeat: number[];
  /** Reads whether the change happened. `begun`: it is in progress, the API shows that, and a repeated request completes it. */
  state(): Promise<"done" | "undone" | "begun">;
  /** Type of the audit entries. `belongsToRequest` selects those of this request if the request's ID is not enough. */
  event: string;
  belongsToRequest?: (entry: { details?: Record<string, unknown>; target?: { id: string } }) => boolean;
  /** Outcomes of the audit entries of one successful request. Default: `intent` and `success`. */
  outcomes?: string[];
  /** Waits until no background work of the request is left. */
  waitForBackgroundWork?(): Promise<void>;
}

/** An endpoint and how to prepare a request to it. */
export interface ChangingEndpoint {
  /** Method and path as in the OpenAPI document. */
  endpoint: string;
  prepare(): Promise<Change>;
  /** The tested faults. Default: all. Endpoints that hash a password are slow and get fewer. */
  faults?: readonly Fault[];
  /** Maximum number of tested writes. Default: 20. Further writes repeat these for other rows. */
  maxWrites?: number;
}

/** The application of this company, and the vault secret that contains its credential. */
export const APPLICATION = "Outcomes";
export const SECRET = "outcomes-client-secret";

const PASSWORD = "a long enough passphrase";

/** POST, PUT and DELETE endpoints that are not tested here, with the reason. */
export const UNTESTED_ENDPOINTS: Record<string, string> = {
  "POST /subscriptions/{subscription_id}/test": "reads only",
  "POST /auth/sso/config/test": "reads only",
  "POST /api/settings/integrations/devops/test": "reads only",
  "POST /auth/sso/discover": "reads only",
  "POST /auth/me/second-factor/challenge": "reads only",
  "POST /auth/step-up":
    "needs a second factor, which a repeated request can't use again: test/access/confirmations.test.ts",
  ...Object.fromEntries(
    ["POST /approvals/{approval_id}/approve", "POST /approvals/{approval_id}/reject"].map((endpoint) => [
      endpoint,
      "needs two administrators and a setting: test/access/confirmations.test.ts",
    ]),
  ),
  "POST /auth/me/second-factor/passkeys": "writes only the use of a second factor, once",
  "POST /auth/me/second-factor/passkeys/confirm":
    "needs the answer of an authenticator: test/page/second-factor.test.ts",
  "POST /auth/me/second-factor/methods/{method_id}/remove":
    "needs a second factor, which a repeated request can't use again: test/access/second-factor.test.ts",
  "POST /auth/me/second-factor/recovery-codes":
    "needs a second factor, which a repeated request can't use again: test/access/second-factor.test.ts",
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
    ].map((endpoint) => [endpoint, "starts work whose steps have fault tests of their own"]),
  ),
  "POST /auth/sso/callback": "needs a response that was signed for it: test/sso/saml/sign-in.test.ts",
  "POST /auth/sso/logout": "needs a logout token that was signed for it: test/sso/sign-out.test.ts",
  "POST /api/automation/rotation/discover": "has fault tests in test/applications/faults.test.ts",
  ...Object.fromEntries(
    ["features", "logging", "alert-defaults", "retention", "compliance-policy", "automation"].map((category) => [
      `PUT /api/settings/${category}`,
      "the same code as PUT /api/settings/performance",
    ]),
  ),
};

const DEVOPS = "/api/settings/integrations/devops";
const PROJECT = "aaaaaaaa-1111-4111-8111-111111111111";
/** For each endpoint of the Azure DevOps integration, a body that differs with each number. */
const devopsChanges: Record<string, (sequence: number) => object> = {
  "": (sequence) => ({ orgUrl: `https://dev.azure.com/acme-${sequence}` }),
  "/projects": (sequence) => ({ projectIds: [`Shop ${sequence}`] }),
  "/copies": (sequence) => ({
    copies: [{ projectId: PROJECT, groupId: sequence, variable: "DB", vaultName: "kv-one", secretName: "db" }],
  }),
};

const ROTATION = `/api/automation/rotation/apps/${appIdOf(APPLICATION)}`;
const SYNC_RECORDS = "/api/automation/sync/records";
const SYNC_PROVIDER = "/api/automation/sync/providers/aws";

/**
 * Returns the endpoints. The service must have scanned a vault `kv-one` with a secret `db`, and `SECRET`, which
 * contains the credential of the discovered application `APPLICATION`.
 */
export function changingEndpoints(service: Service, token: () => string): ChangingEndpoint[] {
  let sequence = 0;
  let fixture: Services | undefined;
  const services = () =>
    (fixture ??= createServices(
      loadConfig({ ...service.environment, AzureWebJobsStorage: service.azurite.connectionString() }),
    ));
  const requireSuccess = (answer: Answer): Answer => {
    if (answer.status >= 300) throw new Error(`${answer.status}: ${answer.text}`);
    return answer;
  };
  const call = async (method: string, path: string, body?: unknown) =>
    requireSuccess(await service.call(method, path, { token: token(), body })).body;
  const statusOf = async (path: string) => (await service.call("GET", path, { token: token() })).status;
  const stateIfExists = (path: string) => async () =>
    (await statusOf(path)) === 200 ? ("done" as const) : ("undone" as const);
  const stateIfRemoved = (path: string) => async () =>
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
  const uniqueName = (what: string) => `${what} ${++sequence}`;
  const storedRule = (id: string) => services().tables.get(Rules, RULES, ruleKey(id));
  const stateOfRuleNamed = async (name: string) =>
    (await call("GET", "/alerts/rules?limit=1000")).items.some((rule: { name: string }) => rule.name === name)
      ? ("done" as const)
      : ("undone" as const);

  /** Creates a rule that has sent an alert for a secret. */
  async function createRuleWithAlert(name: string): Promise<string> {
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
    const alertedAt = new Date().toISOString();
    const alert = { deliveryId: "", since: alertedAt, toldAt: alertedAt, times: 1, item };
    await services().tables.put(TrackedRows, id, trackedKey(item), alert);
    return id;
  }
  const stateOfAcknowledgements = (ruleId: string, expectedTotal: number) => async () =>
    (await call("GET", `/alerts/acknowledgements?rule_id=${ruleId}`)).total === expectedTotal
      ? ("done" as const)
      : ("undone" as const);

  /** Creates a user by copying a template user under a new name, because hashing another password takes time. */
  async function createUser(): Promise<{ username: string; token: string }> {
    const { tables } = services();
    const read = () => tables.get(User, USERS_PARTITION, "template");
    if (!(await read())) await createUsers(service, [{ username: "template", password: PASSWORD, role: "user" }]);
    const username = `user-${++sequence}`;
    // The token is issued half an hour ago, so that a revocation covers it although the service's clock may be behind this one.
    const tokensValidFrom = new Date(Date.now() - 2 * HOUR_MS).toISOString();
    await tables.insert(User, USERS_PARTITION, username, {
      ...withoutKeys((await read())!),
      username,
      tokensValidFrom,
    });
    const iat = (Date.now() - HOUR_MS / 2) / 1000;
    return { username, token: await makeToken(service, username, { claims: { iat, exp: iat + HOUR_MS / 1000 } }) };
  }
  const stateOfTokenRevocation = async (apiToken: string) =>
    (await service.call("GET", "/auth/me", { token: apiToken })).status === 200
      ? ("undone" as const)
      : ("done" as const);

  const listSessions = async (username: string): Promise<{ id: string }[]> =>
    (await call("GET", `/auth/sessions?user=${username}`)).items;

  async function addSubscription() {
    const subscriptionId = randomUUID();
    await call("POST", "/subscriptions", { subscriptionId, name: "one" });
    return subscriptionId;
  }

  const readWorkersSetting = async () =>
    (await call("GET", "/api/settings/performance")).find(
      ({ key }: { key: string }) => key === "discoveryMaxWorkers",
    ) as { value: number; source: string };
  const setWorkers = (value: number) => call("PUT", "/api/settings/performance", { discoveryMaxWorkers: value });
  /** The state of removing an override: done if the setting's value no longer comes from an override. */
  const stateOfOverrideRemoval = async () =>
    (await readWorkersSetting()).source === "override" ? ("undone" as const) : ("done" as const);

  /** Creates a scan that stays queued, because its message is not sent. */
  async function createQueuedScan(): Promise<string> {
    const { tables, audit, clock, randomness } = services();
    const silentLog = { debug() {}, info() {}, warn() {}, error() {} };
    const discovery = createDiscovery({
      tables,
      audit,
      clock,
      randomness,
      log: silentLog,
      queues: { send: async () => {}, checkReachable: async () => {} },
      active: { add: async () => {} } as never,
      requireWatched: async () => {},
    });
    return (await discovery.start({ mode: "force" }, { actor: "admin", requestId: randomUUID() })).scanId;
  }

  /**
   * Waits up to two seconds until no scan is active. A scan whose message was lost continues only minutes later, so it is not
   * awaited.
   */
  async function waitForScans(): Promise<void> {
    for (let tries = 0; tries < 10; tries++) {
      const { items } = await call("GET", "/api/assets/discovery/scans?limit=3");
      if (!items.some(({ status }: { status: string }) => status === "queued" || status === "running")) return;
      await delay(200);
    }
  }

  /** Writes a delivery that is two years old. */
  async function createOldDelivery(): Promise<string> {
    const { tables, randomness } = services();
    const { id } = await newRule(mailRule(uniqueName("history")));
    const at = new Date(Date.now() - 2 * 365 * DAY_MS);
    const deliveryId = randomness.ulid(at);
    const created = newDelivery((await storedRule(id))!, { deliveryId, createdAt: at.toISOString(), items: [] });
    await createHistory(tables).record({ ...created, status: "delivered", finishedAt: at.toISOString() });
    return deliveryId;
  }

  /** Writes a delivery that a restore of the tables holds. */
  async function createHeldDelivery(): Promise<string> {
    const { tables } = services();
    const { id } = await newRule({ ...mailRule(uniqueName("held")), enabled: false });
    const now = new Date();
    // From a source of its own: the IDs of one source increase, so that of a later `createOldDelivery` would not be old.
    const deliveryId = systemRandomness().ulid(now);
    const fields = { deliveryId, createdAt: now.toISOString(), items: [], held: true };
    await createHistory(tables).record(newDelivery((await storedRule(id))!, fields));
    return deliveryId;
  }
  const stateOfHeld = (deliveryId: string) => async () =>
    (await call("GET", `/alerts/history/${deliveryId}`)).status === "inDoubt" ? ("undone" as const) : ("done" as const);

  const stateOfPurge = (deliveryId: string) => async () =>
    (await services().tables.get(Deliveries, deliveryId, DELIVERY_ROW)) ? ("undone" as const) : ("done" as const);

  const newTenant = () => ({
    tenantId: randomUUID(),
    tenantDomain: `outcomes${++sequence}.onmicrosoft.com`,
    displayName: uniqueName("customers"),
    clientId: randomUUID(),
    clientSecret: "of outcomes",
    autoDiscover: false,
  });
  async function registerTenant(): Promise<string> {
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

  const readSecondFactor = async (username: string) =>
    (await services().tables.get(User, USERS_PARTITION, username))?.secondFactor;
  /** Starts adding an authenticator app. Returns its secret. */
  async function startTotp(userToken: string): Promise<string> {
    const options = { token: userToken, body: { currentPassword: PASSWORD } };
    const answer = await service.call("POST", "/auth/me/second-factor/totp", options);
    requireSuccess(answer);
    return answer.body.secret;
  }
  const codeOf = (secret: string) => new TOTP({ secret: Secret.fromBase32(secret) }).generate();

  /** A sync record that is not enabled, so that no sync runs in the background. */
  const newRecord = () => ({
    sourceVault: "kv-one",
    sourceSecret: "db",
    targetProvider: "azure",
    targetService: "keyvault",
    targetRegion: "kv-one",
    targetName: `copy-${++sequence}`,
    enabled: false,
  });
  async function createSyncRecord(): Promise<string> {
    const { recordId } = await call("POST", SYNC_RECORDS, newRecord());
    return `${SYNC_RECORDS}/${recordId}`;
  }

  const providerConfiguration = () => ({
    ...service.cloud.control.providers.configurations().aws,
    expiresOn: new Date(Date.now() + ++sequence * DAY_MS).toISOString(),
  });
  const removeProvider = () => service.call("DELETE", SYNC_PROVIDER, { token: token() });

  const POLICY = `${ROTATION}/policy`;
  const newPolicy = () => ({ automatic: false, overlapDays: 1 + (++sequence % 90) });
  const removePolicy = () => service.call("DELETE", POLICY, { token: token() });

  const MATCH = { assetId: `kv-one.secret.${SECRET}` };
  /** Removes the match's proof and confirmation, and the counters that limit proofs. */
  async function resetMatch(): Promise<void> {
    const { tables } = services();
    await tables.remove(MatchRows, matchPartition(appIdOf(APPLICATION)), matchKey("kv-one", SECRET));
    const storage = service.azurite.connectionString();
    const limits = TableClient.fromConnectionString(storage, "RateLimits", { allowInsecureConnection: true });
    await limits.createTable();
    for await (const { partitionKey, rowKey } of limits.listEntities())
      await limits.deleteEntity(partitionKey!, rowKey!);
  }
  const readMatch = async (): Promise<{ evidence: string[]; verified: string }> =>
    (await call("GET", `${ROTATION}/matches`)).items.find(({ assetId }: typeof MATCH) => assetId === MATCH.assetId);
  const isConfirmed = async () => (await readMatch()).evidence.includes("confirmed");

  return [
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await createUser();
        const signedIn = async () =>
          (await services().tables.get(User, USERS_PARTITION, username))?.lastSignInAt
            ? ("done" as const)
            : ("undone" as const);
        return {
          method: "POST",
          path: "/auth/login",
          options: {
            body: { username, password: PASSWORD },
            headers: { "X-Forwarded-For": `192.0.2.${sequence % 250}` },
          },
          status: 200,
          allowedOnRepeat: [200],
          state: signedIn,
          event: "user.signedIn",
          outcomes: ["success"],
        };
      },
    },
    {
      endpoint: "POST /auth/logout",
      async prepare() {
        const testUser = await createUser();
        return {
          method: "POST",
          path: "/auth/logout",
          options: { token: testUser.token },
          status: 200,
          allowedOnRepeat: [200, 401],
          state: () => stateOfTokenRevocation(testUser.token),
          event: "user.signedOut",
        };
      },
    },
    {
      endpoint: "POST /auth/password",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const testUser = await createUser();
        return {
          method: "POST",
          path: "/auth/password",
          options: {
            token: testUser.token,
            body: { currentPassword: PASSWORD, newPassword: "another long passphrase" },
          },
          status: 200,
          allowedOnRepeat: [200, 401],
          state: () => stateOfTokenRevocation(testUser.token),
          event: "user.passwordChanged",
        };
      },
    },
    {
      endpoint: "POST /auth/me/second-factor/totp",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const testUser = await createUser();
        return {
          method: "POST",
          path: "/auth/me/second-factor/totp",
          options: { token: testUser.token, body: { currentPassword: PASSWORD } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readSecondFactor(testUser.username))?.pendingTotp ? "done" : "undone"),
          event: "user.secondFactorStarted",
        };
      },
    },
    {
      endpoint: "POST /auth/me/second-factor/totp/confirm",
      async prepare() {
        const { username, token } = await createUser();
        const code = codeOf(await startTotp(token));
        return {
          method: "POST",
          path: "/auth/me/second-factor/totp/confirm",
          options: { token, body: { code } },
          status: 200,
          allowedOnRepeat: [200, 409],
          state: async () => ((await readSecondFactor(username))?.totp ? "done" : "undone"),
          event: "user.secondFactorAdded",
        };
      },
    },
    {
      endpoint: "DELETE /auth/users/{user_id}/second-factor",
      async prepare() {
        const { username, token } = await createUser();
        const body = { code: codeOf(await startTotp(token)) };
        requireSuccess(await service.call("POST", "/auth/me/second-factor/totp/confirm", { token, body }));
        return {
          method: "DELETE",
          path: `/auth/users/${username}/second-factor`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await readSecondFactor(username)) ? "undone" : "done"),
          event: "user.secondFactorReset",
        };
      },
    },
    {
      endpoint: "POST /auth/login",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const { username } = await createUser();
        const from = { "X-Forwarded-For": `192.0.2.${sequence % 250}`, "Sec-Fetch-Site": "same-origin" };
        return {
          method: "POST",
          path: "/auth/login",
          options: { body: { username, password: PASSWORD, session: true }, headers: from },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await listSessions(username)).length > 0 ? "done" : "undone"),
          event: "user.signedIn",
          outcomes: ["success"],
        };
      },
    },
    {
      endpoint: "DELETE /auth/sessions/{session_id}",
      async prepare() {
        const testUser = await createUser();
        const body = { username: testUser.username, password: PASSWORD, session: true };
        const from = { "X-Forwarded-For": `192.0.2.${sequence % 250}`, "Sec-Fetch-Site": "same-origin" };
        requireSuccess(await service.call("POST", "/auth/login", { body, headers: from }));
        const [session] = await listSessions(testUser.username);
        return {
          method: "DELETE",
          path: `/auth/sessions/${session!.id}`,
          options: { token: testUser.token },
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await listSessions(testUser.username)).length === 0 ? "done" : "undone"),
          event: "session.ended",
        };
      },
    },
    {
      endpoint: "POST /auth/tokens",
      async prepare() {
        const testUser = await createUser();
        return {
          method: "POST",
          path: "/auth/tokens",
          options: { token: testUser.token, body: { name: "nightly" } },
          status: 201,
          // 409: the token of the first request exists under this name, although its value was never returned.
          allowedOnRepeat: [201, 409],
          state: async () =>
            (await call("GET", `/auth/tokens?user=${testUser.username}`)).total === 1 ? "done" : "undone",
          event: "apiToken.created",
        };
      },
    },
    {
      endpoint: "DELETE /auth/tokens/{token_id}",
      async prepare() {
        const testUser = await createUser();
        const created = requireSuccess(
          await service.call("POST", "/auth/tokens", { token: testUser.token, body: { name: "nightly" } }),
        ).body;
        return {
          method: "DELETE",
          path: `/auth/tokens/${created.id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: () => stateOfTokenRevocation(created.token),
          event: "apiToken.ended",
        };
      },
    },
    {
      endpoint: "POST /auth/users",
      faults: ["LostAnswer", "CutAnswer"],
      async prepare() {
        const username = `made-${++sequence}`;
        return {
          method: "POST",
          path: "/auth/users",
          options: { body: { username, password: PASSWORD } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/auth/users/${username}`),
          event: "user.created",
        };
      },
    },
    {
      endpoint: "PUT /auth/users/{user_id}",
      async prepare() {
        const testUser = await createUser();
        const sso = { issuer: "https://idp.example", subject: testUser.username };
        return {
          method: "PUT",
          path: `/auth/users/${testUser.username}`,
          options: { body: { role: "admin", sso } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => {
            const current = await call("GET", `/auth/users/${testUser.username}`);
            return current.role === "admin" && current.sso?.subject === testUser.username ? "done" : "undone";
          },
          event: "user.updated",
        };
      },
    },
    {
      endpoint: "DELETE /auth/users/{user_id}",
      async prepare() {
        const { username } = await createUser();
        const sso = { issuer: "https://idp.example", subject: username };
        await call("PUT", `/auth/users/${username}`, { sso });
        return {
          method: "DELETE",
          path: `/auth/users/${username}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(`/auth/users/${username}`),
          event: "user.deleted",
        };
      },
    },
    {
      endpoint: "POST /auth/users/{user_id}/unlock",
      async prepare() {
        const { username } = await createUser();
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
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", `/auth/users/${username}`)).lockedUntil === null ? "done" : "undone"),
          event: "user.unlocked",
        };
      },
    },
    {
      endpoint: "DELETE /auth/sso/refused/{identity_id}",
      async prepare() {
        const { username } = await createUser();
        await call("PUT", `/auth/users/${username}`, { sso: { issuer: "https://idp.example", subject: username } });
        await call("DELETE", `/auth/users/${username}`);
        const refused = async () =>
          (await call("GET", "/auth/sso/refused?limit=1000")).items.find(
            (testUser: { username: string }) => testUser.username === username,
          );
        return {
          method: "DELETE",
          path: `/auth/sso/refused/${(await refused()).id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await refused()) ? "undone" : "done"),
          event: "user.identityAllowed",
        };
      },
    },
    {
      endpoint: "PUT /auth/sso/config",
      async prepare() {
        const loginButtonText = uniqueName("sign in");
        const shown = async () => (await call("GET", "/auth/sso/config")).loginButtonText;
        return {
          method: "PUT",
          path: "/auth/sso/config",
          options: { body: { loginButtonText, oidcIssuer: "https://idp.example", oidcClientSecret: "of outcomes" } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await shown()) === loginButtonText ? "done" : "undone"),
          event: "sso.configured",
        };
      },
    },
    {
      endpoint: "DELETE /auth/sso/config",
      async prepare() {
        // Single sign-on was never on, so only the changed ETag shows that it was turned off.
        const { etag } = await call("PUT", "/auth/sso/config", { loginButtonText: uniqueName("sign in") });
        return {
          method: "DELETE",
          path: "/auth/sso/config",
          status: 200,
          allowedOnRepeat: [200],
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
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/subscriptions/${subscriptionId}`),
          event: "subscription.added",
        };
      },
    },
    {
      endpoint: "DELETE /subscriptions/{subscription_id}",
      async prepare() {
        const path = `/subscriptions/${await addSubscription()}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
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
        const body = webhookRule(uniqueName("created"));
        return {
          method: "POST",
          path: "/alerts/rules",
          options: { body },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: () => stateOfRuleNamed(body.name),
          event: "alertRule.created",
        };
      },
    },
    {
      endpoint: "PUT /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await newRule(webhookRule(uniqueName("to change")));
        const name = uniqueName("changed");
        return {
          method: "PUT",
          path: `/alerts/rules/${id}`,
          options: { body: { name, webhookUrl: `${webhookRule("").webhookUrl}-2` } },
          status: 200,
          allowedOnRepeat: [200],
          state: () => stateOfRuleNamed(name),
          event: "alertRule.changed",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await newRule(webhookRule(uniqueName("to delete")));
        return {
          method: "DELETE",
          path: `/alerts/rules/${id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(`/alerts/rules/${id}`),
          event: "alertRule.deleted",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/rotate-secret",
      async prepare() {
        const { id } = await newRule(webhookRule(uniqueName("to rotate")));
        const versionBefore = (await storedRule(id))!.webhookVersion;
        return {
          method: "POST",
          path: `/alerts/rules/${id}/rotate-secret`,
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await storedRule(id))!.webhookVersion === versionBefore ? "undone" : "done"),
          event: "alertRule.secretRotated",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/test",
      async prepare() {
        const { id } = await newRule(webhookRule(uniqueName("to test")));
        return {
          method: "POST",
          path: `/alerts/rules/${id}/test`,
          status: 200,
          allowedOnRepeat: [200],
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
          belongsToRequest: ({ details }) => details?.ruleId === id,
        };
      },
    },
    {
      endpoint: "PUT /alerts/owners",
      async prepare() {
        const owner = uniqueName("owner");
        return {
          method: "PUT",
          path: "/alerts/owners",
          options: { body: { owners: [{ owner, address: "owner@acme.example" }] } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", "/alerts/owners")).items[0]?.owner === owner ? "done" : "undone"),
          event: "alertOwners.changed",
        };
      },
    },
    {
      endpoint: "POST /alerts/snoozes",
      async prepare() {
        const { id } = await newRule(mailRule(uniqueName("to snooze")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        return {
          method: "POST",
          path: "/alerts/snoozes",
          options: { body: { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 1 ? "done" : "undone"),
          event: "alertSnooze.created",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/snoozes/{snooze_id}",
      async prepare() {
        const { id } = await newRule(mailRule(uniqueName("to wake")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        const snooze = { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until };
        const created = await call("POST", "/alerts/snoozes", snooze);
        return {
          method: "DELETE",
          path: `/alerts/snoozes/${created.id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 0 ? "done" : "undone"),
          event: "alertSnooze.deleted",
        };
      },
    },
    ...(["send", "drop"] as const).map(
      (decision): ChangingEndpoint => ({
        endpoint: `POST /alerts/history/{entry_id}/${decision}`,
        async prepare() {
          const deliveryId = await createHeldDelivery();
          return {
            method: "POST",
            path: `/alerts/history/${deliveryId}/${decision}`,
            status: 200,
            allowedOnRepeat: [200, 409],
            state: stateOfHeld(deliveryId),
            event: decision === "send" ? "alert.heldSent" : "alert.heldDropped",
          };
        },
      }),
    ),
    {
      endpoint: "POST /alerts/acknowledgements",
      async prepare() {
        const id = await createRuleWithAlert(uniqueName("to acknowledge"));
        return {
          method: "POST",
          path: "/alerts/acknowledgements",
          options: { body: { ruleId: id, itemId: "kv-one.secret.db", note: "outcomes" } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateOfAcknowledgements(id, 1),
          event: "alert.acknowledged",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/acknowledgements/{acknowledgement_id}",
      async prepare() {
        const id = await createRuleWithAlert(uniqueName("to escalate"));
        const created = await call("POST", "/alerts/acknowledgements", { ruleId: id, itemId: "kv-one.secret.db" });
        return {
          method: "DELETE",
          path: `/alerts/acknowledgements/${created.items[0].id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateOfAcknowledgements(id, 0),
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
            allowedOnRepeat: [201, 409],
            state: stateIfExists(`/compliance/exemptions/${id}`),
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
            allowedOnRepeat: [200, 404],
            state: stateIfRemoved(path),
            event: "compliance.exemptionRemoved",
          };
        },
      }),
    ),
    {
      endpoint: "POST /compliance/evaluate",
      async prepare() {
        const readLastEvaluationId = async () => (await call("GET", "/compliance/score")).evaluation?.evaluationId;
        const idBefore = await readLastEvaluationId();
        return {
          method: "POST",
          path: "/compliance/evaluate",
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readLastEvaluationId()) === idBefore ? "undone" : "done"),
          event: "compliance.evaluationRequested",
        };
      },
    },
    {
      endpoint: "POST /api/settings/retention/purge",
      async prepare() {
        const deliveryId = await createOldDelivery();
        return {
          method: "POST",
          path: "/api/settings/retention/purge",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfPurge(deliveryId),
          event: "history.purged",
          belongsToRequest: ({ target }) => target?.id === "alerts",
        };
      },
    },
    {
      endpoint: "POST /api/settings/retention/purge/{history_type}",
      async prepare() {
        const deliveryId = await createOldDelivery();
        return {
          method: "POST",
          path: "/api/settings/retention/purge/alerts",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfPurge(deliveryId),
          event: "history.purged",
        };
      },
    },
    {
      endpoint: "PUT /api/settings/performance",
      async prepare() {
        const value = 11 + (++sequence % 100);
        return {
          method: "PUT",
          path: "/api/settings/performance",
          options: { body: { discoveryMaxWorkers: value } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readWorkersSetting()).value === value ? "done" : "undone"),
          event: "settings.changed",
        };
      },
    },
    ...Object.entries(devopsChanges).map(
      ([part, body]): ChangingEndpoint => ({
        endpoint: `PUT ${DEVOPS}${part}`,
        async prepare() {
          const options = { body: body(++sequence) };
          const [member, value] = Object.entries(options.body)[0]!;
          return {
            method: "PUT",
            path: `${DEVOPS}${part}`,
            options,
            status: 200,
            allowedOnRepeat: [200],
            state: async () => {
              const current = await call("GET", DEVOPS);
              return JSON.stringify(current[member]) === JSON.stringify(value) ? "done" : "undone";
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
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/b2c/tenants/${body.tenantId}`),
          event: "b2cTenant.registered",
        };
      },
    },
    {
      endpoint: "PUT /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await registerTenant();
        const displayName = uniqueName("changed");
        return {
          method: "PUT",
          path,
          options: { body: { displayName, clientSecret: uniqueName("of outcomes, too") } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", path)).displayName === displayName ? "done" : "undone"),
          event: "b2cTenant.changed",
        };
      },
    },
    {
      endpoint: "DELETE /b2c/tenants/{tenant_id}",
      async prepare() {
        const path = await registerTenant();
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(path),
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
          allowedOnRepeat: [201, 409],
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
        const path = await createSyncRecord();
        const scheduleHours = 25 + (++sequence % 600);
        return {
          method: "PUT",
          path,
          options: { body: { scheduleHours } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", path)).scheduleHours === scheduleHours ? "done" : "undone"),
          event: "syncRecord.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/automation/sync/records/{record_id}",
      async prepare() {
        const path = await createSyncRecord();
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(path),
          event: "syncRecord.deleted",
        };
      },
    },
    ...[false, true].map(
      // Without and with an existing configuration.
      (isConfigured): ChangingEndpoint => ({
        endpoint: "POST /api/automation/sync/providers/{provider}",
        async prepare() {
          await (isConfigured ? call("POST", SYNC_PROVIDER, providerConfiguration()) : removeProvider());
          const body = providerConfiguration();
          return {
            method: "POST",
            path: SYNC_PROVIDER,
            options: { body },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => ((await call("GET", SYNC_PROVIDER)).expiresOn === body.expiresOn ? "done" : "undone"),
            event: "syncProvider.configured",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/automation/sync/providers/{provider}",
      async prepare() {
        await call("POST", SYNC_PROVIDER, providerConfiguration());
        return {
          method: "DELETE",
          path: SYNC_PROVIDER,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await call("GET", SYNC_PROVIDER)).configured ? "undone" : "done"),
          event: "syncProvider.removed",
        };
      },
    },
    ...[false, true].map(
      (isSet): ChangingEndpoint => ({
        endpoint: "PUT /api/automation/rotation/apps/{app_id}/policy",
        async prepare() {
          await (isSet ? call("PUT", POLICY, newPolicy()) : removePolicy());
          const body = newPolicy();
          return {
            method: "PUT",
            path: POLICY,
            options: { body },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => {
              const { body: current } = await service.call("GET", POLICY, { token: token() });
              return current.overlapDays === body.overlapDays ? "done" : "undone";
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
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(POLICY),
          event: "rotation.policyRemoved",
        };
      },
    },
    {
      endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/verify",
      async prepare() {
        await resetMatch();
        return {
          method: "POST",
          path: `${ROTATION}/matches/verify`,
          options: { body: MATCH },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readMatch()).verified === "signIn" ? "done" : "undone"),
          event: "rotation.matchVerified",
        };
      },
    },
    ...[true, false].map(
      (confirmed): ChangingEndpoint => ({
        endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/confirm",
        async prepare() {
          await resetMatch();
          if (!confirmed) await call("POST", `${ROTATION}/matches/confirm`, { ...MATCH, confirmed: true });
          return {
            method: "POST",
            path: `${ROTATION}/matches/confirm`,
            options: { body: { ...MATCH, confirmed } },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => ((await isConfirmed()) === confirmed ? "done" : "undone"),
            event: "rotation.matchConfirmed",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/settings/{category}/{key}",
      async prepare() {
        await setWorkers(11 + (++sequence % 100));
        return {
          method: "DELETE",
          path: "/api/settings/performance/discoveryMaxWorkers",
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateOfOverrideRemoval,
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/settings/all",
      async prepare() {
        await setWorkers(11 + (++sequence % 100));
        return {
          method: "DELETE",
          path: "/api/settings/all",
          status: 200,
          allowedOnRepeat: [200],
          state: stateOfOverrideRemoval,
          event: "settings.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/assets/discovery/scan/{scan_id}",
      maxWrites: 8,
      async prepare() {
        const scanId = await createQueuedScan();
        const path = `/api/assets/discovery/scan/${scanId}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 409],
          async state() {
            const scan = await services().tables.get(Scans, scanPartition(scanId), SCAN_ROW);
            return scan?.cancelledBy === undefined ? "undone" : "done";
          },
          event: "scan.cancelled",
          waitForBackgroundWork: waitForScans,
        };
      },
    },
    {
      endpoint: "POST /api/assets/discovery/scan",
      async prepare() {
        const scans = async () => (await call("GET", "/api/assets/discovery/scans?limit=1")).total as number;
        const totalBefore = await scans();
        return {
          method: "POST",
          path: "/api/assets/discovery/scan",
          options: { body: { mode: "force" } },
          status: 201,
          allowedOnRepeat: [201],
          state: async () => ((await scans()) > totalBefore ? "done" : "undone"),
          event: "scan.started",
          waitForBackgroundWork: waitForScans,
          outcomes: ["intent"],
        };
      },
    },
  ];
}
