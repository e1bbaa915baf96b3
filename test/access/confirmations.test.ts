import { randomBytes } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { Secret, TOTP } from "otpauth";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Services } from "../../functions/services.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { APPROVALS, type ApprovalRecord, Approvals } from "../../shared/approvals/approval.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { codeOf, confirmWithPreviousCode } from "../support/authenticator-app.ts";
import { licence } from "../support/licence.ts";
import { type Answer, Service } from "../support/service.ts";
import { createUsers, servicesOf } from "../support/users.ts";
import { ADMIN, authenticateToken, CALLER, useDeployments } from "./instances.ts";

// Tests of requests that need a confirmation, over HTTP on two hosts: a step-up (the sender confirms with a second factor, for
// ten minutes) or an approval (another administrator agrees to this request). Tests of passkeys and of the page need a browser:
// test/page/confirmations.test.ts.

let service: Service;
let services: Services;
beforeAll(async () => {
  service = await Service.start({
    hosts: 2,
    env: { LICENSE_KEY: await licence(), PUBLIC_BASE_URL: "https://service.example", TRUSTED_PROXY_HOPS: "2" },
  });
  services = await servicesOf(service);
});
afterAll(() => service.stop());

const SYSTEM = { actor: "system", requestId: "test" };
const PASSWORD = "seven green bicycles uphill";
const APP = "97471835-12cd-444d-ae9b-dc205f8336bf";

/** Sets the two settings as the command does, without a confirmation. */
const setRequired = async (requireStepUp: boolean, requireApproval = false) =>
  void (await services.settings.update("features", { requireStepUp, requireApproval }, SYSTEM));
afterEach(() => setRequired(false));

interface Person {
  username: string;
  token: string;
  secret: string;
  address: string;
}
let sequence = 0;
/** Returns an address that no call has used yet, because sign-ins are limited per address. */
const newAddress = () => `198.51.100.${++sequence}`;

const call = (
  { token, address }: Pick<Person, "token"> & Partial<Person>,
  method: string,
  path: string,
  body?: object,
  host = 0,
): Promise<Answer> =>
  service.call(method, `${service.hosts[host]!.url}${path}`, {
    token,
    body,
    headers: address === undefined ? {} : { "X-Forwarded-For": address },
  });

const signIn = async (username: string, address: string, factor: object = {}): Promise<Answer> =>
  await service.call("POST", "/auth/login", {
    body: { username, password: PASSWORD, ...factor },
    headers: { "X-Forwarded-For": address },
  });

/** Creates a user who is signed in, by default with an authenticator app, whose current code was not used yet. */
async function createPerson(role: "admin" | "user" = "admin", enrolled = true): Promise<Person> {
  const username = `person${randomBytes(4).toString("hex")}`;
  await createUsers(service, [{ username, password: PASSWORD, role }], services);
  const address = newAddress();
  const token = (await signIn(username, address)).body.access_token;
  const person = { username, token, address, secret: "" };
  if (!enrolled) return person;
  const proof = { currentPassword: PASSWORD };
  const { secret } = (await call(person, "POST", "/auth/me/second-factor/totp", proof)).body;
  const confirm = (body: object) => call(person, "POST", "/auth/me/second-factor/totp/confirm", body);
  expect((await confirmWithPreviousCode({ secret }, confirm)).status).toBe(200);
  return { ...person, secret };
}

const stepUp = (person: Person, host = 0) => call(person, "POST", "/auth/step-up", { totp: codeOf(person) }, host);
const newToken = (person: Pick<Person, "token">, name = `t${++sequence}`, host = 0) =>
  call(person, "POST", "/auth/tokens", { name }, host);
/** Returns the code of the problem, or the status of a success. */
const resultOf = ({ status, body }: Answer): string | number => body?.code ?? status;

const COPIES = {
  copies: [
    {
      projectId: "aaaaaaaa-1111-4111-8111-111111111111",
      groupId: 1,
      variable: "DB",
      vaultName: "kv-one",
      secretName: "db",
    },
  ],
};
const AWS_SECRET = "a-secret-access-key-that-nobody-else-may-read";
/** Requests by which a secret can leave, and requests with which an administrator could get a second account to approve with. */
const GUARDED: [string, string, object?][] = [
  [
    "POST",
    "/api/automation/sync/records",
    {
      sourceVault: "kv-payments-prod",
      sourceSecret: "stripe-api-key",
      targetProvider: "aws",
      targetService: "secretsmanager",
      targetName: "payments/stripe-api-key",
      targetRegion: "eu-west-1",
      enabled: false,
    },
  ],
  ["PUT", "/api/automation/sync/records/01JABCDEF", { enabled: true }],
  ["PUT", "/api/automation/sync/records/01JABCDEF", { confirmVaults: true }],
  ["PUT", "/api/automation/sync/records/01JABCDEF", { adopt: true }],
  [
    "POST",
    "/api/automation/sync/providers/aws",
    { accessKeyId: "AKIAIOSFODNN7EXAMPLE", region: "eu-west-1", secretAccessKey: AWS_SECRET },
  ],
  ["PUT", `/api/automation/rotation/apps/${APP}/policy`, { automatic: false }],
  [
    "POST",
    `/api/automation/rotation/apps/${APP}/matches/confirm`,
    { assetId: "kv-payments-prod.secret.payments-api-client-secret" },
  ],
  [
    "POST",
    "/api/automation/rotation/rotate",
    { appId: APP, secretId: APP, targets: ["kv-payments-prod.secret.payments-api-client-secret"] },
  ],
  [
    "POST",
    "/api/assets/dependencies/rotate/kv-payments-prod.secret.sql-password",
    { targets: ["kv-payments-prod.secret.other"], newValue: "a new value" },
  ],
  ["PUT", "/api/settings/integrations/devops", { orgUrl: "https://dev.azure.com/acme" }],
  ["PUT", "/api/settings/integrations/devops/copies", COPIES],
  ["POST", "/auth/tokens", { name: "guarded" }],
  ["POST", "/auth/users", { username: "second", password: PASSWORD, role: "admin" }],
  ["PUT", "/auth/users/no.such.user", { role: "admin" }],
  ["PUT", "/auth/users/admin", { state: "disabled" }],
  ["PUT", "/auth/users/admin", { email: "admin@example.com" }],
  ["PUT", "/auth/users/admin", { sso: { issuer: "https://login.example", subject: "1" } }],
  ["DELETE", "/auth/users/admin"],
  ["DELETE", "/auth/users/admin/second-factor"],
  ["DELETE", "/auth/sso/refused/0000"],
  ["PUT", "/auth/sso/config", { loginButtonText: "Sign in" }],
];

/** Requests of the same endpoints that let no secret leave. */
const NOT_GUARDED: [string, string, object?][] = [
  ["PUT", "/api/automation/sync/records/01JABCDEF", { enabled: false }],
  [
    "POST",
    `/api/automation/rotation/apps/${APP}/matches/confirm`,
    { assetId: "kv-payments-prod.secret.payments-api-client-secret", confirmed: false },
  ],
  [
    "POST",
    "/api/automation/rotation/rotate",
    { appId: APP, secretId: APP, targets: ["kv-payments-prod.secret.payments-api-client-secret"], dryRun: true },
  ],
  ["PUT", "/api/settings/integrations/devops", { orgUrl: null }],
  ["PUT", "/auth/users/no.such.user", { role: "user", email: "admin@example.com" }],
  ["PUT", "/api/settings/features?preview=true", { requireStepUp: false }],
  ["DELETE", "/api/settings/all?preview=true"],
];

const CONFIRMATION_CODES = ["stepUpRequired", "approvalRequired"];

test("requireApproval can't be turned on by the only administrator", async () => {
  const answer = await service.admin("PUT", "/api/settings/features", { requireApproval: true });
  expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
  expect(answer.body.detail).toContain("two active administrators");
});

test("requireStepUp can't be turned on by a user who has no second factor", async () => {
  const answer = await service.admin("PUT", "/api/settings/features", { requireStepUp: true });
  expect([answer.status, answer.body.code]).toEqual([403, "stepUpRequired"]);
});

describe("while both settings are off", () => {
  test.each(NOT_GUARDED)("%s %s needs no confirmation", async (method, path, body) => {
    expect(CONFIRMATION_CODES).not.toContain(resultOf(await service.admin(method, path, body)));
  });

  // The other requests would change the administrator `admin`, whom the other tests use.
  const sendable = GUARDED.filter(([, path]) => !path.startsWith("/auth/users/admin"));
  let person: Person;
  beforeAll(async () => {
    person = await createPerson("admin", false);
  });
  test.each(sendable)("%s %s, which can be guarded, needs no confirmation", async (method, path, body) => {
    const answer = await call(person, method, path, body);
    expect(CONFIRMATION_CODES).not.toContain(resultOf(answer));
    expect(answer.status).toBeLessThan(500);
    expect((await service.admin("GET", "/approvals")).body.items).toEqual([]);
  });

  test("an administrator can create an API token, which has the role user by default", async () => {
    const { token } = (await newToken(await createPerson("admin", false))).body;
    expect(token).toBeDefined();
    const user = { username: `p${randomBytes(4).toString("hex")}`, password: PASSWORD, role: "user" };
    expect((await call({ token }, "POST", "/auth/users", user)).status).toBe(403);
  });
});

describe("with requireStepUp", () => {
  let unconfirmed: Person;
  beforeAll(async () => {
    unconfirmed = await createPerson();
  });
  test.each(GUARDED)("%s %s needs a step-up", async (method, path, body) => {
    await setRequired(true);
    const answer = await call(unconfirmed, method, path, body);
    expect([answer.status, answer.body.code]).toEqual([403, "stepUpRequired"]);
    expect(answer.body.methods).toEqual(["totp", "recoveryCode"]);
  });

  test.each(NOT_GUARDED)("%s %s needs none", async (method, path, body) => {
    await setRequired(true);
    expect(CONFIRMATION_CODES).not.toContain(resultOf(await service.admin(method, path, body)));
  });

  test("a code confirms the token on every instance, and no other token of the user", async () => {
    const person = await createPerson();
    const other = {
      ...person,
      token: (await signIn(person.username, person.address, { totp: codeOf(person) })).body.access_token,
    };
    await setRequired(true);
    // The code of the next time step: the sign-in above used the current one.
    const confirmed = await call(person, "POST", "/auth/step-up", { totp: codeOf(person, 1) });
    expect(confirmed.status).toBe(200);
    // Ten minutes, with a tolerance for slow machines.
    const remainingMs = Date.parse(confirmed.body.confirmedUntil) - Date.now();
    expect(remainingMs).toBeGreaterThan(8 * MINUTE_MS);
    expect(remainingMs).toBeLessThan(11 * MINUTE_MS);
    expect((await newToken(person, undefined, 1)).status).toBe(201);
    expect(resultOf(await newToken(other))).toBe("stepUpRequired");
  });

  test("a code works once, and not again after a sign-in", async () => {
    const person = await createPerson();
    const totp = codeOf(person);
    expect((await call(person, "POST", "/auth/step-up", { totp })).status).toBe(200);
    for (const host of [0, 1]) {
      const repeated = await call(person, "POST", "/auth/step-up", { totp }, host);
      expect([repeated.status, repeated.body.code]).toEqual([401, "secondFactorFailed"]);
    }
    expect((await signIn(person.username, person.address, { totp })).body.code).toBe("secondFactorFailed");
  });

  test("five wrong codes block further ones", async () => {
    const person = await createPerson();
    const wrong = () => call(person, "POST", "/auth/step-up", { totp: "000000" });
    for (let attempt = 0; attempt < 5; attempt++) expect(resultOf(await wrong())).toBe("secondFactorFailed");
    expect(resultOf(await stepUp(person))).toBe("tooManyAttempts");
  });

  test("an empty request returns the methods", async () => {
    const answer = await call(await createPerson(), "POST", "/auth/step-up", {});
    expect([answer.status, answer.body.code, answer.body.methods]).toEqual([
      401,
      "secondFactorRequired",
      ["totp", "recoveryCode"],
    ]);
  });

  test("the confirmation ends after ten minutes", async () => {
    const person = await createPerson();
    await setRequired(true);
    expect((await stepUp(person)).status).toBe(200);
    const setConfirmationAge = (minutes: number) =>
      services.tables.modify(User, USERS_PARTITION, person.username, (user) => ({
        ...user!,
        confirmations: user!.confirmations!.map(({ id }) => ({
          id,
          at: new Date(Date.now() - minutes * MINUTE_MS).toISOString(),
        })),
      }));
    await setConfirmationAge(9);
    expect((await newToken(person)).status).toBe(201);
    await setConfirmationAge(11);
    expect(resultOf(await newToken(person))).toBe("stepUpRequired");
    // A time in the future, of a writer with a wrong clock, does not confirm for longer.
    await setConfirmationAge(-20);
    expect(resultOf(await newToken(person))).toBe("stepUpRequired");
  });

  test("a user without a second factor gets the instruction to add one", async () => {
    const person = await createPerson("admin", false);
    await setRequired(true);
    const guarded = await newToken(person);
    expect([guarded.status, guarded.body.code, guarded.body.methods]).toEqual([403, "stepUpRequired", []]);
    expect(guarded.body.detail).toContain("POST /auth/me/second-factor/totp");
    const confirmation = await call(person, "POST", "/auth/step-up", { totp: "123456" });
    expect([confirmation.status, confirmation.body.code]).toEqual([403, "stepUpRequired"]);
  });

  test("an API token can't confirm", async () => {
    const { token } = (await call(await createPerson(), "POST", "/auth/tokens", { name: "program", role: "admin" }))
      .body;
    await setRequired(true);
    const answer = await call({ token }, "PUT", "/api/settings/integrations/devops/copies", COPIES);
    expect([answer.status, answer.body.code]).toEqual([403, "stepUpRequired"]);
    expect(answer.body.detail).toContain("A person must send this request");
    expect(resultOf(await call({ token }, "POST", "/auth/step-up", { totp: "123456" }))).toBe("interactiveOnly");
  });

  test("users who are no administrators can create API tokens", async () => {
    const person = await createPerson("user", false);
    await setRequired(true, true);
    expect((await newToken(person)).status).toBe(201);
  });

  test("the setting can be turned off only with a step-up", async () => {
    const person = await createPerson();
    expect((await stepUp(person)).status).toBe(200);
    expect((await call(person, "PUT", "/api/settings/features", { requireStepUp: true })).status).toBe(200);
    const other = await createPerson();
    for (const [method, path, body] of [
      ["PUT", "/api/settings/features", { requireStepUp: false }],
      ["PUT", "/api/settings/features?preview=false", { require_step_up: false }],
      ["DELETE", "/api/settings/features/requireStepUp"],
      ["DELETE", "/api/settings/all"],
    ] as const) {
      expect([path, resultOf(await call(other, method, path, body))]).toEqual([path, "stepUpRequired"]);
    }
    expect((await call(other, "PUT", "/api/settings/features", { requirePasswordChange: false })).status).toBe(200);
    expect((await call(person, "DELETE", "/api/settings/features/requireStepUp")).status).toBe(200);
    expect((await newToken(other)).status).toBe(201);
  });

  test("guarded requests fail, and only these, if the settings can't be read", async () => {
    const person = await createPerson();
    await setRequired(true);
    // The row of the changed settings, with text that is no JSON and without a signature.
    const [partition, key] = ["settings", "overrides"];
    const options = { allowInsecureConnection: true };
    const table = TableClient.fromConnectionString(service.environment.AzureWebJobsStorage!, "Settings", options);
    const row = await table.getEntity(partition, key);
    await table.updateEntity({ partitionKey: partition, rowKey: key, overrides_json: "{" }, "Replace");
    try {
      expect([(await newToken(person)).status, (await call(person, "GET", "/auth/me")).status]).toEqual([503, 200]);
    } finally {
      await table.updateEntity({ ...row, partitionKey: partition, rowKey: key }, "Replace");
    }
    expect(resultOf(await newToken(person))).toBe("stepUpRequired");
  });
});

describe("with requireApproval", () => {
  /** Creates two administrators and turns the setting on. The first one requests an API token, which waits for an approval. */
  async function requestApproval(name = `t${++sequence}`) {
    const [requester, approver] = [await createPerson("admin", false), await createPerson("admin", false)];
    await setRequired(false, true);
    const answer = await newToken(requester, name);
    expect([answer.status, answer.body.code]).toEqual([403, "approvalRequired"]);
    return { requester, approver, name, id: answer.body.approvalId as string };
  }
  const approve = (person: Person, id: string, host = 0) =>
    call(person, "POST", `/approvals/${id}/approve`, undefined, host);
  const stateOf = async (id: string) => (await service.admin("GET", `/approvals/${id}`)).body.state;
  const change = (id: string, part: Partial<ApprovalRecord>) =>
    services.tables.modify(Approvals, APPROVALS, id, (row) => ({
      ...row!,
      ...part,
      writeId: randomBytes(8).toString("hex"),
    }));

  test.each(GUARDED)("%s %s needs an approval, which shows no secret", async (method, path, body) => {
    const person = await createPerson("admin", false);
    await setRequired(false, true);
    const answer = await call(person, method, path, body);
    expect([answer.status, answer.body.code]).toEqual([403, "approvalRequired"]);
    const shown = await service.admin("GET", `/approvals/${answer.body.approvalId}`);
    expect(shown.body).toMatchObject({ state: "pending", method, requestedBy: person.username, decidedBy: null });
    expect(shown.body.path).toBe(decodeURIComponent(path));
    for (const secret of [AWS_SECRET, PASSWORD, "a new value"]) expect(shown.text).not.toContain(secret);
    const stored = await services.tables.get(Approvals, APPROVALS, answer.body.approvalId);
    for (const secret of [AWS_SECRET, PASSWORD, "a new value"]) expect(JSON.stringify(stored)).not.toContain(secret);
  });

  test("an approved request runs once, for its requester alone", async () => {
    const { requester, approver, name, id } = await requestApproval();
    // The same request waits with the same ID.
    expect((await newToken(requester, name, 1)).body.approvalId).toBe(id);
    expect((await approve(approver, id)).body).toMatchObject({ state: "approved", decidedBy: approver.username });
    // A lost answer makes the approver's client send the request again.
    expect((await approve(approver, id, 1)).status).toBe(200);
    expect(resultOf(await newToken(approver, name))).toBe("approvalRequired");
    expect((await newToken(requester, name, 1)).status).toBe(201);
    expect(await stateOf(id)).toBe("used");
    const again = await newToken(requester, name);
    expect([resultOf(again), again.body.approvalId === id]).toEqual(["approvalRequired", false]);
    expect(resultOf(await approve(approver, id))).toBe("conflict");
    const { items } = (await service.admin("GET", "/audit/entries?limit=100")).body;
    const types = items.filter((entry: { target?: { id: string } }) => entry.target?.id === id);
    expect([...new Set(types.map(({ eventType }: { eventType: string }) => eventType))].sort()).toEqual([
      "approval.approved",
      "approval.requested",
      "approval.used",
    ]);
  });

  test("an approval does not fit a request with another body", async () => {
    const { requester, approver, name, id } = await requestApproval();
    await approve(approver, id);
    const other = await call(requester, "POST", "/auth/tokens", { name, role: "admin" });
    expect([resultOf(other), other.body.approvalId === id]).toEqual(["approvalRequired", false]);
    // Only the spelling of the members differs, so that the request does the same.
    expect((await call(requester, "POST", "/auth/tokens", { expires_in_days: 90, role: "user", name })).status).toBe(
      201,
    );
  });

  test("a requester can't approve the own request, but can withdraw it", async () => {
    const { requester, approver, name, id } = await requestApproval();
    const own = await approve(requester, id);
    expect([own.status, own.body.code]).toEqual([409, "conflict"]);
    expect((await call(requester, "POST", `/approvals/${id}/reject`)).body.state).toBe("rejected");
    expect(resultOf(await approve(approver, id))).toBe("conflict");
    expect((await newToken(requester, name)).body.approvalId).not.toBe(id);
  });

  test("a withdrawn approval can't be used", async () => {
    const { requester, approver, name, id } = await requestApproval();
    await approve(approver, id);
    expect((await call(approver, "POST", `/approvals/${id}/reject`)).body.state).toBe("rejected");
    expect(resultOf(await newToken(requester, name))).toBe("approvalRequired");
  });

  test("neither an API token nor a user who is no administrator can approve", async () => {
    const { approver, id } = await requestApproval();
    await setRequired(false);
    const program = (await call(approver, "POST", "/auth/tokens", { name: "program", role: "admin" })).body;
    const user = await createPerson("user", false);
    await setRequired(false, true);
    expect(resultOf(await approve(program, id))).toBe("interactiveOnly");
    expect(resultOf(await approve(user, id))).toBe("forbidden");
    expect(resultOf(await call(user, "GET", "/approvals"))).toBe("forbidden");
  });

  test("an approval expires after 24 hours, before and after the decision", async () => {
    const past = new Date(Date.now() - MINUTE_MS).toISOString();
    const { requester, approver, name, id } = await requestApproval();
    await change(id, { expiresAt: past });
    expect(await stateOf(id)).toBe("expired");
    expect(resultOf(await approve(approver, id))).toBe("conflict");
    const { approvalId } = (await newToken(requester, name)).body;
    expect(approvalId).not.toBe(id);
    await approve(approver, approvalId);
    await change(approvalId, { expiresAt: past });
    expect(resultOf(await newToken(requester, name))).toBe("approvalRequired");
    await services.approvals.cleanUp(SYSTEM);
    expect((await services.tables.get(Approvals, APPROVALS, id))?.state).toBe("expired");
  });

  test.each([
    ["demoted", (id: string) => services.access.users.update(id, { role: "user" }, undefined, SYSTEM)],
    ["disabled", (id: string) => services.access.users.update(id, { state: "disabled" }, undefined, SYSTEM)],
    ["deleted", (id: string) => services.access.users.remove(id, undefined, SYSTEM)],
  ])("an approval does not count after its approver was %s", async (_what, act) => {
    const { requester, approver, name, id } = await requestApproval();
    await approve(approver, id);
    await act(approver.username);
    const answer = await newToken(requester, name);
    expect([resultOf(answer), answer.body.approvalId === id]).toEqual(["approvalRequired", false]);
    expect(await stateOf(id)).toBe("expired");
  });

  test("an approval does not count for a new user with the approver's name", async () => {
    const { requester, approver, name, id } = await requestApproval();
    await approve(approver, id);
    await services.access.users.remove(approver.username, undefined, SYSTEM);
    await createUsers(service, [{ username: approver.username, password: PASSWORD, role: "admin" }], services);
    expect(resultOf(await newToken(requester, name))).toBe("approvalRequired");
  });

  test.each([
    [
      "its password was set",
      (username: string) =>
        services.access.users.update(username, { password: `${PASSWORD} again` }, undefined, SYSTEM),
    ],
    [
      "it was deleted and created again",
      async (username: string) => {
        await services.access.users.remove(username, undefined, SYSTEM);
        await createUsers(service, [{ username, password: PASSWORD, role: "user" }], services);
      },
    ],
  ])("an approval to make a user an administrator does not count after %s", async (_what, act) => {
    const { requester, approver } = await requestApproval();
    const { username } = await createPerson("user", false);
    const promote = () => call(requester, "PUT", `/auth/users/${username}`, { role: "admin" });
    const { approvalId } = (await promote()).body;
    // A sign-in changes the user's row, but the approval still fits.
    expect((await signIn(username, newAddress())).status).toBe(200);
    expect((await promote()).body.approvalId).toBe(approvalId);
    expect((await approve(approver, approvalId)).status).toBe(200);
    await act(username);
    expect(resultOf(await promote())).toBe("approvalRequired");
    const { approvalId: next } = (await promote()).body;
    await approve(approver, next);
    expect((await promote()).body.role).toBe("admin");
  });

  test("parallel requests on two instances use an approval once", async () => {
    const { requester, approver, name, id } = await requestApproval();
    await approve(approver, id);
    const answers = await Promise.all([0, 1, 0, 1].map((host) => newToken(requester, name, host)));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 403, 403, 403]);
  });

  test("an approval is used up by a request that then fails", async () => {
    const { requester, approver, name, id } = await requestApproval();
    await setRequired(false);
    expect((await newToken(requester, name)).status).toBe(201);
    await setRequired(false, true);
    await approve(approver, id);
    expect(resultOf(await newToken(requester, name))).toBe("alreadyExists");
    expect(resultOf(await newToken(requester, name))).toBe("approvalRequired");
  });

  test("an API token can request, and use, an approval", async () => {
    const { requester, approver } = await requestApproval();
    await setRequired(false);
    const program = (await call(requester, "POST", "/auth/tokens", { name: "program", role: "admin" })).body;
    await setRequired(false, true);
    const send = () => call(program, "PUT", "/api/settings/integrations/devops/copies", COPIES);
    const { approvalId } = (await send()).body;
    expect((await approve(approver, approvalId)).status).toBe(200);
    expect(CONFIRMATION_CODES).not.toContain(resultOf(await send()));
  });

  test("the setting can be turned off only with an approval", async () => {
    const { requester, approver } = await requestApproval();
    const off = () => call(requester, "PUT", "/api/settings/features", { requireApproval: false });
    const { code, approvalId } = (await off()).body;
    expect(code).toBe("approvalRequired");
    expect((await approve(approver, approvalId)).status).toBe(200);
    expect((await off()).status).toBe(200);
    expect((await newToken(requester)).status).toBe(201);
  });

  test("a row that another program wrote approves nothing", async () => {
    const { requester, name, id } = await requestApproval();
    const options = { allowInsecureConnection: true };
    const table = TableClient.fromConnectionString(service.environment.AzureWebJobsStorage!, "Approvals", options);
    const uid = (await services.tables.get(User, USERS_PARTITION, "admin"))!.uid!;
    const forged = { state: "approved", decidedBy: "admin", deciderId: uid, decidedAt: new Date().toISOString() };
    await table.updateEntity({ partitionKey: APPROVALS, rowKey: id, ...forged }, "Merge");
    expect(resultOf(await newToken(requester, name))).toBe("approvalRequired");
  });

  test("lists the requests, newest first, by state", async () => {
    const { requester, approver, id } = await requestApproval();
    await newToken(requester);
    const { items } = (await call(approver, "GET", "/approvals?limit=2")).body;
    expect(items.map(({ requestedBy }: { requestedBy: string }) => requestedBy)).toEqual([
      requester.username,
      requester.username,
    ]);
    expect(items[1].id).toBe(id);
    await call(approver, "POST", `/approvals/${id}/reject`);
    const pending = (await call(approver, "GET", "/approvals?state=pending&limit=1000")).body.items;
    expect(pending.map((item: { id: string }) => item.id)).not.toContain(id);
  });

  test("a requester can have 20 open requests", async () => {
    const { requester } = await requestApproval();
    for (let count = 1; count < 20; count++) expect(resultOf(await newToken(requester))).toBe("approvalRequired");
    expect(resultOf(await newToken(requester))).toBe("conflict");
  });

  test("a request of the largest size is shown by the beginnings of its lists", async () => {
    const { requester } = await requestApproval();
    const resources = Array.from({ length: 1000 }, (_, index) => `/subscriptions/${index}/`.padEnd(1000, "x"));
    const body = { ...GUARDED.find(([, path]) => path.endsWith("/rotate"))![2], includeResources: resources };
    const { approvalId } = (await call(requester, "POST", "/api/automation/rotation/rotate", body)).body;
    const { details } = (await service.admin("GET", `/approvals/${approvalId}`)).body;
    expect(details.body.includeResources.slice(0, 100)).toEqual(resources.slice(0, 100));
    expect(details.body.includeResources.slice(100)).toEqual([expect.stringMatching(/^… \(1000 items, SHA-256 /)]);
    expect(details.body.targets).toHaveLength(1);
  });

  test("a requester can't fill the list with withdrawn requests", async () => {
    const { requester, approver, name, id } = await requestApproval();
    const { partitionKey: _p, rowKey: _r, etag: _e, ...row } = (await services.tables.get(Approvals, APPROVALS, id))!;
    // With the open request, these are the 100 unused requests that a requester can send in 24 hours.
    for (let count = 1; count < 100; count++) {
      const rejected = { ...row, state: "rejected" as const, digest: `other${count}`, writeId: `w${count}` };
      await services.tables.insert(
        Approvals,
        APPROVALS,
        `${id.slice(0, -3)}${String(count).padStart(3, "0")}`,
        rejected,
      );
    }
    const refused = await newToken(requester);
    expect([resultOf(refused), refused.body.detail]).toEqual(["conflict", expect.stringContaining("100 requests")]);
    // The open request, and other requesters, are not affected.
    expect((await newToken(requester, name)).body.approvalId).toBe(id);
    expect(resultOf(await newToken(approver))).toBe("approvalRequired");
  });
});

test("with both settings, a request and its approval need a step-up", async () => {
  const [requester, approver] = [await createPerson(), await createPerson()];
  await setRequired(true, true);
  const send = () => newToken(requester, "both");
  expect(resultOf(await send())).toBe("stepUpRequired");
  await stepUp(requester);
  const { approvalId } = (await send()).body;
  const approve = () => call(approver, "POST", `/approvals/${approvalId}/approve`);
  expect(resultOf(await approve())).toBe("stepUpRequired");
  await stepUp(approver);
  expect((await approve()).status).toBe(200);
  expect((await send()).status).toBe(201);
});

test("a browser session that was signed in with the password alone is not confirmed", async () => {
  const person = await createPerson("admin", false);
  await setRequired(true);
  const origin = { Origin: "https://service.example", "X-Forwarded-For": person.address };
  const body = { username: person.username, password: PASSWORD, session: true };
  const signedIn = await service.call("POST", "/auth/login", { body, headers: origin });
  const cookie = signedIn.headers.getSetCookie()[0]!.split(";")[0]!;
  const headers = { ...origin, Cookie: cookie };
  const answer = await service.call("POST", "/auth/tokens", { body: { name: "stolen" }, headers });
  expect(resultOf(answer)).toBe("stepUpRequired");
});

test("a browser session that was signed in with a second factor is confirmed for ten minutes", async () => {
  const person = await createPerson();
  await setRequired(true);
  const origin = { Origin: "https://service.example", "X-Forwarded-For": person.address };
  const body = { username: person.username, password: PASSWORD, session: true, totp: codeOf(person) };
  const signedIn = await service.call("POST", "/auth/login", { body, headers: origin });
  const cookie = signedIn.headers.getSetCookie()[0]!.split(";")[0]!;
  const headers = { ...origin, Cookie: cookie };
  const create = () => service.call("POST", "/auth/tokens", { body: { name: `t${++sequence}` }, headers });
  expect((await create()).status).toBe(201);
  // The token of the earlier sign-in is not confirmed.
  expect(resultOf(await newToken(person))).toBe("stepUpRequired");
});

describe("a step-up", () => {
  const nextDeployment = useDeployments(1);

  test("fails, and counts as no failed sign-in, while the key vault can't be read", async () => {
    const deployment = nextDeployment();
    const [name, key] = ["a".repeat(32), new Uint8Array(randomBytes(32))];
    let isDown = false;
    const named = async () => {
      if (isDown) throw new CloudFailure("unreachable", "The key vault does not respond.", { remedy: "Wait." });
      return key;
    };
    const instance = deployment.start({ secondFactorKeys: { current: async () => ({ name, key }), named } });
    const { access } = instance;
    const { access_token: token } = await access.signIn(ADMIN, CALLER);
    const authenticated = await authenticateToken(instance, token);
    if (authenticated.kind !== "valid") throw new Error("The sign-in is valid.");
    const { actor } = authenticated;
    const { secret } = await access.secondFactor.startTotp(actor, { currentPassword: ADMIN.password }, CALLER);
    const codeAt = (steps: number) => {
      const timestamp = deployment.clock.now().getTime() + steps * 30_000;
      return new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp });
    };
    await access.secondFactor.confirmTotp(actor, codeAt(-1), CALLER);
    isDown = true;
    // More attempts than the five wrong codes that block further ones.
    for (let attempt = 0; attempt < 7; attempt++) {
      await expect(access.stepUp.confirm(actor, { totp: codeAt(0) }, CALLER)).rejects.toBeInstanceOf(CloudFailure);
    }
    isDown = false;
    await access.stepUp.confirm(actor, { totp: codeAt(0) }, CALLER);
    const after = await authenticateToken(instance, token);
    expect(after.kind === "valid" && access.stepUp.isFresh(after.actor)).toBe(true);
    deployment.clock.pass(10 * MINUTE_MS);
    expect(after.kind === "valid" && access.stepUp.isFresh(after.actor)).toBe(false);
  });
});
