import { beforeEach, describe, expect, test } from "vitest";
import type { Credential } from "../../shared/platform/http/admission.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { ADMIN, CALLER, type Deployment, type Instance, useDeployments } from "./instances.ts";

// Checks the table of docs/credentials.md that says which event revokes which kind of credential. Each event happens on one
// instance of the service; the credentials are then used on another instance.

const nextDeployment = useDeployments();
let deployment: Deployment;
/** The instance on which the events happen. */
let eventInstance: Instance;
/** The instance on which the credentials are used afterwards. */
let otherInstance: Instance;
/** The administrator's credentials of each kind. */
let credentials: { token: Credential; session: Credential; "API token": Credential };

const NEW_PASSWORD = "an entirely new password";
const PAGE = { limit: 100, offset: 0, cursor: undefined };
const IDENTITY = { issuer: "https://idp.example", subject: "1234" };
const KINDS = ["token", "session", "API token"] as const;

/** Creates the credentials of the bootstrap administrator, and a second administrator, so that the first can be deleted. */
beforeEach(async () => {
  deployment = nextDeployment();
  eventInstance = deployment.start();
  otherInstance = deployment.start();
  const { access } = eventInstance;
  const { access_token } = await access.signIn(ADMIN, CALLER);
  await access.users.create({ username: "second", password: "a second long password", role: "admin" }, CALLER);
  const { cookie } = await access.signInToSession(ADMIN, CALLER, undefined);
  credentials = {
    token: { kind: "bearer", token: access_token },
    session: { kind: "session", cookie: cookie.value },
    "API token": { kind: "bearer", token: "" },
  };
  const tokenRequest = { name: "nightly", role: "auditor", expiresInDays: 3 } as const;
  const { token } = await access.apiTokens.create(await actorOf("token"), tokenRequest, CALLER);
  credentials["API token"] = { kind: "bearer", token };
});

/** Authenticates a credential. @throws {Problem} if it is revoked */
async function actorOf(kind: (typeof KINDS)[number], atInstance = eventInstance): Promise<Actor> {
  const actor = await atInstance.access.authenticate(credentials[kind]);
  if (actor instanceof Problem) throw actor;
  return actor;
}

const updateAdmin = (change: Parameters<Instance["access"]["users"]["update"]>[1]) =>
  eventInstance.access.users.update("admin", change, undefined, CALLER);
const changePassword = async (apiTokens: boolean) => {
  const change = { currentPassword: ADMIN.password, newPassword: NEW_PASSWORD, apiTokens };
  await eventInstance.access.changePassword(await actorOf("token"), change, CALLER);
};
const signOut = async (kind: "token" | "session", everywhere: boolean, apiTokens = false) =>
  eventInstance.access.signOut(await actorOf(kind), { everywhere, apiTokens }, CALLER);

const secondAdmin: Actor = {
  username: "second",
  role: "admin",
  credential: { kind: "session", id: "other", since: new Date() },
};
/** Ends the session under test. @param actor - Who ends it: the second administrator, or the user. */
const endSession = async (actor: Actor) => {
  const { items } = await eventInstance.access.sessions.list(actor, "admin", PAGE);
  await eventInstance.access.sessions.end(actor, items[0]!.id, CALLER);
};
const endApiToken = async (actor: Actor) => {
  const { items } = await eventInstance.access.apiTokens.list(actor, "admin", PAGE);
  await eventInstance.access.apiTokens.end(actor, items[0]!.id, CALLER);
};

/** The events by their name in the table of the docs. */
const EVENTS: Record<string, () => Promise<unknown>> = {
  "an administrator changes the role": () => updateAdmin({ role: "auditor" }),
  "an administrator disables the user": () => updateAdmin({ state: "disabled" }),
  "an administrator disables and enables the user": async () => {
    await updateAdmin({ state: "disabled" });
    await updateAdmin({ state: "active" });
  },
  "an administrator deletes the user": () => eventInstance.access.users.remove("admin", undefined, CALLER),
  "an administrator deletes the user and creates one with the same name": async () => {
    await eventInstance.access.users.remove("admin", undefined, CALLER);
    await eventInstance.access.users.create({ ...ADMIN, role: "admin" }, CALLER);
  },
  "an administrator sets the password": () => updateAdmin({ password: NEW_PASSWORD }),
  "an administrator changes the e-mail address": () => updateAdmin({ email: "admin@example.com" }),
  "an administrator links an identity": () => updateAdmin({ sso: IDENTITY }),
  "an administrator unlinks an identity": async () => {
    await updateAdmin({ sso: IDENTITY });
    for (const kind of KINDS) await actorOf(kind, otherInstance);
    await updateAdmin({ sso: null });
  },
  "an administrator unlocks the user": () => eventInstance.access.users.unlock("admin", CALLER),
  "an administrator ends the session": () => endSession(secondAdmin),
  "an administrator revokes the API token": () => endApiToken(secondAdmin),
  "the command end-tokens": () => eventInstance.access.apiTokens.endAll("admin", CALLER),
  "BOOTSTRAP_ADMIN_PASSWORD of this user changes": async () => {
    eventInstance = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEW_PASSWORD } });
    // Even the first request to a process must find the credentials of the old password revoked.
    expect(await eventInstance.access.authenticate(credentials.session)).toBeInstanceOf(Problem);
  },
  "the user changes the password": () => changePassword(false),
  "the user changes the password, with apiTokens": () => changePassword(true),
  "the user signs out with the token": () => signOut("token", false),
  "the user signs out with the session": () => signOut("session", false),
  "the user signs out everywhere": () => signOut("session", true),
  "the user signs out everywhere, with apiTokens": () => signOut("token", true, true),
  "the user ends a session of their own": async () => endSession(await actorOf("token")),
  "the user revokes an API token of their own": async () => endApiToken(await actorOf("session")),
  "an hour passes": async () => deployment.clock.pass(HOUR_MS),
  "the API token's lifetime passes": async () => deployment.clock.pass(3 * DAY_MS),
};

const documentedEvents = tableUnder("docs/credentials.md", "## What revokes a credential");

test("the table in docs/credentials.md lists exactly the tested events", () => {
  expect(documentedEvents.map((row) => row.event)).toEqual(Object.keys(EVENTS));
});

describe("on another instance, the next request finds the credentials revoked or valid as the docs say after this event:", () => {
  test.each(documentedEvents.map((row) => [row.event!, row] as const))("%s", async (_event, row) => {
    for (const kind of KINDS) await actorOf(kind, otherInstance);
    await EVENTS[row.event!]!();
    const results = await Promise.all(KINDS.map((kind) => otherInstance.access.authenticate(credentials[kind])));
    const states = results.map((result, index) => [KINDS[index], result instanceof Problem ? "revoked" : "valid"]);
    expect(Object.fromEntries(states)).toEqual(Object.fromEntries(KINDS.map((kind) => [kind, row[kind]])));
  });
});
