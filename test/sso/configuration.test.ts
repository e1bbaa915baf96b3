import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import { CONFIGURATION_KEY, Configuration, SSO } from "../../shared/sso/configuration.ts";
import { SSO_SECRETS } from "../../shared/sso/secrets.ts";
import { PROVIDER_SECRETS } from "../../shared/sync/configurations.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import {
  ADMIN,
  ADMINISTRATOR,
  type Deployment,
  HERE,
  type Instance,
  ORIGIN,
  problemOf,
  signIn,
  startDeployments,
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
afterEach(() => {
  deployments.cloud.control.setOidcMode("correct");
  deployments.cloud.control.clearFaults();
});

const HOUR = 3_600_000;
const put = (change: object, at = instance, ifMatch?: string) =>
  at.sso.configure(change, ifMatch, ADMINISTRATOR, ORIGIN);
const messageOf = (work: Promise<unknown>) =>
  work.then(
    () => "none",
    (error: Error) => error.message,
  );
const system = { actor: "system", requestId: "test" };
/** The secrets of single sign-on in the vault, by their names. */
const secrets = () =>
  deployment.events
    .concat()
    .map(({ details }) => details?.name)
    .filter(Boolean);

describe("the configuration", () => {
  test("exists before it was saved, and is turned off", async () => {
    expect(await instance.sso.configuration()).toMatchObject({
      providerType: "oidc",
      isEnabled: false,
      oidcIssuer: null,
      totalSsoLogins: 0,
      lastSuccessfulLoginAt: null,
    });
    expect(await instance.sso.status()).toMatchObject({ enabled: false, ssoOnlyMode: false });
  });

  test("accepts any subset, shows no secret, and applies on every instance", async () => {
    await put({ loginButtonText: "Acme" });
    await deployment.configure(other, { allowedEmailDomains: ["acme.example"] });
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
    await put({ allowedEmailDomains: null, defaultRole: null });
    expect(await other.sso.configuration()).toMatchObject({ allowedEmailDomains: null, defaultRole: null });
    expect(JSON.stringify([shown, deployment.events, deployment.logged])).not.toContain(
      deployments.cloud.oidc.clientSecret,
    );
  });

  test("is not overwritten with a stale ETag, nor by two requests at once", async () => {
    const { etag } = await put({ loginButtonText: "one" });
    await put({ loginButtonText: "two" }, other, etag);
    expect(await problemOf(put({ loginButtonText: "three" }, instance, etag))).toBe("preconditionFailed");
    expect(await problemOf(instance.sso.disable(etag, ADMINISTRATOR))).toBe("preconditionFailed");
    const both = await Promise.all([
      problemOf(put({ autoCreateUsers: true })),
      problemOf(put({ defaultRole: null }, other)),
    ]);
    expect(both.filter((code) => code === "none").length).toBeGreaterThan(0);
    for (const code of both) expect(["none", "conflict"]).toContain(code);
  });

  test("is kept when it is turned off, and not found before it was saved", async () => {
    expect(await problemOf(instance.sso.disable(undefined, ADMINISTRATOR))).toBe("notFound");
    await deployment.configure(instance);
    await instance.sso.disable(undefined, ADMINISTRATOR);
    const target = { type: "sso", id: "configuration" };
    expect(deployment.events.at(-1)).toMatchObject({ type: "sso.disabled", outcome: "success", target });
    expect(await other.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: true });
    await put({ isEnabled: true, autoCreateUsers: true });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });

  test.each([
    ["https://gateway.acme.example/lifecycle", /without a path/],
    ["http://lifecycle.acme.example", /https/],
    ["https://lifecycle.acme.example", /^none$/],
    ["http://[::1]:7071", /^none$/],
  ])("if the service's public address is %s", async (PUBLIC_BASE_URL, message) => {
    const there = deployment.start({ config: { PUBLIC_BASE_URL } });
    const { origin } = new URL(PUBLIC_BASE_URL);
    const change = { loginButtonText: "Sign in" };
    expect(await messageOf(there.sso.configure(change, undefined, ADMINISTRATOR, origin))).toMatch(message);
  });

  test("needs a public address of the service, and a key vault for a secret", async () => {
    expect(await problemOf(instance.sso.configure({}, undefined, ADMINISTRATOR, undefined))).toBe("conflict");
    const bare = deployment.start({ config: { SERVICE_KEY_VAULT_URL: undefined } });
    expect(await problemOf(deployment.configure(bare))).toBe("conflict");
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
    [{ oidcIssuer: "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0" }, /tenant/],
    [{ oidcIssuer: "https://accounts.google.com", autoCreateUsers: true }, /allowedEmailDomains/],
    [{ oidcIssuer: "https://accounts.google.com/", autoCreateUsers: true }, /allowedEmailDomains/],
  ])("with %j is rejected", async (change, message) => {
    expect(await messageOf(put(change))).toMatch(message);
    expect(await instance.sso.configuration()).toMatchObject({ updatedAt: null });
  });

  test.each<object>([
    { oidcIssuer: "https://login.microsoftonline.com/11111111-2222-4333-8444-555555555555/v2.0" },
    { oidcIssuer: "https://accounts.google.com", autoCreateUsers: true, allowedEmailDomains: ["acme.example"] },
    { oidcIssuer: "https://accounts.google.com", autoCreateUsers: false },
  ])("with %j is accepted", async (change) => {
    expect(await messageOf(put(change))).toBe("none");
  });
});

describe("a client secret", () => {
  test("is sent to the issuer for which it was entered, and to no other", async () => {
    await deployment.configure(instance);
    const elsewhere = { isEnabled: false, oidcIssuer: "https://login.elsewhere.example" };
    expect(await messageOf(put(elsewhere))).toContain("oidcClientSecret: is needed again");
    expect(await messageOf(put({ ...elsewhere, oidcClientSecret: null }))).toBe("none");
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretSet: false });
  });

  test("does not return with the issuer for which it was entered", async () => {
    await deployment.configure(instance);
    await put({ isEnabled: false, oidcIssuer: null });
    await put({ oidcIssuer: deployments.cloud.oidc.issuer });
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretSet: false });
  });

  test("is tested before it is saved", async () => {
    const wrong = deployment.configure(instance, { oidcClientSecret: "a wrong secret of the client" });
    expect(await messageOf(wrong)).toContain("oidcClientSecret: does not work");
    expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
    expect(JSON.stringify(deployment.events)).not.toContain("a wrong secret");
  });

  test("that was saved is tested before it is used, and with another client", async () => {
    const wrong = { isEnabled: false, oidcClientSecret: "a wrong secret of the client" };
    expect(await messageOf(deployment.configure(instance, wrong))).toBe("none");
    expect(await messageOf(put({ isEnabled: true }))).toContain("oidcClientSecret: does not work: It does not know");
    await deployment.configure(instance);
    expect(await messageOf(put({ oidcClientId: "another" }))).toContain("does not work: It does not know this client");
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientId: deployments.cloud.oidc.clientId });
    // Control: neither is tested again if the client does not change.
    deployments.cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    expect(
      await messageOf(deployment.start().sso.configure({ defaultRole: null }, undefined, ADMINISTRATOR, ORIGIN)),
    ).toBe("none");
    const fresh = deployment.start();
    const inUse = fresh.sso.configure({ oidcClientId: "another" }, undefined, ADMINISTRATOR, ORIGIN);
    await expect(inUse).rejects.toMatchObject({ name: "CloudFailure" });
    await expect(fresh.sso.test({}, ADMINISTRATOR, ORIGIN)).rejects.toMatchObject({ name: "CloudFailure" });
  });

  test("that is replaced is deleted a day later; the one in use stays", async () => {
    const events = () => deployment.events.filter(({ type }) => type === "sso.secretRemoved");
    await deployment.configure(instance);
    await deployment.configure(instance);
    await instance.sso.cleanUp(system);
    expect(events()).toHaveLength(0);
    deployment.pass(25 * HOUR);
    await other.sso.cleanUp(system);
    expect(events().map(({ outcome, target }) => [outcome, target?.type])).toEqual([
      ["intent", "sso"],
      ["success", "sso"],
    ]);
    const removed = secrets().at(-1) as string;
    expect(deployments.cloud.control.secretValue("kv-lifecycle-service", removed)).toBeUndefined();
    await other.sso.cleanUp(system);
    expect(events()).toHaveLength(2);
    // Control: the secret in use.
    const { checks } = await other.sso.test({}, ADMINISTRATOR, ORIGIN);
    expect(checks.at(-1)).toMatchObject({ name: "client", passed: true });
  });

  test("whose configuration was not saved is deleted a day later", async () => {
    const proxy = await startTableProxy(deployment.connectionString);
    try {
      const broken = deployment.start({ connectionString: proxy.connectionString });
      proxy.fail(["UpdateConditionNotSatisfied"], ({ path }) => path === "$batch");
      expect(await problemOf(deployment.configure(broken))).toBe("conflict");
      expect(deployment.events.at(-1)).toMatchObject({ type: "sso.configured", outcome: "refused" });
      expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
      deployment.pass(25 * HOUR);
      await instance.sso.cleanUp(system);
      expect(deployment.events.at(-1)).toMatchObject({ type: "sso.secretRemoved", outcome: "success" });
    } finally {
      await proxy.stop();
    }
  });

  test("that the key vault does not accept leaves everything unchanged", async () => {
    deployments.cloud.control.addFault({ match: { operation: "keyvault.setSecret" }, action: { kind: "deny" } });
    expect(await problemOf(deployment.configure(instance))).toBe("unavailable");
    expect(await instance.sso.configuration()).toMatchObject({ isEnabled: false, oidcClientSecretSet: false });
  });

  test("that the key vault does not return ends a sign-in on a clear page", async () => {
    await deployment.configure(instance, { autoCreateUsers: true });
    deployments.cloud.control.addFault({ match: { operation: "keyvault.getSecret" }, action: { kind: "deny" } });
    expect(await problemOf(signIn(other, "uma"))).toBe("unavailable");
    expect(deployment.refusals().at(-1)).toContain("secretUnreadable");
    deployments.cloud.control.clearFaults();
    expect(await problemOf(signIn(other, "uma"))).toBe("none");
  });

  test("causes an alert before it expires, if its expiry date is known", async () => {
    const soon = async (at = instance) => {
      const found = [];
      for await (const one of at.sso.expiring(new Date(Date.now() + 30 * 24 * HOUR))) found.push(one);
      return found;
    };
    const expiresOn = new Date(Date.now() + 20 * 24 * HOUR).toISOString();
    await deployment.configure(instance, { oidcClientSecretExpiresOn: expiresOn });
    expect(await soon(other)).toMatchObject([{ expiresAt: expiresOn, name: deployments.cloud.oidc.clientId }]);
    expect(await soon(deployment.start({ tier: "core" }))).toEqual([]);
    await put({ oidcClientSecretExpiresOn: new Date(Date.now() + 40 * 24 * HOUR).toISOString() });
    expect(await soon()).toEqual([]);
    await put({ oidcClientSecretExpiresOn: expiresOn });
    await deployment.configure(instance);
    expect(await soon()).toEqual([]);
    expect(await instance.sso.configuration()).toMatchObject({ oidcClientSecretExpiresOn: null });
  });

  test("has a name that no other secret of the service has", () => {
    expect([SSO_SECRETS.namePrefix, PROVIDER_SECRETS.namePrefix]).toEqual(["sso", "sync"]);
  });

  test("is not sent elsewhere if someone changes the row: each secret is bound to one issuer or use", async () => {
    const rowNow = async () => (await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY))!;
    await put({ oidcIssuer: "https://other.example", oidcClientSecret: "for another issuer" });
    const { oidcClientSecret: foreign } = await rowNow();
    await deployment.configure(instance, { autoCreateUsers: true, samlSignRequests: true });
    const { oidcClientSecret: own, samlServiceKey: key } = await rowNow();
    for (const planted of [foreign, key]) {
      await instance.tables.replace(Configuration, { ...(await rowNow()), oidcClientSecret: planted! });
      expect(await problemOf(signIn(instance, "uma"))).toBe("unavailable");
      expect(deployment.refusals().at(-1)).toBe("secretUnreadable notFound");
    }
    await instance.tables.replace(Configuration, { ...(await rowNow()), oidcClientSecret: own! });
    expect(await problemOf(signIn(instance, "uma"))).toBe("none");
  });
});

describe("a test", () => {
  test("of a working configuration succeeds, and changes nothing", async () => {
    const { isEnabled: _, ...settings } = deployment.settings;
    const result = await instance.sso.test(settings as never, ADMINISTRATOR, ORIGIN);
    expect(result).toMatchObject({ success: true, providerType: "oidc" });
    expect(result.checks.map(({ name }) => name)).toEqual(["document", "keys", "client"]);
    expect(await instance.sso.configuration()).toMatchObject({ updatedAt: null });
  });

  test("names the problem", async () => {
    const failing = async (given: object) => {
      const { success, checks } = await instance.sso.test(given, ADMINISTRATOR, ORIGIN);
      expect(success).toBe(false);
      return `${checks.at(-1)!.name}: ${checks.at(-1)!.detail}`;
    };
    const { issuer, clientId } = deployments.cloud.oidc;
    const client = { oidcIssuer: issuer, oidcClientId: clientId };
    expect(await failing({ ...client, oidcClientSecret: "wrong" })).toContain("client: It does not know");
    expect(await failing({ oidcIssuer: issuer, oidcClientId: "unknown", oidcClientSecret: "x" })).toContain(
      "client: It does not know",
    );
    expect(await failing({ ...client, oidcIssuer: `${issuer}/other` })).toContain("document: ");
    for (const [mode, text] of [
      ["wrongDiscoveryIssuer", "another issuer's"],
      ["templateIssuer", "another issuer's"],
      ["largeDiscovery", "256 KiB"],
      ["redirectingDiscovery", "redirect"],
      ["metadataAddressKeys", "jwks_uri"],
      ["metadataAddressToken", "token_endpoint"],
    ] as const) {
      deployments.cloud.control.setOidcMode(mode);
      expect(await failing(client)).toContain(text);
      expect(await messageOf(deployment.configure(instance))).toContain("oidcIssuer: does not work");
    }
  });

  test("sends all parameters of a code request: some providers check them before the secret", async () => {
    const asked: URLSearchParams[] = [];
    const server = createServer((request, response) => {
      const issuer = `http://${request.headers.host}`;
      const addresses = { authorization_endpoint: `${issuer}/in`, token_endpoint: `${issuer}/token` };
      const answers: Record<string, object> = {
        "/keys": { keys: [{ kty: "RSA" }] },
        "/token": { error: "invalid_client" },
      };
      const answer = answers[request.url!] ?? { issuer, ...addresses, jwks_uri: `${issuer}/keys` };
      void text(request).then((form) => {
        if (request.url === "/token") asked.push(new URLSearchParams(form));
        response.writeHead("error" in answer ? 400 : 200, { "content-type": "application/json" });
        response.end(JSON.stringify(answer));
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
    expect(asked.map((form) => [...form].flatMap(([name, value]) => (value === "" ? [] : [name])).sort())).toEqual([
      ["code", "code_verifier", "grant_type", "redirect_uri"],
    ]);
  });

  test("uses the saved secret for the saved issuer and client only", async () => {
    await deployment.configure(instance);
    const clientOf = async (given: object) => (await instance.sso.test(given, ADMINISTRATOR, ORIGIN)).checks.at(-1);
    expect(await clientOf({})).toMatchObject({ name: "client", passed: true });
    const reads = () => deployments.cloud.control.counts()["keyvault.getSecret"] ?? 0;
    const fresh = deployment.start();
    const before = reads();
    for (const given of [{ oidcIssuer: `${deployments.cloud.oidc.issuer}/` }, { oidcClientId: "another" }]) {
      await fresh.sso.test(given, ADMINISTRATOR, ORIGIN);
    }
    expect(reads()).toBe(before);
  });
});

describe("passwords", () => {
  const password = () => problemOf(instance.access.signIn(MARIA, HERE));
  const administrator = (at = instance) => problemOf(at.access.signIn(ADMIN, HERE));
  const MARIA = { username: "maria", password: "maria's own password" };
  const mapping = {
    autoCreateUsers: true,
    rolesClaim: "roles",
    roleMapping: { "Lifecycle.Admin": "admin" },
  } as const;

  /** Single sign-on with which an administrator has signed in, and passwords turned off. */
  async function switchOff(): Promise<void> {
    await instance.access.users.create({ ...MARIA, role: "user" }, HERE);
    expect(await administrator()).toBe("none");
    await deployment.configure(instance, mapping);
    await signIn(instance, "ada");
    await put({ ssoOnlyMode: true });
  }

  test("are turned off for all but the bootstrap administrator, whose use is recorded", async () => {
    await switchOff();
    expect(await other.sso.status()).toMatchObject({ ssoOnlyMode: true });
    expect(await password()).toBe("ssoOnly");
    expect(await administrator(other)).toBe("none");
    expect(deployment.events.slice(-2)).toMatchObject([
      { type: "access.breakGlass", outcome: "success", target: { id: "admin" } },
      { type: "user.signedIn" },
    ]);
    await put({ ssoOnlyMode: false });
    expect(await password()).toBe("none");
    await administrator();
    expect(deployment.events.filter(({ type }) => type === "access.breakGlass")).toHaveLength(1);
  });

  test("stay turned on until an administrator has signed in with this configuration", async () => {
    expect(await administrator()).toBe("none");
    expect(await messageOf(put({ ssoOnlyMode: true }))).toContain("not turned on");
    await deployment.configure(instance, mapping);
    expect(await messageOf(put({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "uma");
    expect(await messageOf(put({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "ada");
    await put({ defaultRole: null });
    expect(await messageOf(put({ ssoOnlyMode: true }))).toContain("must first sign in");
    await signIn(instance, "ada");
    await put({ loginButtonText: "decides nothing" });
    expect(await messageOf(put({ ssoOnlyMode: true }))).toBe("none");
  });

  test.each<object>([
    { roleMapping: { "Lifecycle.Admin": "user" } },
    { defaultRole: null },
    { allowedEmailDomains: ["acme.example"] },
    { autoCreateUsers: false },
    { oidcScopes: ["openid"] },
    { isEnabled: false },
  ])("are turned on again with %j, which is rejected together with ssoOnlyMode", async (change) => {
    await switchOff();
    expect(await problemOf(put({ ...change, ssoOnlyMode: true }))).toBe("conflict");
    expect(await password()).toBe("ssoOnly");
    await put(change);
    expect(await password()).toBe("none");
  });

  test("are turned on again with a new client secret", async () => {
    await switchOff();
    const { clientSecret } = deployments.cloud.oidc;
    expect(await problemOf(put({ oidcClientSecret: clientSecret, ssoOnlyMode: true }))).toBe("conflict");
    await put({ oidcClientSecret: clientSecret });
    expect(await password()).toBe("none");
  });

  test("stay turned off while the provider is down, and the bootstrap administrator can still sign in", async () => {
    await switchOff();
    deployments.cloud.control.addFault({ match: { operation: "oidc.*" }, action: { kind: "reset" } });
    expect(await problemOf(signIn(deployment.start(), "ada"))).toBe("unavailable");
    expect(await password()).toBe("ssoOnly");
    expect(await administrator()).toBe("none");
    // It can also turn them on again without the provider.
    await put({ ssoOnlyMode: false });
    expect(await password()).toBe("none");
  });

  test("work without a license, and are turned off again with one", async () => {
    await switchOff();
    const lapsed = deployment.start({ tier: "core" });
    expect(await lapsed.sso.status()).toMatchObject({ enabled: false, ssoOnlyMode: false });
    expect(await problemOf(lapsed.access.signIn(MARIA, HERE))).toBe("none");
    expect(await password()).toBe("ssoOnly");
  });

  test("that are turned off protect the bootstrap administrator from being deleted, disabled or demoted", async () => {
    await switchOff();
    await instance.access.users.create({ username: "second", password: "another password", role: "admin" }, HERE);
    const { users } = instance.access;
    for (const change of [{ state: "disabled" }, { role: "user" }] as const) {
      expect(await problemOf(users.update("admin", change, undefined, ADMINISTRATOR))).toBe("conflict");
    }
    expect(await problemOf(users.remove("admin", undefined, ADMINISTRATOR))).toBe("conflict");
    expect(await problemOf(users.update("admin", { email: "a@acme.example" }, undefined, ADMINISTRATOR))).toBe("none");
    expect(await problemOf(users.remove("second", undefined, ADMINISTRATOR))).toBe("none");
    await put({ ssoOnlyMode: false });
    await instance.access.users.create({ username: "third", password: "another password", role: "admin" }, HERE);
    expect(await problemOf(users.remove("admin", undefined, ADMINISTRATOR))).toBe("none");
  });

  test("work if the bootstrap administrator is deleted, disabled or no longer an administrator", async () => {
    await switchOff();
    const row = (await instance.tables.get(User, USERS_PARTITION, "admin"))!;
    for (const change of [{ state: "disabled" }, { role: "user" }, { passwordHash: undefined }] as const) {
      await instance.tables.put(User, USERS_PARTITION, "admin", { ...row, ...change });
      expect(await password()).toBe("none");
    }
    await instance.tables.put(User, USERS_PARTITION, "admin", row);
    expect(await password()).toBe("ssoOnly");
    await instance.tables.remove(User, USERS_PARTITION, "admin");
    expect(await password()).toBe("none");
    const unnamed = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: undefined } });
    expect(await problemOf(unnamed.access.signIn(MARIA, HERE))).toBe("none");
  });

  test("can't be turned off without a bootstrap administrator", async () => {
    const unnamed = deployment.start({ config: { BOOTSTRAP_ADMIN_USERNAME: undefined } });
    await deployment.configure(unnamed, mapping);
    await signIn(unnamed, "ada");
    expect(await messageOf(put({ ssoOnlyMode: true }, unnamed))).toContain("BOOTSTRAP_ADMIN_USERNAME");
  });
});
