import { createHash } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import {
  ADMIN,
  ADMINISTRATOR,
  browse,
  complete,
  type Deployment,
  HERE,
  type Instance,
  problemOf,
  signIn,
  startDeployments,
  whoIs,
} from "./support.ts";

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
let instance: Instance;
let other: Instance;
beforeAll(async () => {
  deployments = await startDeployments(60);
});
afterAll(() => deployments.stop());
beforeEach(() => {
  deployment = deployments.next();
  [instance, other] = [deployment.start(), deployment.start()];
});

const MAPPED = {
  autoCreateUsers: true,
  rolesClaim: "roles",
  roleMapping: {
    "Lifecycle.Admin": "admin",
    "Lifecycle.Auditor": "auditor",
    "Lifecycle.Operator": "operator",
    "Lifecycle.User": "user",
  },
} as const;

const pairOf = (id: string) => ({
  issuer: deployments.cloud.oidc.issuer,
  subject: deployments.cloud.control.people().find((one) => one.id === id)!.objectId,
});
const find = (username: string) => instance.tables.get(User, USERS_PARTITION, username);
const createdUsers = () =>
  deployment.events.filter(({ type, outcome }) => type === "user.created" && outcome === "success");

const link = (username: string, person: string) =>
  instance.access.users.update(username, { sso: pairOf(person) }, undefined, ADMINISTRATOR);

describe("the user whom the configuration names as bootstrap administrator", () => {
  const TAKEN = { BOOTSTRAP_ADMIN_USERNAME: "uma", BOOTSTRAP_ADMIN_PASSWORD: "another horse battery" };
  const administrator = { username: "uma", password: TAKEN.BOOTSTRAP_ADMIN_PASSWORD };

  test.each(["is by single sign-on", "an administrator has linked"])(
    "is no longer linked to the person after the user %s",
    async (how) => {
      await deployment.configure(instance, { autoCreateUsers: true });
      if (how === "an administrator has linked") {
        await instance.access.users.create({ username: "uma", password: "uma's own password", role: "user" }, HERE);
        await link("uma", "uma");
      }
      const before = await signIn(instance, "uma");
      const later = deployment.start({ config: TAKEN });
      await later.access.signIn(administrator, HERE);
      expect(await whoIs(later, before)).toBeUndefined();
      const who = await whoIs(later, await signIn(later, "uma"));
      expect(who).toMatchObject({ username: expect.stringMatching(/^sso-/), role: "user" });
      expect(await find("uma")).toMatchObject({ source: "local", role: "admin", state: "active" });
      expect(await find("uma")).not.toHaveProperty("sso");
    },
  );
});

describe("an unknown person", () => {
  test("is rejected with a clear error unless users are created, and the identity is in the audit log", async () => {
    await deployment.configure(instance);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    expect(deployment.refusals()).toEqual(["stranger"]);
    expect(deployment.events.at(-1)).toMatchObject({
      type: "user.signInRefused",
      outcome: "refused",
      details: { reason: "stranger", ...pairOf("uma") },
    });
    expect(await find("uma")).toBeUndefined();
  });

  test("becomes one user, also on two instances at once", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    const arrivals = [await browse(instance, "uma"), await browse(other, "uma")];
    const results = await Promise.all([complete(instance, arrivals[0]!), complete(other, arrivals[1]!)]);
    for (const { cookies } of results) {
      expect(await whoIs(instance, cookies[0]!.value)).toMatchObject({ username: "uma" });
    }
    expect(createdUsers()).toHaveLength(1);
    expect(await find("uma")).toMatchObject({
      source: "sso",
      sso: pairOf("uma"),
      role: "user",
      email: "uma@acme.example",
    });
  });

  test("has an id that is derived from the identity at the provider, whatever the name", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const { issuer, subject } = pairOf("uma");
    const id = `sso-${createHash("sha256").update(`${issuer}\0${subject}`).digest("hex")}`;
    expect(await instance.access.users.get(id)).toMatchObject({ id, username: "uma", source: "sso" });
    expect(await instance.access.users.get("uma")).toMatchObject({ id });
    await instance.access.users.update(id, { state: "disabled" }, undefined, HERE);
    expect(await find("uma")).toMatchObject({ state: "disabled" });
    const other = `${id.slice(0, -1)}${id.endsWith("0") ? "1" : "0"}`;
    await expect(instance.access.users.get(other)).rejects.toMatchObject({ code: "notFound" });
    await instance.access.users.remove(id, undefined, HERE);
    await expect(instance.access.users.get(id)).rejects.toMatchObject({ code: "notFound" });
  });

  test("never becomes an existing user, whatever the name", async () => {
    await instance.access.users.create({ username: "Uma", password: "uma's own password", role: "admin" }, HERE);
    await deployment.configure(instance, { autoCreateUsers: true });
    const who = await whoIs(instance, await signIn(instance, "uma"));
    expect(who).toMatchObject({ username: expect.stringMatching(/^uma-[0-9a-f]{12}$/), role: "user" });
    expect(await find("uma")).not.toHaveProperty("sso");
  });

  test.each([ADMIN.username, "system", "anonymous", "sso-0123456789abcdef", "|directory", "…"])(
    "with the name %j gets a username of their own",
    async (name) => {
      await deployment.configure(instance, { autoCreateUsers: true });
      const change = (email: string) => deployments.cloud.control.changePerson("zoe", { email });
      change(`${name}@acme.example`);
      try {
        const who = await whoIs(instance, await signIn(instance, "zoe"));
        if (name === "|directory") expect(who?.username).toBe("directory");
        else expect(who?.username).toMatch(/^sso-[0-9a-f]{16}$/);
        expect(who?.username).not.toBe("sso-0123456789abcdef");
      } finally {
        change("zoe@acme.example");
      }
    },
  );
});

describe("an SSO user", () => {
  test("has the email address that the provider sends now, and a new revision only when it changed", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const { revision } = (await find("uma"))!;
    await signIn(instance, "uma");
    expect(await find("uma")).toMatchObject({ email: "uma@acme.example", revision });
    deployments.cloud.control.changePerson("uma", { email: "uma.new@acme.example" });
    try {
      await signIn(instance, "uma");
    } finally {
      deployments.cloud.control.changePerson("uma", { email: "uma@acme.example" });
    }
    const changed = (await find("uma"))!;
    expect([changed.email, changed.role]).toEqual(["uma.new@acme.example", "user"]);
    expect(changed.revision).not.toBe(revision);
  });

  test("who is disabled or was deleted is rejected", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    await instance.access.users.update("uma", { state: "disabled" }, undefined, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    await instance.access.users.remove("uma", undefined, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    expect(deployment.refusals()).toEqual(["disabled", "removed"]);
    expect(await find("uma")).toBeUndefined();
    const { items } = await instance.access.identities.refusals({ limit: 10, offset: 0, cursor: undefined });
    await instance.access.identities.allow(items[0]!.id, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });

  test("does not wait behind unknown addresses at the next sign-in from the same address", async () => {
    const { recentAddresses } = instance.access;
    await deployment.configure(instance, MAPPED);
    expect(recentAddresses.has(HERE.address!)).toBe(false);
    await signIn(instance, "uma");
    expect(recentAddresses.has(HERE.address!)).toBe(true);
  });

  test("has no password to sign in with", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const attempt = instance.access.signIn({ username: "uma", password: "" }, HERE);
    expect(await problemOf(attempt)).toBe("invalidCredentials");
  });

  test("has the role of the mapping at each sign-in; a new role revokes earlier sessions", async () => {
    await instance.access.signIn(ADMIN, HERE);
    await deployment.configure(instance, MAPPED);
    const before = await signIn(instance, "uma");
    expect(await whoIs(other, before)).toMatchObject({ role: "user" });
    const change = (roles: string[]) => deployments.cloud.control.changePerson("uma", { roles });
    try {
      const byHand = instance.access.users.update("uma", { role: "admin" }, undefined, ADMINISTRATOR);
      expect(await problemOf(byHand)).toBe("conflict");
      change(["Lifecycle.Operator", "unknown"]);
      const after = await signIn(instance, "uma");
      expect(await whoIs(other, before)).toBeUndefined();
      expect(await whoIs(other, after)).toMatchObject({ role: "operator" });
      change(["Lifecycle.Auditor", "Lifecycle.Operator", "Lifecycle.Admin"]);
      expect(await whoIs(other, await signIn(instance, "uma"))).toMatchObject({ role: "admin" });
      change([]);
      expect(await whoIs(other, await signIn(instance, "uma"))).toMatchObject({ role: "user" });
      const changes = deployment.events.filter(({ type, outcome }) => type === "user.updated" && outcome === "success");
      expect(changes).toMatchObject([
        { before: { role: "user" }, after: { role: "operator" }, details: { by: "sso" } },
        { after: { role: "admin" } },
        { after: { role: "user" } },
      ]);
    } finally {
      change(["Lifecycle.User"]);
    }
  });

  test("with the roles auditor and operator together is rejected with the reason", async () => {
    await deployment.configure(instance, MAPPED);
    const refused = await signIn(instance, "berta").catch((error: Error) => error);
    expect(refused).toMatchObject({ code: "signInRefused", message: expect.stringContaining("auditor and operator") });
    expect(deployment.refusals()).toEqual(["rolesConflict"]);
  });

  test("without a mapped role is rejected if there is no default", async () => {
    await deployment.configure(instance, { ...MAPPED, defaultRole: null });
    expect(await problemOf(signIn(instance, "zoe"))).toBe("signInRefused");
    expect(deployment.refusals()).toEqual(["noRole"]);
    expect(await whoIs(instance, await signIn(instance, "uma"))).toMatchObject({ role: "user" });
  });

  test("has roles from a nested claim by its JSON pointer", async () => {
    await deployment.configure(instance, { ...MAPPED, rolesClaim: "/realm_access/roles" });
    expect(await whoIs(instance, await signIn(instance, "bruno"))).toMatchObject({ role: "auditor" });
  });

  test("without a mapping keeps the role that an administrator assigned", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    await instance.access.users.update("uma", { role: "auditor" }, undefined, ADMINISTRATOR);
    expect(await whoIs(instance, await signIn(instance, "uma"))).toMatchObject({ role: "auditor" });
  });
});

describe("a local user who is linked", () => {
  beforeEach(() =>
    instance.access.users.create({ username: "maria", password: "maria's own password", role: "operator" }, HERE),
  );

  test("signs in both ways and keeps the role", async () => {
    await link("maria", "uma");
    await deployment.configure(instance, { ...MAPPED, autoCreateUsers: false });
    const cookie = await signIn(instance, "uma");
    expect(await whoIs(other, cookie)).toMatchObject({ username: "maria", role: "operator" });
    await instance.access.signIn({ username: "maria", password: "maria's own password" }, HERE);
    expect(await find("maria")).toMatchObject({ lastSsoSignInAt: expect.any(String) });
  });

  test("is not rejected because of the mapping", async () => {
    await link("maria", "berta");
    await deployment.configure(instance, MAPPED);
    expect(await whoIs(instance, await signIn(instance, "berta"))).toMatchObject({ role: "operator" });
  });
});

describe("allowed email domains", () => {
  test("allow users with a verified address there, and no others", async () => {
    await deployment.configure(instance, { autoCreateUsers: true, allowedEmailDomains: ["acme.example"] });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
    expect(await problemOf(signIn(instance, "nils"))).toBe("signInRefused");
    expect(await problemOf(signIn(instance, "fritz"))).toBe("signInRefused");
    expect(deployment.refusals()).toEqual(["emailDomain", "emailDomain"]);
  });

  test("are not checked with an address that another response of the provider verifies", async () => {
    await deployment.configure(instance, { autoCreateUsers: true, allowedEmailDomains: ["acme.example"] });
    deployments.cloud.control.setOidcMode("addressVouchedForElsewhere");
    try {
      expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
      expect(deployment.refusals()).toEqual(["emailDomain"]);
    } finally {
      deployments.cloud.control.setOidcMode("correct");
    }
  });
});
