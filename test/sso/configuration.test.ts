import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { CONFIGURATION_KEY, Configuration, SSO } from "../../shared/sso/configuration.ts";
import { SSO_SECRETS } from "../../shared/sso/secrets.ts";
import { PROVIDER_SECRETS } from "../../shared/sync/configurations.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  ADMINISTRATOR,
  CALLER,
  type Deployment,
  type Instance,
  ORIGIN,
  problemOf,
  signIn,
  startDeployments,
} from "./support.ts";

// Tests of the SSO configuration, its client secret, the connection test, and the mode in which passwords are turned off.

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
afterEach(() => {
  deployments.cloud.control.setOidcMode("correct");
  deployments.cloud.control.clearFaults();
});

const configure = (change: object, atInstance = instance, ifMatch?: string) =>
  atInstance.sso.configure(change, ifMatch, ADMINISTRATOR, ORIGIN);
/** Returns the message of the error with which a call is rejected, or "none". */
const messageOf = (work: Promise<unknown>) =>
  work.then(
    () => "none",
    (error: Error) => error.message,
  );
const systemCaller = { actor: "system", requestId: "test" };
/** Returns the names of secrets in the audit events, oldest first. */
const auditedSecretNames = () =>
  deployment.events
    .concat()
    .map(({ details }) => details?.name)
    .filter(Boolean);

describe("the configuration", () => {
  test("is turned off before it was saved for the first time", async () => {
    expect(await instance.sso.configuration()).toMatchObject({
      providerType: "oidc",
      isEnabled: false,
      oidcIssuer: null,
      totalSsoLogins: 0,
      lastSuccessfulLoginAt: null,
    });
    expect(await instance.sso.status()).toMatchObject({ enabled: false, ssoOnlyMode: false });
  });

  test("accepts a subset of the members, and applies on another instance", async () => {
    await configure({ loginButtonText: "Acme" });
    await deployment.configure(otherInstance, { allowedEmailDomains: ["acme.example"] });
    const shown = await instance.sso.configuration();
    expect(shown).toMatchObject({
      isEnabled: true,
      loginButtonText: "Acme",
      oidcClientSecretSet: true,
      oidcIssuer: deployments.cloud.oidc.issuer,
    });
    expect(await instance.sso.status()).toEqual({
      enabled: true,
      providerType: "oidc",
      loginButtonText: "Acme",
      ssoOnlyMode: false,
    });
    await configure({ allowedEmailDomains: null, defaultRole: null });
    expect(await otherInstance.sso.configuration()).toMatchObject({ allowedEmailDomains: null, defaultRole: null });
    expect(JSON.stringify([shown, deployment.events, deployment.logLines])).not.toContain(
      deployments.cloud.oidc.clientSecret,
    );
  });

  test("is not overwritten with a stale ETag", async () => {
    const { etag } = await configure({ loginButtonText: "one" });
    await configure({ loginButtonText: "two" }, otherInstance, etag);
    expect(await problemOf(configure({ loginButtonText: "three" }, instance, etag))).toBe("preconditionFailed");
    expect(await problemOf(instance.sso.disable(etag, ADMINISTRATOR))).toBe("preconditionFailed");
    const results = await Promise.all([
      problemOf(configure({ autoCreateUsers: true })),
      problemOf(configure({ defaultRole: null }, otherInstance)),
    ]);
    // Both succeed if one starts after the other has ended.
    expect(results.filter((code) => code === "none").length).toBeGreaterThan(0);
    for (const code of results) expect(["none", "conflict"]).toContain(code);
  });

  test("remains stored when it is turned off", async () => {
    expect(await problemOf(instance.sso.disable(undefined, ADMINISTRATOR))).toBe("notFound");
    await deployment.configure(instance);
    await instance.sso.disable(undefined, ADMINISTRATOR);
    const target = { type: "sso", id: "configuration" };
    expect(deployment.events.at(-1)).toMatchObject({ type: "sso.disabled", outcome: "success", target });
    expect(await otherInstance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: true });
    await configure({ isEnabled: true, autoCreateUsers: true });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });

  test.each([
    ["https://gateway.acme.example/lifecycle", /without a path/],
    ["http://lifecycle.acme.example", /https/],
    ["https://lifecycle.acme.example", /^none$/],
    ["http://[::1]:7071", /^none$/],
  ])(
    "with the public address %s can be saved or is rejected with a reason that matches %s",
    async (PUBLIC_BASE_URL, message) => {
      const instanceAtAddress = deployment.start({ config: { PUBLIC_BASE_URL } });
      const { origin } = new URL(PUBLIC_BASE_URL);
      const change = { loginButtonText: "Sign in" };
      expect(await messageOf(instanceAtAddress.sso.configure(change, undefined, ADMINISTRATOR, origin))).toMatch(
        message,
      );
    },
  );

  test("can't be saved without a public address, or with a secret but without a key vault", async () => {
    expect(await problemOf(instance.sso.configure({}, undefined, ADMINISTRATOR, undefined))).toBe("conflict");
    const instanceWithoutVault = deployment.start({ config: { SERVICE_KEY_VAULT_URL: undefined } });
    expect(await problemOf(deployment.configure(instanceWithoutVault))).toBe("conflict");
    expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false });
  });

  test.each<[object, RegExp]>([
    [{ isEnabled: true }, /oidcIssuer/],
    [{ isEnabled: true, oidcIssuer: "https://login.acme.example" }, /oidcClientId/],
    [{ oidcIssuer: "http://login.acme.example" }, /https/],
    [{ oidcIssuer: "https://a:b@login.acme.example" }, /username or password/],
    [{ oidcIssuer: "https://login.acme.example/#x" }, /fragment/],
    [{ oidcIssuer: "https://login.acme.example/?x" }, /query/],
    [{ rolesClaim: "roles" }, /roleMapping/],
    [{ roleMapping: { a: "user" } }, /rolesClaim/],
    [{ oidcIssuer: "https://login.microsoftonline.com/common/v2.0" }, /tenant/],
    [{ oidcIssuer: "https://login.microsoftonline.com/organizations/v2.0" }, /tenant/],
    [{ oidcIssuer: "https://login.microsoftonline.com/{tenantid}/v2.0" }, /tenant/],
    [{ oidcIssuer: "https://login.microsoftonline.us/acme.example/v2.0" }, /tenant/],
    // The tenant of all personal Microsoft accounts.
    [{ oidcIssuer: "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0" }, /tenant/],
    [{ oidcIssuer: "https://accounts.google.com", autoCreateUsers: true }, /allowedEmailDomains/],
    [{ oidcIssuer: "https://accounts.google.com/", autoCreateUsers: true }, /allowedEmailDomains/],
  ])("with %j is rejected", async (change, message) => {
    expect(await messageOf(configure(change))).toMatch(message);
    expect(await instance.sso.configuration()).toMatchObject({ updatedAt: null });
  });

  test.each<object>([
    { oidcIssuer: "https://login.microsoftonline.com/11111111-2222-4333-8444-555555555555/v2.0" },
    { oidcIssuer: "https://accounts.google.com", autoCreateUsers: true, allowedEmailDomains: ["acme.example"] },
    { oidcIssuer: "https://accounts.google.com", autoCreateUsers: false },
  ])("with %j is accepted", async (change) => {
    expect(await messageOf(configure(change))).toBe("none");
  });
});

describe("a client secret", () => {
  test("must be entered again when the issuer changes", async () => {
    await deployment.configure(instance);
    const otherIssuer = { isEnabled: false, oidcIssuer: "https://login.elsewhere.example" };
    expect(await messageOf(configure(otherIssuer))).toContain("oidcClientSecret: is needed again");
    expect(await messageOf(configure({ ...otherIssuer, oidcClientSecret: null }))).toBe("none");
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretSet: false });
  });

  test("is not used again when its issuer is removed and entered again", async () => {
    await deployment.configure(instance);
    await configure({ isEnabled: false, oidcIssuer: null });
    await configure({ oidcIssuer: deployments.cloud.oidc.issuer });
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretSet: false });
  });

  test("is tested with the provider before it is saved with an enabled configuration", async () => {
    const attempt = deployment.configure(instance, { oidcClientSecret: "a wrong secret of the client" });
    expect(await messageOf(attempt)).toContain("oidcClientSecret: does not work");
    expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
    expect(JSON.stringify(deployment.events)).not.toContain("a wrong secret");
  });

  test("is tested when the configuration is enabled or the client changes", async () => {
    const wrongSecret = { isEnabled: false, oidcClientSecret: "a wrong secret of the client" };
    expect(await messageOf(deployment.configure(instance, wrongSecret))).toBe("none");
    expect(await messageOf(configure({ isEnabled: true }))).toContain(
      "oidcClientSecret: does not work: The provider does not know",
    );
    await deployment.configure(instance);
    expect(await messageOf(configure({ oidcClientId: "another" }))).toContain(
      "does not work: The provider does not know this client",
    );
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientId: deployments.cloud.oidc.clientId });
    // A change of another member does not read or test the secret. A new instance has no secret in its cache.
    deployments.cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    expect(
      await messageOf(deployment.start().sso.configure({ defaultRole: null }, undefined, ADMINISTRATOR, ORIGIN)),
    ).toBe("none");
    const freshInstance = deployment.start();
    const clientChange = freshInstance.sso.configure({ oidcClientId: "another" }, undefined, ADMINISTRATOR, ORIGIN);
    await expect(clientChange).rejects.toMatchObject({ name: "CloudFailure" });
    await expect(freshInstance.sso.test({}, ADMINISTRATOR, ORIGIN)).rejects.toMatchObject({ name: "CloudFailure" });
  });

  test("is deleted a day after it was replaced", async () => {
    const removalEvents = () => deployment.events.filter(({ type }) => type === "sso.secretRemoved");
    await deployment.configure(instance);
    // Stores the client secret again, in another secret of the key vault.
    await deployment.configure(instance);
    await instance.sso.cleanUp(systemCaller);
    expect(removalEvents()).toHaveLength(0);
    deployment.pass(25 * HOUR_MS);
    await otherInstance.sso.cleanUp(systemCaller);
    expect(removalEvents().map(({ outcome, target }) => [outcome, target?.type])).toEqual([
      ["intent", "sso"],
      ["success", "sso"],
    ]);
    const removedName = auditedSecretNames().at(-1) as string;
    expect(deployments.cloud.control.secretValue("kv-lifecycle-service", removedName)).toBeUndefined();
    await otherInstance.sso.cleanUp(systemCaller);
    expect(removalEvents()).toHaveLength(2);
    // The secret in use still works.
    const { checks } = await otherInstance.sso.test({}, ADMINISTRATOR, ORIGIN);
    expect(checks.at(-1)).toMatchObject({ name: "client", passed: true });
  });

  test("is deleted a day later if its configuration could not be saved", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const failingInstance = deployment.start({ connectionString: proxy.connectionString });
      proxy.fail(["UpdateConditionNotSatisfied"], ({ path }) => path === "$batch");
      expect(await problemOf(deployment.configure(failingInstance))).toBe("conflict");
      expect(deployment.events.at(-1)).toMatchObject({ type: "sso.configured", outcome: "refused" });
      expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
      deployment.pass(25 * HOUR_MS);
      await instance.sso.cleanUp(systemCaller);
      expect(deployment.events.at(-1)).toMatchObject({ type: "sso.secretRemoved", outcome: "success" });
    } finally {
      await proxy.stop();
    }
  });

  test("is not saved, nor its configuration, if the key vault rejects it", async () => {
    deployments.cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
    expect(await problemOf(deployment.configure(instance))).toBe("unavailable");
    expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
  });

  test("makes sign-ins unavailable while the key vault does not return it", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    deployments.cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    expect(await problemOf(signIn(otherInstance, "uma"))).toBe("unavailable");
    expect(deployment.rejectionReasons().at(-1)).toContain("secretUnreadable");
    deployments.cloud.control.clearFaults();
    expect(await problemOf(signIn(otherInstance, "uma"))).toBe("none");
  });

  test("is listed as expiring from 30 days before its expiry date, if the date is known", async () => {
    const expiringSoon = async (atInstance = instance) => {
      const credentials = [];
      for await (const credential of atInstance.sso.expiring(new Date(Date.now() + 30 * 24 * HOUR_MS)))
        credentials.push(credential);
      return credentials;
    };
    const expiresOn = new Date(Date.now() + 20 * 24 * HOUR_MS).toISOString();
    await deployment.configure(instance, { oidcClientSecretExpiresOn: expiresOn });
    expect(await expiringSoon(otherInstance)).toMatchObject([
      { expiresAt: expiresOn, name: deployments.cloud.oidc.clientId },
    ]);
    expect(await expiringSoon(deployment.start({ tier: "core" }))).toEqual([]);
    await configure({ oidcClientSecretExpiresOn: new Date(Date.now() + 40 * 24 * HOUR_MS).toISOString() });
    expect(await expiringSoon()).toEqual([]);
    await configure({ oidcClientSecretExpiresOn: expiresOn });
    // Enters the client secret again without a date. The old date no longer applies.
    await deployment.configure(instance);
    expect(await expiringSoon()).toEqual([]);
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretExpiresOn: null });
  });

  test("has a name prefix that differs from that of sync secrets", () => {
    expect([SSO_SECRETS.namePrefix, PROVIDER_SECRETS.namePrefix]).toEqual(["sso", "sync"]);
  });

  test("is not used if the row references a secret of another issuer or purpose", async () => {
    const readRow = async () => (await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY))!;
    await configure({ oidcIssuer: "https://other.example", oidcClientSecret: "for another issuer" });
    const { oidcClientSecret: otherIssuersSecret } = await readRow();
    await deployment.configure(instance, { autoCreateUsers: true, samlSignRequests: true });
    const { oidcClientSecret: ownSecret, samlServiceKey: samlKey } = await readRow();
    for (const plantedReference of [otherIssuersSecret, samlKey]) {
      await instance.tables.replace(Configuration, { ...(await readRow()), oidcClientSecret: plantedReference! });
      expect(await problemOf(signIn(instance, "uma"))).toBe("unavailable");
      expect(deployment.rejectionReasons().at(-1)).toBe("secretUnreadable notFound");
    }
    await instance.tables.replace(Configuration, { ...(await readRow()), oidcClientSecret: ownSecret! });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });
});

describe("a connection test", () => {
  test("of a working configuration succeeds and saves nothing", async () => {
    const { isEnabled: _, ...settings } = deployment.settings;
    const result = await instance.sso.test(settings as never, ADMINISTRATOR, ORIGIN);
    expect(result).toMatchObject({ success: true, providerType: "oidc" });
    expect(result.checks.map(({ name }) => name)).toEqual(["document", "keys", "client"]);
    expect(await instance.sso.configuration()).toMatchObject({ updatedAt: null });
  });

  test("names the failed check and the problem", async () => {
    /** Tests a configuration that must fail, and returns the last check: its name and detail. */
    const failedCheck = async (given: object) => {
      const { success, checks } = await instance.sso.test(given, ADMINISTRATOR, ORIGIN);
      expect(success).toBe(false);
      return `${checks.at(-1)!.name}: ${checks.at(-1)!.detail}`;
    };
    const { issuer, clientId } = deployments.cloud.oidc;
    const client = { oidcIssuer: issuer, oidcClientId: clientId };
    expect(await failedCheck({ ...client, oidcClientSecret: "wrong" })).toContain("client: The provider does not know");
    expect(await failedCheck({ oidcIssuer: issuer, oidcClientId: "unknown", oidcClientSecret: "x" })).toContain(
      "client: The provider does not know",
    );
    expect(await failedCheck({ ...client, oidcIssuer: `${issuer}/other` })).toContain("document: ");
    for (const [mode, text] of [
      ["wrongDiscoveryIssuer", "another issuer"],
      ["templateIssuer", "another issuer"],
      ["largeDiscovery", "256 KiB"],
      ["redirectingDiscovery", "redirect"],
      ["metadataAddressKeys", "jwks_uri"],
      ["metadataAddressToken", "token_endpoint"],
    ] as const) {
      deployments.cloud.control.setOidcMode(mode);
      expect(await failedCheck(client)).toContain(text);
      expect(await messageOf(deployment.configure(instance))).toContain("oidcIssuer: does not work");
    }
  });

  test("sends all parameters of a token request, because some providers check them before the secret", async () => {
    const tokenRequests: URLSearchParams[] = [];
    const server = createServer((request, response) => {
      const issuer = `http://${request.headers.host}`;
      const addresses = { authorization_endpoint: `${issuer}/in`, token_endpoint: `${issuer}/token` };
      const responses: Record<string, object> = {
        "/keys": { keys: [{ kty: "RSA" }] },
        "/token": { error: "invalid_client" },
      };
      const body = responses[request.url!] ?? { issuer, ...addresses, jwks_uri: `${issuer}/keys` };
      void text(request).then((form) => {
        if (request.url === "/token") tokenRequests.push(new URLSearchParams(form));
        response.writeHead("error" in body ? 400 : 200, { "content-type": "application/json" });
        response.end(JSON.stringify(body));
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { sso } = deployment.start({ config: { PRIVATE_TARGET_HOSTS: [host] } });
    const client = { oidcIssuer: `http://${host}`, oidcClientId: "client", oidcClientSecret: "wrong" };
    const { checks } = await sso.test(client, ADMINISTRATOR, ORIGIN);
    server.close();
    expect(checks.map(({ name, passed }) => [name, passed])).toEqual([
      ["document", true],
      ["keys", true],
      ["client", false],
    ]);
    expect(
      tokenRequests.map((form) => [...form].flatMap(([name, value]) => (value === "" ? [] : [name])).sort()),
    ).toEqual([["code", "code_verifier", "grant_type", "redirect_uri"]]);
  });

  test("uses the saved secret only for the saved issuer and client", async () => {
    await deployment.configure(instance);
    const clientCheck = async (change: object) =>
      (await instance.sso.test(change, ADMINISTRATOR, ORIGIN)).checks.at(-1);
    expect(await clientCheck({})).toMatchObject({ name: "client", passed: true });
    const reads = () => deployments.cloud.control.counts()["keyvault.getSecret"] ?? 0;
    // A new instance has no secret in its cache.
    const freshInstance = deployment.start();
    const readsBefore = reads();
    for (const change of [{ oidcIssuer: `${deployments.cloud.oidc.issuer}/` }, { oidcClientId: "another" }]) {
      await freshInstance.sso.test(change, ADMINISTRATOR, ORIGIN);
    }
    expect(reads()).toBe(readsBefore);
  });
});

describe("passwords", () => {
  /** Signs in with a password. Returns "none" or the code of the problem. */
  const signInAsMaria = () => problemOf(instance.access.signIn(MARIA, CALLER));
  const signInAsAdministrator = (atInstance = instance) => problemOf(atInstance.access.signIn(ADMIN, CALLER));
  const MARIA = { username: "maria", password: "maria's own password" };
  const ROLE_MAPPING = {
    autoCreateUsers: true,
    rolesClaim: "roles",
    roleMapping: { "Lifecycle.Admin": "admin" },
  } as const;

  /** Configures SSO, signs in with it as an administrator, and turns passwords off. */
  async function turnPasswordsOff(): Promise<void> {
    await instance.access.users.create({ ...MARIA, role: "user" }, CALLER);
    expect(await signInAsAdministrator()).toBe("none");
    await deployment.configure(instance, ROLE_MAPPING);
    await signIn(instance, "ada");
    await configure({ ssoOnlyMode: true });
  }

  test("are turned off for all users except the bootstrap administrator", async () => {
    await turnPasswordsOff();
    expect(await otherInstance.sso.status()).toMatchObject({ ssoOnlyMode: true });
    expect(await signInAsMaria()).toBe("ssoOnly");
    expect(await signInAsAdministrator(otherInstance)).toBe("none");
    expect(deployment.events.slice(-2)).toMatchObject([
      { type: "access.breakGlass", outcome: "success", target: { id: "admin" } },
      { type: "user.signedIn" },
    ]);
    await configure({ ssoOnlyMode: false });
    expect(await signInAsMaria()).toBe("none");
    await signInAsAdministrator();
    expect(deployment.events.filter(({ type }) => type === "access.breakGlass")).toHaveLength(1);
  });

  test("can't be turned off before an administrator has signed in with the current SSO configuration", async () => {
    expect(await signInAsAdministrator()).toBe("none");
    expect(await messageOf(configure({ ssoOnlyMode: true }))).toContain("not turned on");
    await deployment.configure(instance, ROLE_MAPPING);
    expect(await messageOf(configure({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "uma");
    expect(await messageOf(configure({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "ada");
    await configure({ defaultRole: null });
    expect(await messageOf(configure({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "ada");
    await configure({ loginButtonText: "decides nothing" });
    expect(await messageOf(configure({ ssoOnlyMode: true }))).toBe("none");
  });

  test.each<object>([
    { roleMapping: { "Lifecycle.Admin": "user" } },
    { defaultRole: null },
    { allowedEmailDomains: ["acme.example"] },
    { autoCreateUsers: false },
    { oidcScopes: ["openid"] },
    { isEnabled: false },
  ])("are turned on again by the change %j", async (change) => {
    await turnPasswordsOff();
    // The change is rejected together with a request that keeps passwords turned off.
    expect(await problemOf(configure({ ...change, ssoOnlyMode: true }))).toBe("conflict");
    expect(await signInAsMaria()).toBe("ssoOnly");
    await configure(change);
    expect(await signInAsMaria()).toBe("none");
  });

  test("are turned on again with a new client secret", async () => {
    await turnPasswordsOff();
    const { clientSecret } = deployments.cloud.oidc;
    expect(await problemOf(configure({ oidcClientSecret: clientSecret, ssoOnlyMode: true }))).toBe("conflict");
    await configure({ oidcClientSecret: clientSecret });
    expect(await signInAsMaria()).toBe("none");
  });

  test("stay turned off while the provider is down, except for the bootstrap administrator", async () => {
    await turnPasswordsOff();
    deployments.cloud.control.addFault({ match: { operation: "oidc.*" }, action: { kind: "reset" } });
    expect(await problemOf(signIn(deployment.start(), "ada"))).toBe("unavailable");
    expect(await signInAsMaria()).toBe("ssoOnly");
    expect(await signInAsAdministrator()).toBe("none");
    // An administrator can turn passwords on again while the provider is down.
    await configure({ ssoOnlyMode: false });
    expect(await signInAsMaria()).toBe("none");
  });

  test("are accepted on an instance without a license", async () => {
    await turnPasswordsOff();
    const unlicensedInstance = deployment.start({ tier: "core" });
    expect(await unlicensedInstance.sso.status()).toMatchObject({ enabled: false, ssoOnlyMode: false });
    expect(await problemOf(unlicensedInstance.access.signIn(MARIA, CALLER))).toBe("none");
    expect(await signInAsMaria()).toBe("ssoOnly");
  });

  test("that are turned off prevent that the bootstrap administrator is deleted, disabled or demoted", async () => {
    await turnPasswordsOff();
    await instance.access.users.create({ username: "second", password: "another password", role: "admin" }, CALLER);
    const { users } = instance.access;
    for (const change of [{ state: "disabled" }, { role: "user" }] as const) {
      expect(await problemOf(users.update("admin", change, undefined, ADMINISTRATOR))).toBe("conflict");
    }
    expect(await problemOf(users.remove("admin", undefined, ADMINISTRATOR))).toBe("conflict");
    expect(await problemOf(users.update("admin", { email: "a@acme.example" }, undefined, ADMINISTRATOR))).toBe("none");
    expect(await problemOf(users.remove("second", undefined, ADMINISTRATOR))).toBe("none");
    await configure({ ssoOnlyMode: false });
    await instance.access.users.create({ username: "third", password: "another password", role: "admin" }, CALLER);
    expect(await problemOf(users.remove("admin", undefined, ADMINISTRATOR))).toBe("none");
  });

  test("are accepted again if the bootstrap administrator can no longer sign in as an administrator", async () => {
    await turnPasswordsOff();
    const row = (await instance.tables.get(User, USERS_PARTITION, "admin"))!;
    for (const change of [{ state: "disabled" }, { role: "user" }, { passwordHash: undefined }] as const) {
      await instance.tables.put(User, USERS_PARTITION, "admin", { ...row, ...change });
      expect(await signInAsMaria()).toBe("none");
    }
    await instance.tables.put(User, USERS_PARTITION, "admin", row);
    expect(await signInAsMaria()).toBe("ssoOnly");
    await instance.tables.remove(User, USERS_PARTITION, "admin");
    expect(await signInAsMaria()).toBe("none");
    const instanceWithoutBootstrap = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: undefined } });
    expect(await problemOf(instanceWithoutBootstrap.access.signIn(MARIA, CALLER))).toBe("none");
  });

  test("can't be turned off without a bootstrap administrator", async () => {
    const instanceWithoutBootstrap = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: undefined } });
    await deployment.configure(instanceWithoutBootstrap, ROLE_MAPPING);
    await signIn(instanceWithoutBootstrap, "ada");
    expect(await messageOf(configure({ ssoOnlyMode: true }, instanceWithoutBootstrap))).toContain(
      "BOOTSTRAP_ADMIN_USERNAME",
    );
  });
});
