import { afterAll, beforeAll, describe } from "vitest";
import { skipWithout } from "../../support/tools.ts";
import { Browser, CLIENT_ID, isSignInPage, KEYCLOAK_URL, ORIGIN, type Representation } from "./keycloak.ts";
import { createCases, Lab } from "./lab.ts";

// Sign-ins and sign-outs with a running Keycloak by OpenID Connect.

const SECRET = "a-client-secret-of-this-test";
const CALLBACK = `${ORIGIN}/auth/sso/callback`;

describe.skipIf(skipWithout("keycloak"))("with Keycloak by OpenID Connect", () => {
  /** Declares a test: its title, the expected result (see `outcomeOf`), and the function that returns the actual one. */
  const sees = createCases();
  let lab: Lab;
  let settings: Representation;

  /** The client as an administrator creates it after docs/single-sign-on.md. */
  const client = (service: { url: string }) => ({
    clientId: CLIENT_ID,
    protocol: "openid-connect",
    publicClient: false,
    secret: SECRET,
    standardFlowEnabled: true,
    directAccessGrantsEnabled: false,
    frontchannelLogout: false,
    redirectUris: [CALLBACK],
    attributes: {
      "post.logout.redirect.uris": `${ORIGIN}/`,
      "backchannel.logout.url": `${service.url}/auth/sso/logout`,
      "backchannel.logout.session.required": "true",
    },
    protocolMappers: [ROLES_MAPPER],
  });

  beforeAll(async () => {
    lab = await Lab.start();
    await lab.realm.admin("POST", "/clients", client(lab.service));
    settings = { oidcIssuer: lab.realm.url, oidcClientId: CLIENT_ID, oidcClientSecret: SECRET };
    await lab.configure({
      ...settings,
      providerType: "oidc",
      isEnabled: true,
      autoCreateUsers: true,
      defaultRole: null,
      rolesClaim: "/realm_access/roles",
      roleMapping: ROLE_MAPPING,
    });
  });
  afterAll(() => lab?.stop());

  /** Runs with a changed client, then enters the right secret again, which the service tests. */
  async function withSecretOf(change: Representation, run: () => Promise<string>): Promise<string> {
    try {
      return await lab.realm.withClient(change, run);
    } finally {
      await lab.configure({ oidcClientSecret: SECRET });
    }
  }

  const endAllSessions = (id: string) => lab.realm.admin("POST", `/users/${id}/logout`, {});

  /** Signs Uma in with a number of browsers, without earlier sessions at Keycloak, and returns how many sessions ended. */
  async function afterLogout(count: number, logOut: (id: string) => Promise<unknown>): Promise<string> {
    const { id } = await lab.realm.user("uma");
    await endAllSessions(id);
    const browsers: Browser[] = [];
    while (browsers.length < count) browsers.push(await lab.signInNewBrowser("uma"));
    await logOut(id);
    await Promise.allSettled(browsers.map((browser) => browser.requireEnd()));
    const users = await Promise.all(browsers.map((browser) => browser.me()));
    return `${users.filter((user) => user === undefined).length} of ${count} ended`;
  }

  // The connection test.
  sees("connection test: right values", "passed", () => lab.connectionTest(settings));
  sees("connection test: issuer with a slash more", /^document: The document belongs to another issuer/, () =>
    lab.connectionTest({ ...settings, oidcIssuer: `${lab.realm.url}/` }),
  );
  sees("connection test: the realm does not exist", /^document: The issuer returned status 404/, () =>
    lab.connectionTest({ ...settings, oidcIssuer: `${KEYCLOAK_URL}/realms/none` }),
  );
  sees("connection test: the provider is down", /^address: 127\.0\.0\.1 was not reached/, () =>
    lab.connectionTest({ ...settings, oidcIssuer: "http://127.0.0.1:9/realms/none" }),
  );
  sees("connection test: wrong client secret", /^client: .*secret is wrong/, () =>
    lab.connectionTest({ ...settings, oidcClientSecret: "another" }),
  );
  sees("connection test: unknown client", /^client: .*does not know this client/, () =>
    lab.connectionTest({ ...settings, oidcClientId: "another" }),
  );
  sees("standard flow is off, which only a sign-in shows", "400 providerRefused unauthorized_client", () =>
    lab.realm.withClient({ standardFlowEnabled: false }, () => lab.signIn("uma")),
  );
  sees("connection test: the client is disabled", /^client: .*(disabled|does not know this client)/, () =>
    lab.realm.withClient({ enabled: false }, () => lab.connectionTest(settings)),
  );

  // Sign-ins and roles.
  sees("sign-in, realm role mapped to admin", "in as admin", () => lab.signIn("ada"));
  sees("the sign-in returns to the page", "/#/vaults?a=ü", async () => {
    const page = await new Browser(lab.service).signIn("ada", "/#/vaults?a=ü");
    return decodeURIComponent(page.view ?? "none");
  });
  sees("the session at Keycloak signs in without a password", "in as admin", async () => {
    const browser = await lab.signInNewBrowser("ada");
    await browser.open(`${ORIGIN}/auth/sso/login`);
    return await lab.outcome(browser, await browser.open(`${ORIGIN}/auth/sso/login`));
  });
  sees("groups with full path in the claim groups", "in as operator", () =>
    lab.realm.withMapper(GROUPS_MAPPER, () =>
      lab.withConfiguration({ rolesClaim: "groups", roleMapping: { "/Operator": "operator" } }, () =>
        lab.signIn("olga"),
      ),
    ),
  );
  sees("client roles in /resource_access", "in as auditor", async () => {
    const { id } = await lab.realm.client();
    await lab.realm.admin("POST", `/clients/${id}/roles`, { name: "auditor" });
    const role = await lab.realm.admin("GET", `/clients/${id}/roles/auditor`);
    const user = await lab.realm.user("uma");
    await lab.realm.admin("POST", `/users/${user.id}/role-mappings/clients/${id}`, [role]);
    const change = { rolesClaim: `/resource_access/${CLIENT_ID}/roles`, roleMapping: { auditor: "auditor" } };
    return await lab.realm.withMapper(CLIENT_ROLES_MAPPER, () =>
      lab.withConfiguration(change, () => lab.signIn("uma")),
    );
  });
  sees("no mapped role", "403 noRole", () => lab.signIn("nina"));
  sees("operator and auditor together", "403 rolesConflict", () => lab.signIn("otto"));
  sees("roles only in the access token (Keycloak's default)", "403 noRole", async () => {
    const { id, protocolMappers } = await lab.realm.client();
    const path = `/clients/${id}/protocol-mappers/models`;
    await lab.realm.admin("DELETE", `${path}/${protocolMappers[0].id}`);
    const seen = await lab.signIn("ada");
    await lab.realm.admin("POST", path, ROLES_MAPPER);
    return seen;
  });
  sees(
    "role changed at Keycloak: the next sign-in ends the older session",
    "in as operator, older session ended",
    async () => {
      const older = await lab.signInNewBrowser("olga");
      await lab.realm.setRoles("olga", ["Lifecycle.User"]);
      await lab.signIn("olga");
      const ended = (await older.me()) === undefined;
      await lab.realm.setRoles("olga", ["Lifecycle.Operator"]);
      return `${await lab.signIn("olga")}, older session ${ended ? "ended" : "continues"}`;
    },
  );
  sees("username and name with umlauts", "jurgen.grosse, juergen.groesse@acme.example", async () => {
    const me = await (await lab.signInNewBrowser("jürgen.größe")).me();
    return `${me?.username}, ${me?.email}`;
  });
  sees("allowed domains: address not verified, then verified", "403 emailDomain, in as user", () =>
    lab.withConfiguration({ allowedEmailDomains: ["acme.example"] }, async () => {
      const before = await lab.signIn("eve");
      const user = await lab.realm.user("eve");
      await lab.realm.admin("PUT", `/users/${user.id}`, { ...user, emailVerified: true });
      return `${before}, ${await lab.signIn("eve")}`;
    }),
  );
  sees("pairwise subject identifiers", "in as user", () =>
    lab.realm.withMapper(PAIRWISE_MAPPER, () => lab.signIn("jürgen.größe")),
  );
  sees("accounts are not created: an unknown person", "403 stranger", async () => {
    await lab.realm.setRoles("nina", ["Lifecycle.User"]);
    return await lab.withConfiguration({ autoCreateUsers: false }, () => lab.signIn("nina"));
  });
  sees("the user was deleted here, then unblocked", "403 removed, in as user", async () => {
    await lab.signIn("nina");
    await lab.service.admin("DELETE", "/auth/users/nina");
    const blocked = await lab.signIn("nina");
    const { items } = (await lab.service.admin("GET", "/auth/sso/refused")).body;
    await lab.service.admin("DELETE", `/auth/sso/refused/${items[0].id}`);
    return `${blocked}, ${await lab.signIn("nina")}`;
  });
  sees("the user is disabled here", "403 disabled", async () => {
    await lab.service.admin("PUT", "/auth/users/nina", { state: "disabled" });
    const seen = await lab.signIn("nina");
    await lab.service.admin("PUT", "/auth/users/nina", { state: "active" });
    return seen;
  });
  sees("the user is disabled at Keycloak", /^Keycloak.*disabled/, async () => {
    await lab.realm.setEnabled("nina", false);
    const seen = await lab.signIn("nina");
    await lab.realm.setEnabled("nina", true);
    return seen;
  });

  // The client and its keys.
  sees("PKCE S256 is required", "in as user", () =>
    lab.realm.withClient({ attributes: { "pkce.code.challenge.method": "S256" } }, () => lab.signIn("uma")),
  );
  sees("PKCE plain is required", "400 providerRefused invalid_request", () =>
    lab.realm.withClient({ attributes: { "pkce.code.challenge.method": "plain" } }, () => lab.signIn("uma")),
  );
  sees(
    "client secret changed at Keycloak, then entered here",
    "400 clientRefused unauthorized_client, in as user",
    () =>
      withSecretOf({ secret: "another-client-secret" }, async () => {
        const before = await lab.signIn("uma");
        await lab.configure({ oidcClientSecret: "another-client-secret" });
        return `${before}, ${await lab.signIn("uma")}`;
      }),
  );
  sees("public client without a secret", "in as user", () =>
    withSecretOf({ publicClient: true }, async () => {
      await lab.configure({ oidcClientSecret: null });
      return await lab.signIn("uma");
    }),
  );
  sees("key rotated at Keycloak, old key deleted", "in as user", async () => {
    const removeOlder = await lab.realm.addSigningKey();
    await removeOlder();
    return await lab.signIn("uma");
  });
  for (const [algorithm, expected] of [
    ["PS256", "in as user"],
    ["ES256", "in as user"],
    ["RS512", "in as user"],
    ["EdDSA", "in as user"],
    ["HS256", "400 badResponse alg HS256"],
  ] as const)
    sees(`ID token by ${algorithm}`, expected, () =>
      lab.realm.withClient({ attributes: { "id.token.signed.response.alg": algorithm } }, () => lab.signIn("uma")),
    );
  sees("userinfo as a signed JWT", "in as user", () =>
    lab.realm.withClient({ attributes: { "user.info.response.signature.alg": "RS256" } }, () => lab.signIn("uma")),
  );
  sees("lightweight access tokens", "in as user", () =>
    lab.realm.withClient({ attributes: { "client.use.lightweight.access.token.enabled": "true" } }, () =>
      lab.signIn("uma"),
    ),
  );
  sees("pushed authorization requests are required", "400 providerRefused invalid_request", () =>
    lab.realm.withClient({ attributes: { "require.pushed.authorization.requests": "true" } }, () => lab.signIn("uma")),
  );
  sees("another audience in the token beside the client", "in as user", () =>
    lab.realm.withMapper(AUDIENCE_MAPPER, () => lab.signIn("uma")),
  );

  // Messages of others.
  sees("wrong audience: the code belongs to another client", /^400 badResponse invalid_grant/, async () => {
    await lab.realm.admin("POST", "/clients", { ...client(lab.service), clientId: "other" });
    const browser = new Browser(lab.service);
    browser.holdCallback = true;
    const start = await browser.send(new URL(`${ORIGIN}/auth/sso/login`));
    const address = new URL(start.headers.get("location")!);
    address.searchParams.set("client_id", "other");
    const page = await browser.open(address.href);
    const { held } = isSignInPage(page) ? await browser.enterPassword(page, "uma") : page;
    browser.holdCallback = false;
    return await lab.outcome(browser, await browser.open(held!.url.href));
  });
  sees("the callback is repeated", "400 used", async () => {
    const browser = new Browser(lab.service);
    browser.holdCallback = true;
    const { held } = await browser.signIn("uma");
    browser.holdCallback = false;
    // The service deletes the cookie that binds the sign-in to the browser. This browser sends it again.
    browser.storesCookies = false;
    await browser.open(held!.url.href);
    return await lab.outcome(browser, await browser.open(held!.url.href));
  });
  sees("the callback comes from another browser", "400 otherBrowser", async () => {
    const [browser, other] = [new Browser(lab.service), new Browser(lab.service)];
    browser.holdCallback = true;
    const { held } = await browser.signIn("uma");
    return await lab.outcome(other, await other.open(held!.url.href));
  });
  sees("the response names another issuer", "400 badResponse OAUTH_INVALID_RESPONSE", async () => {
    const browser = new Browser(lab.service);
    browser.holdCallback = true;
    const { held } = await browser.signIn("uma");
    browser.holdCallback = false;
    held!.url.searchParams.set("iss", `${KEYCLOAK_URL}/realms/master`);
    return await lab.outcome(browser, await browser.open(held!.url.href));
  });
  sees("consent is denied", "400 providerRefused access_denied", () =>
    lab.realm.withClient({ consentRequired: true }, async () => {
      const browser = new Browser(lab.service);
      const page = await browser.signIn("uma");
      return await lab.outcome(browser, await browser.submit(page, undefined, { cancel: "No" }));
    }),
  );

  // Clocks. The service tolerates a difference of one minute.
  sees("the service's clock is 50 s ahead, then 50 s behind", "in as user, in as user", async () => {
    const ahead = await lab.withClock(50_000, () => lab.signIn("uma"));
    return `${ahead}, ${await lab.withClock(-50_000, () => lab.signIn("uma"))}`;
  });
  sees(
    "the service's clock is 9 min ahead: the ID token expired",
    "400 badResponse OAUTH_JWT_TIMESTAMP_CHECK_FAILED",
    () => lab.withClock(9 * 60_000, () => lab.signIn("uma")),
  );
  sees("the service's clock is 9 min behind", "400 badResponse iat", () =>
    lab.withClock(-9 * 60_000, () => lab.signIn("uma")),
  );

  // Sign-outs.
  sees("sign-out here ends Keycloak's session and leads back", "asked, back at /, password asked", async () => {
    const browser = await lab.signInNewBrowser("uma");
    let page = await browser.open((await browser.signOut())!);
    const asked = /name="confirmLogout"/.test(page.text);
    if (asked) page = await browser.submit(page, undefined, { confirmLogout: "Logout" });
    const again = await browser.open(`${ORIGIN}/auth/sso/login`);
    return `${asked ? "asked, " : ""}back at ${page.view ?? page.url}, ${isSignInPage(again) ? "password asked" : "no password asked"}`;
  });
  sees("an administrator ends one session at Keycloak", "1 of 1 ended", () =>
    afterLogout(1, async (id) => {
      const [session] = await lab.realm.admin("GET", `/users/${id}/sessions`);
      await lab.realm.admin("DELETE", `/sessions/${session.id}`);
    }),
  );
  // Keycloak 26.0.7 sends one logout token, whatever the number of sessions.
  sees("an administrator ends all sessions of a person at Keycloak", "1 of 2 ended", () =>
    afterLogout(2, endAllSessions),
  );
  sees("the same without Backchannel logout session required", "2 of 2 ended", () =>
    lab.realm.withClient({ attributes: { "backchannel.logout.session.required": "false" } }, () =>
      afterLogout(2, endAllSessions),
    ),
  );
  sees(
    "sign-out at Keycloak in one browser: back-channel logout of its session only",
    "ended, other continues",
    async () => {
      const [one, other] = [await lab.signInNewBrowser("uma"), await lab.signInNewBrowser("uma")];
      const page = await one.open(`${lab.realm.url}/protocol/openid-connect/logout`);
      await one.submit(page, undefined, { confirmLogout: "Logout" });
      await one.requireEnd();
      return `ended, other ${(await other.me()) ? "continues" : "ended"}`;
    },
  );
  sees("back-channel logout without session ids ends all sessions of the person", "ended, other ended", () =>
    lab.realm.withClient({ attributes: { "backchannel.logout.session.required": "false" } }, async () => {
      const [one, other] = [await lab.signInNewBrowser("uma"), await lab.signInNewBrowser("uma")];
      const page = await one.open(`${lab.realm.url}/protocol/openid-connect/logout`);
      await one.submit(page, undefined, { confirmLogout: "Logout" });
      await one.requireEnd();
      return `ended, other ${(await other.me()) ? "continues" : "ended"}`;
    }),
  );

  // Passwords.
  sees(
    "ssoOnlyMode: passwords are off, except for the bootstrap administrator",
    "bootstrap 200, other 403",
    async () => {
      await lab.signIn("ada");
      const user = { username: "local", password: "a-long-enough-passphrase", role: "user" };
      await lab.service.admin("POST", "/auth/users", user);
      return await lab.withConfiguration({ ssoOnlyMode: true }, async () => {
        const { status } = await lab.service.call("POST", "/auth/login", {
          body: { username: user.username, password: user.password },
        });
        return `bootstrap ${await lab.passwordStatus()}, other ${status}`;
      });
    },
  );

  // Last, because a failure in between leaves the realm disabled.
  sees("the realm is disabled: no sign-in starts", "Keycloak 400: Realm not enabled", async () => {
    const realm = await lab.realm.admin("GET", "");
    await lab.realm.admin("PUT", "", { ...realm, enabled: false });
    const seen = await lab.signIn("uma");
    await lab.realm.admin("PUT", "", { ...realm, enabled: true });
    return seen;
  });
});

const ROLE_MAPPING = {
  "Lifecycle.Admin": "admin",
  "Lifecycle.Auditor": "auditor",
  "Lifecycle.Operator": "operator",
  "Lifecycle.User": "user",
};

const mapper = (name: string, protocolMapper: string, config: Record<string, string>) => ({
  name,
  protocol: "openid-connect",
  protocolMapper,
  config: { "id.token.claim": "true", "access.token.claim": "true", "userinfo.token.claim": "true", ...config },
});
const ROLES_MAPPER = mapper("realm roles in the ID token", "oidc-usermodel-realm-role-mapper", {
  "claim.name": "realm_access.roles",
  "jsonType.label": "String",
  multivalued: "true",
});
const GROUPS_MAPPER = mapper("groups", "oidc-group-membership-mapper", { "claim.name": "groups", "full.path": "true" });
const CLIENT_ROLES_MAPPER = mapper("client roles", "oidc-usermodel-client-role-mapper", {
  // Keycloak replaces `${client_id}`. In two parts, so that it does not look like a template of this file.
  "claim.name": "resource_access.$" + "{client_id}.roles",
  "jsonType.label": "String",
  multivalued: "true",
});
const AUDIENCE_MAPPER = mapper("audience", "oidc-audience-mapper", { "included.custom.audience": "another-service" });
const PAIRWISE_MAPPER = mapper("pairwise", "oidc-sha256-pairwise-sub-mapper", { pairwiseSubAlgorithmSalt: "salt" });
