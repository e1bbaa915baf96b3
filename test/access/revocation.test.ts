import { beforeEach, describe, expect, test } from "vitest";
import type { Credential } from "../../shared/platform/http/admission.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { ADMIN, type Deployment, HERE, type Instance, useDeployments } from "./instances.ts";

const nextDeployment = useDeployments();
let deployment: Deployment;
/** Credentials are revoked on this instance and then used on the other instance. */
let here: Instance;
let there: Instance;
let held: { token: Credential; session: Credential; "API token": Credential };

const NEXT = "an entirely new password";
const PAGE = { limit: 100, offset: 0, cursor: undefined };
const IDENTITY = { issuer: "https://idp.example", subject: "1234" };
const KINDS = ["token", "session", "API token"] as const;

/** Acts as the bootstrap administrator; a second administrator exists, so the first can be deleted. */
beforeEach(async () => {
  deployment = nextDeployment();
  here = deployment.start();
  there = deployment.start();
  const { access } = here;
  const { access_token } = await access.signIn(ADMIN, HERE);
  await access.users.create({ username: "second", password: "a second long password", role: "admin" }, HERE);
  const { cookie } = await access.signInToSession(ADMIN, HERE, undefined);
  held = {
    token: { kind: "bearer", token: access_token },
    session: { kind: "session", cookie: cookie.value },
    "API token": { kind: "bearer", token: "" },
  };
  const wanted = { name: "nightly", role: "auditor", expiresInDays: 3 } as const;
  const { token } = await access.apiTokens.create(await actorOf("token"), wanted, HERE);
  held["API token"] = { kind: "bearer", token };
});

async function actorOf(kind: (typeof KINDS)[number], at = here): Promise<Actor> {
  const found = await at.access.authenticate(held[kind]);
  if (found instanceof Problem) throw found;
  return found;
}

const update = (change: Parameters<Instance["access"]["users"]["update"]>[1]) =>
  here.access.users.update("admin", change, undefined, HERE);
const changePassword = async (apiTokens: boolean) => {
  const change = { currentPassword: ADMIN.password, newPassword: NEXT, apiTokens };
  await here.access.changePassword(await actorOf("token"), change, HERE);
};
const signOut = async (kind: "token" | "session", everywhere: boolean, apiTokens = false) =>
  here.access.signOut(await actorOf(kind), { everywhere, apiTokens }, HERE);

/** Acts as the second administrator, or as the user. */
const second: Actor = {
  username: "second",
  role: "admin",
  credential: { kind: "session", id: "other", since: new Date() },
};
const endSession = async (actor: Actor) => {
  const { items } = await here.access.sessions.list(actor, "admin", PAGE);
  await here.access.sessions.end(actor, items[0]!.id, HERE);
};
const endApiToken = async (actor: Actor) => {
  const { items } = await here.access.apiTokens.list(actor, "admin", PAGE);
  await here.access.apiTokens.end(actor, items[0]!.id, HERE);
};

const HAPPENINGS: Record<string, () => Promise<unknown>> = {
  "an administrator changes the role": () => update({ role: "auditor" }),
  "an administrator disables the user": () => update({ state: "disabled" }),
  "an administrator disables and enables the user": async () => {
    await update({ state: "disabled" });
    await update({ state: "active" });
  },
  "an administrator deletes the user": () => here.access.users.remove("admin", undefined, HERE),
  "an administrator deletes the user and creates one with the same name": async () => {
    await here.access.users.remove("admin", undefined, HERE);
    await here.access.users.create({ ...ADMIN, role: "admin" }, HERE);
  },
  "an administrator sets the password": () => update({ password: NEXT }),
  "an administrator changes the e-mail address": () => update({ email: "admin@example.com" }),
  "an administrator links an identity": () => update({ sso: IDENTITY }),
  "an administrator unlinks an identity": async () => {
    await update({ sso: IDENTITY });
    for (const kind of KINDS) await actorOf(kind, there);
    await update({ sso: null });
  },
  "an administrator unlocks the user": () => here.access.users.unlock("admin", HERE),
  "an administrator ends the session": () => endSession(second),
  "an administrator revokes the API token": () => endApiToken(second),
  "the command end-tokens": () => here.access.apiTokens.endAll("admin", HERE),
  "BOOTSTRAP_ADMIN_PASSWORD of this user changes": async () => {
    here = deployment.start({ config: { BOOTSTRAP_ADMIN_PASSWORD: NEXT } });
    // Even the first request to a process must find the credentials of the old password revoked.
    expect(await here.access.authenticate(held.session)).toBeInstanceOf(Problem);
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

const rows = tableUnder("docs/credentials.md", "## What revokes a credential");

test("the table has a row for each tested event, and no other row", () => {
  expect(rows.map((row) => row.event)).toEqual(Object.keys(HAPPENINGS));
});

describe("an event that revokes a credential takes effect on another instance at the next request", () => {
  test.each(rows.map((row) => [row.event!, row] as const))("%s", async (_what, row) => {
    for (const kind of KINDS) await actorOf(kind, there);
    await HAPPENINGS[row.event!]!();
    const found = await Promise.all(KINDS.map((kind) => there.access.authenticate(held[kind])));
    const now = found.map((one, at) => [KINDS[at], one instanceof Problem ? "revoked" : "valid"]);
    expect(Object.fromEntries(now)).toEqual(Object.fromEntries(KINDS.map((kind) => [kind, row[kind]])));
  });
});
