import { createHash } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import {
  ADMIN,
  ADMINISTRATOR,
  authenticateSession,
  browse,
  CALLER,
  complete,
  type Deployment,
  type Instance,
  problemOf,
  signIn,
  startDeployments,
} from "./support.ts";

// Tests of which user a person who signs in with SSO becomes, and which role the user has. The people of the simulated provider
// (infra/simulated-cloud/idp/people.ts) each have one app role, such as `Lifecycle.User`. Exceptions: zoe has none, and berta
// is auditor and operator. The address of nils is not verified, and that of fritz has another domain than acme.example.

let deployments: Awaited<ReturnType<typeof startDeployments>>;
let deployment: Deployment;
let instance: Instance;
let otherInstance: Instance;
beforeAll(async () => {
  deployments = await startDeployments();
});
afterAll(() => deployments.stop());
beforeEach(async () => {
  deployment = await deployments.next();
  [instance, otherInstance] = [deployment.start(), deployment.start()];
});

const ROLE_MAPPING = {
  autoCreateUsers: true,
  rolesClaim: "roles",
  roleMapping: {
    "Lifecycle.Admin": "admin",
    "Lifecycle.Auditor": "auditor",
    "Lifecycle.Operator": "operator",
    "Lifecycle.User": "user",
  },
} as const;

/** Returns the SSO identity (issuer and subject) of a person. */
const identityOf = (id: string) => ({
  issuer: deployments.cloud.oidc.issuer,
  subject: deployments.cloud.control.people().find((person) => person.id === id)!.objectId,
});
const readUser = (username: string) => instance.tables.get(User, USERS_PARTITION, username);
const createdUsers = () =>
  deployment.events.filter(({ type, outcome }) => type === "user.created" && outcome === "success");

const linkIdentity = (username: string, person: string) =>
  instance.access.users.update(username, { sso: identityOf(person) }, undefined, ADMINISTRATOR);

describe("the user whom the configuration names as bootstrap administrator", () => {
  /** A configuration that takes over the username of an existing user. */
  const BOOTSTRAP_CONFIG = { BOOTSTRAP_ADMIN_USERNAME: "uma", BOOTSTRAP_ADMIN_PASSWORD: "another horse battery" };
  const administrator = { username: "uma", password: BOOTSTRAP_CONFIG.BOOTSTRAP_ADMIN_PASSWORD };

  test.each(["created by SSO", "linked by an administrator"])(
    "is no longer linked to the person if the user was %s",
    async (origin) => {
      await deployment.configure(instance, { autoCreateUsers: true });
      if (origin === "linked by an administrator") {
        await instance.access.users.create({ username: "uma", password: "uma's own password", role: "user" }, CALLER);
        await linkIdentity("uma", "uma");
      }
      const cookieBefore = await signIn(instance, "uma");
      const restarted = deployment.start({ config: BOOTSTRAP_CONFIG });
      await restarted.access.signIn(administrator, CALLER);
      expect(await authenticateSession(restarted, cookieBefore)).toBeUndefined();
      const actor = await authenticateSession(restarted, await signIn(restarted, "uma"));
      expect(actor).toMatchObject({ username: expect.stringMatching(/^sso-/), role: "user" });
      expect(await readUser("uma")).toMatchObject({ source: "local", role: "admin", state: "active" });
      expect(await readUser("uma")).not.toHaveProperty("sso");
    },
  );
});

describe("an unknown person", () => {
  test("is rejected unless the configuration creates users", async () => {
    await deployment.configure(instance);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    expect(deployment.rejectionReasons()).toEqual(["stranger"]);
    expect(deployment.events.at(-1)).toMatchObject({
      type: "user.signInRefused",
      outcome: "refused",
      details: { reason: "stranger", ...identityOf("uma") },
    });
    expect(await readUser("uma")).toBeUndefined();
  });

  test("becomes one user after two sign-ins at once", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    const arrivals = [await browse(instance, "uma"), await browse(otherInstance, "uma")];
    const results = await Promise.all([complete(instance, arrivals[0]!), complete(otherInstance, arrivals[1]!)]);
    for (const { cookies } of results) {
      expect(await authenticateSession(instance, cookies[0]!.value)).toMatchObject({ username: "uma" });
    }
    expect(createdUsers()).toHaveLength(1);
    expect(await readUser("uma")).toMatchObject({
      source: "sso",
      sso: identityOf("uma"),
      role: "user",
      email: "uma@acme.example",
    });
  });

  test("can be addressed by an ID that is derived from the identity at the provider", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const { issuer, subject } = identityOf("uma");
    const id = `sso-${createHash("sha256").update(`${issuer}\0${subject}`).digest("hex")}`;
    expect(await instance.access.users.get(id)).toMatchObject({ id, username: "uma", source: "sso" });
    expect(await instance.access.users.get("uma")).toMatchObject({ id });
    await instance.access.users.update(id, { state: "disabled" }, undefined, CALLER);
    expect(await readUser("uma")).toMatchObject({ state: "disabled" });
    const unknownId = `${id.slice(0, -1)}${id.endsWith("0") ? "1" : "0"}`;
    await expect(instance.access.users.get(unknownId)).rejects.toMatchObject({ code: "notFound" });
    await instance.access.users.remove(id, undefined, CALLER);
    await expect(instance.access.users.get(id)).rejects.toMatchObject({ code: "notFound" });
  });

  test("does not become an existing user of the same name", async () => {
    await instance.access.users.create({ username: "Uma", password: "uma's own password", role: "admin" }, CALLER);
    await deployment.configure(instance, { autoCreateUsers: true });
    const actor = await authenticateSession(instance, await signIn(instance, "uma"));
    expect(actor).toMatchObject({ username: expect.stringMatching(/^uma-[0-9a-f]{12}$/), role: "user" });
    expect(await readUser("uma")).not.toHaveProperty("sso");
  });

  test.each([
    ["jürgen.größe", "jurgen.grosse"],
    ["Łukasz.Øster", "Lukasz.Oster"],
    ["Ærøskøbing", "AEroskobing"],
  ])("the name %j becomes the username %j", async (name, username) => {
    await deployment.configure(instance, { autoCreateUsers: true });
    const changeEmail = (email: string) => deployments.cloud.control.changePerson("zoe", { email });
    changeEmail(`${name}@acme.example`);
    try {
      expect(await authenticateSession(instance, await signIn(instance, "zoe"))).toMatchObject({ username });
    } finally {
      changeEmail("zoe@acme.example");
    }
  });

  test.each([ADMIN.username, "system", "anonymous", "sso-0123456789abcdef", "|directory", "…"])(
    "with the reserved or invalid name %j gets a generated username",
    async (name) => {
      await deployment.configure(instance, { autoCreateUsers: true });
      const changeEmail = (email: string) => deployments.cloud.control.changePerson("zoe", { email });
      changeEmail(`${name}@acme.example`);
      try {
        const actor = await authenticateSession(instance, await signIn(instance, "zoe"));
        if (name === "|directory") expect(actor?.username).toBe("directory");
        else expect(actor?.username).toMatch(/^sso-[0-9a-f]{16}$/);
        expect(actor?.username).not.toBe("sso-0123456789abcdef");
      } finally {
        changeEmail("zoe@acme.example");
      }
    },
  );
});

describe("an SSO user", () => {
  test("gets the email address that the provider sends", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const { revision } = (await readUser("uma"))!;
    await signIn(instance, "uma");
    expect(await readUser("uma")).toMatchObject({ email: "uma@acme.example", revision });
    deployments.cloud.control.changePerson("uma", { email: "uma.new@acme.example" });
    try {
      await signIn(instance, "uma");
    } finally {
      deployments.cloud.control.changePerson("uma", { email: "uma@acme.example" });
    }
    const changed = (await readUser("uma"))!;
    expect([changed.email, changed.role]).toEqual(["uma.new@acme.example", "user"]);
    expect(changed.revision).not.toBe(revision);
  });

  test("can't sign in when disabled or deleted", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    await instance.access.users.update("uma", { state: "disabled" }, undefined, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    await instance.access.users.remove("uma", undefined, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
    expect(deployment.rejectionReasons()).toEqual(["disabled", "removed"]);
    expect(await readUser("uma")).toBeUndefined();
    const { items } = await instance.access.identities.refusals({ limit: 10, offset: 0, cursor: undefined });
    await instance.access.identities.allow(items[0]!.id, ADMINISTRATOR);
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });

  test("makes the address known, so that its next sign-in does not wait behind unknown addresses", async () => {
    const { recentAddresses } = instance.access;
    await deployment.configure(instance, ROLE_MAPPING);
    expect(recentAddresses.has(CALLER.address!)).toBe(false);
    await signIn(instance, "uma");
    expect(recentAddresses.has(CALLER.address!)).toBe(true);
  });

  test("can't sign in with a password", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    const attempt = instance.access.signIn({ username: "uma", password: "" }, CALLER);
    expect(await problemOf(attempt)).toBe("invalidCredentials");
  });

  test("gets the mapped role at each sign-in, and a new role revokes earlier sessions", async () => {
    await instance.access.signIn(ADMIN, CALLER);
    await deployment.configure(instance, ROLE_MAPPING);
    const earlierCookie = await signIn(instance, "uma");
    expect(await authenticateSession(otherInstance, earlierCookie)).toMatchObject({ role: "user" });
    const changeRoles = (roles: string[]) => deployments.cloud.control.changePerson("uma", { roles });
    try {
      const manualChange = instance.access.users.update("uma", { role: "admin" }, undefined, ADMINISTRATOR);
      expect(await problemOf(manualChange)).toBe("conflict");
      changeRoles(["Lifecycle.Operator", "unknown"]);
      const laterCookie = await signIn(instance, "uma");
      expect(await authenticateSession(otherInstance, earlierCookie)).toBeUndefined();
      expect(await authenticateSession(otherInstance, laterCookie)).toMatchObject({ role: "operator" });
      changeRoles(["Lifecycle.Auditor", "Lifecycle.Operator", "Lifecycle.Admin"]);
      expect(await authenticateSession(otherInstance, await signIn(instance, "uma"))).toMatchObject({ role: "admin" });
      changeRoles([]);
      expect(await authenticateSession(otherInstance, await signIn(instance, "uma"))).toMatchObject({ role: "user" });
      const changes = deployment.events.filter(({ type, outcome }) => type === "user.updated" && outcome === "success");
      expect(changes).toMatchObject([
        { before: { role: "user" }, after: { role: "operator" }, details: { by: "sso" } },
        { after: { role: "admin" } },
        { after: { role: "user" } },
      ]);
    } finally {
      changeRoles(["Lifecycle.User"]);
    }
  });

  test("can't sign in with the roles auditor and operator together", async () => {
    await deployment.configure(instance, ROLE_MAPPING);
    const problem = await signIn(instance, "berta").catch((error: Error) => error);
    expect(problem).toMatchObject({ code: "signInRefused", message: expect.stringContaining("auditor and operator") });
    expect(deployment.rejectionReasons()).toEqual(["rolesConflict"]);
  });

  test("can't sign in without a mapped role if there is no default role", async () => {
    await deployment.configure(instance, { ...ROLE_MAPPING, defaultRole: null });
    expect(await problemOf(signIn(instance, "zoe"))).toBe("signInRefused");
    expect(deployment.rejectionReasons()).toEqual(["noRole"]);
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toMatchObject({ role: "user" });
  });

  test("gets the role from a nested claim that a JSON pointer names", async () => {
    await deployment.configure(instance, { ...ROLE_MAPPING, rolesClaim: "/realm_access/roles" });
    expect(await authenticateSession(instance, await signIn(instance, "bruno"))).toMatchObject({ role: "auditor" });
  });

  test("keeps the role that an administrator assigned if roles are not mapped", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    await signIn(instance, "uma");
    await instance.access.users.update("uma", { role: "auditor" }, undefined, ADMINISTRATOR);
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toMatchObject({ role: "auditor" });
  });
});

describe("a local user who is linked to an SSO identity", () => {
  beforeEach(() =>
    instance.access.users.create({ username: "maria", password: "maria's own password", role: "operator" }, CALLER),
  );

  test("signs in with SSO and with the password, and keeps the role", async () => {
    await linkIdentity("maria", "uma");
    await deployment.configure(instance, { ...ROLE_MAPPING, autoCreateUsers: false });
    const cookie = await signIn(instance, "uma");
    expect(await authenticateSession(otherInstance, cookie)).toMatchObject({ username: "maria", role: "operator" });
    await instance.access.signIn({ username: "maria", password: "maria's own password" }, CALLER);
    expect(await readUser("maria")).toMatchObject({ lastSsoSignInAt: expect.any(String) });
  });

  test("is not rejected because of the role mapping", async () => {
    await linkIdentity("maria", "berta");
    await deployment.configure(instance, ROLE_MAPPING);
    expect(await authenticateSession(instance, await signIn(instance, "berta"))).toMatchObject({ role: "operator" });
  });
});

describe("allowed email domains", () => {
  test("allow only users with a verified address in one of them", async () => {
    await deployment.configure(instance, { autoCreateUsers: true, allowedEmailDomains: ["acme.example"] });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
    expect(await problemOf(signIn(instance, "nils"))).toBe("signInRefused");
    expect(await problemOf(signIn(instance, "fritz"))).toBe("signInRefused");
    expect(deployment.rejectionReasons()).toEqual(["emailDomain", "emailDomain"]);
  });

  test("reject the ID token's address if only another response of the provider has a verified one", async () => {
    await deployment.configure(instance, { autoCreateUsers: true, allowedEmailDomains: ["acme.example"] });
    deployments.cloud.control.setOidcMode("addressVouchedForElsewhere");
    try {
      expect(await problemOf(signIn(instance, "uma"))).toBe("signInRefused");
      expect(deployment.rejectionReasons()).toEqual(["emailDomain"]);
    } finally {
      deployments.cloud.control.setOidcMode("correct");
    }
  });
});
