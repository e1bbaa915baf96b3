import type { OidcModeName } from "simulated-cloud/idp/oidc-modes.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { CONFIGURATION_KEY, Configuration, SSO } from "../../shared/sso/configuration.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import {
  ADMINISTRATOR,
  arrivalOf,
  browse,
  complete,
  type Deployment,
  HERE,
  type Instance,
  ORIGIN,
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
beforeEach(async () => {
  deployment = deployments.next();
  [instance, other] = [deployment.start(), deployment.start()];
  await deployment.configure(instance, { autoCreateUsers: true });
});
afterEach(() => {
  deployments.cloud.control.setOidcMode("correct");
  deployments.cloud.control.clearFaults();
});

const MINUTES = 60_000;

describe("a sign-in", () => {
  test("creates a user and a session that is valid on every instance, and redirects to the requested page", async () => {
    const arrival = await browse(instance, "uma", "/docs?a=b#c");
    const { location, cookies } = await complete(other, arrival);
    expect(location).toBe("/docs?a=b#c");
    expect(cookies).toMatchObject([
      { name: "__Host-session", secure: true, httpOnly: true, sameSite: "Lax", path: "/" },
      { name: "__Host-sso", value: "", maxAge: 0, secure: true, path: "/" },
    ]);
    expect(await whoIs(instance, cookies[0]!.value)).toMatchObject({ username: "uma", role: "user" });
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 1 });
    const entered = deployment.events.filter(({ type }) => type !== "user.bootstrapped");
    expect(entered.map(({ type, outcome }) => `${type} ${outcome}`).slice(-3)).toEqual([
      "user.created intent",
      "user.created success",
      "user.signedIn success",
    ]);
    const uma = deployments.cloud.control.people().find(({ id }) => id === "uma");
    const details = { by: "sso", issuer: deployments.cloud.oidc.issuer, subject: uma!.objectId };
    expect(entered.at(-2)).toMatchObject({
      caller: { actor: "uma" },
      target: { type: "user", id: "uma" },
      details,
      after: { username: "uma", role: "user", createdBy: "sso" },
    });
  });

  test("sends state, nonce and PKCE to the provider, but not the return URL", async () => {
    const { location, cookies } = await instance.sso.begin("/docs", ORIGIN, HERE);
    const address = new URL(location);
    const asked = Object.fromEntries(address.searchParams);
    expect(asked).toMatchObject({
      response_type: "code",
      redirect_uri: `${ORIGIN}/auth/sso/callback`,
      scope: "openid profile email",
      code_challenge_method: "S256",
    });
    for (const name of ["state", "nonce", "code_challenge"]) expect(asked[name]).toMatch(/^[\w-]{22,43}$/);
    expect(location).not.toContain("docs");
    expect(cookies).toMatchObject([{ name: "__Host-sso", sameSite: "Lax", secure: true, httpOnly: true, maxAge: 600 }]);
    expect(location).not.toContain(cookies[0]!.value);
  });

  test("keeps the user at the next sign-in", async () => {
    await signIn(instance, "uma");
    await signIn(other, "uma");
    expect(deployment.events.filter(({ type }) => type === "user.created")).toHaveLength(2);
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 2 });
  });

  test("works after the provider changed its keys", async () => {
    await signIn(instance, "uma");
    deployments.cloud.control.rollOidcKeys();
    expect(await whoIs(instance, await signIn(instance, "uma"))).toMatchObject({ username: "uma" });
  });

  test("reads the client's secret at most once in five minutes", async () => {
    const reads = () => deployments.cloud.control.counts()["keyvault.getSecret"] ?? 0;
    const before = reads();
    for (let time = 0; time < 3; time++) await signIn(instance, "uma");
    expect(reads() - before).toBe(1);
    deployment.pass(5 * MINUTES + 1);
    // The provider's clock has not moved, so its tokens have not expired for the service.
    await signIn(instance, "uma");
    expect(reads() - before).toBe(2);
  });

  test("has the provider's document read at most once in ten minutes", async () => {
    const reads = () => deployments.cloud.control.counts()["oidc.discovery"] ?? 0;
    const before = reads();
    const begin = () => other.sso.begin("/", ORIGIN, HERE);
    for (let time = 0; time < 3; time++) await begin();
    deployment.pass(9.5 * MINUTES);
    await begin();
    expect(reads() - before).toBe(1);
    deployment.pass(0.5 * MINUTES + 1);
    await begin();
    expect(reads() - before).toBe(2);
  });
});

describe("a response of the provider", () => {
  test.each<[OidcModeName, string]>([
    ["wrongIssuer", "badResponse"],
    ["wrongAudience", "badResponse"],
    ["wrongAuthorizedParty", "badResponse"],
    ["otherAuthorizedParty", "badResponse azp"],
    ["wrongNonce", "badResponse"],
    ["missingNonce", "badResponse"],
    ["missingSubject", "badResponse"],
    ["expired", "badResponse"],
    ["missingExpiry", "badResponse"],
    ["notYetValid", "badResponse"],
    ["issuedLater", "badResponse iat"],
    ["algNone", "badResponse"],
    ["clientSecretHmac", "badResponse"],
    ["publicKeyHmac", "badResponse"],
    ["foreignKey", "badResponse"],
    ["wrongIssuerParameter", "badResponse"],
    ["missingIssuerParameter", "badResponse"],
  ])("with the mistake %s is rejected", async (mode, reason) => {
    deployments.cloud.control.setOidcMode(mode);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInFailed");
    expect(deployment.refusals().at(-1)).toContain(reason);
    expect(deployment.events.some(({ type }) => type === "user.created")).toBe(false);
    // Control: the same without the mistake.
    deployments.cloud.control.setOidcMode("correct");
    expect(await whoIs(instance, await signIn(instance, "uma"))).toBeDefined();
  });

  test("whose UserInfo is of another person is rejected", async () => {
    await deployment.configure(instance, { rolesClaim: "only-in-userinfo", roleMapping: { a: "user" } });
    expect(await whoIs(instance, await signIn(instance, "uma"))).toBeDefined();
    deployments.cloud.control.setOidcMode("wrongUserinfoSubject");
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInFailed");
  });

  test("with an unknown state is rejected", async () => {
    deployments.cloud.control.setOidcMode("wrongState");
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInStale");
    expect(deployment.refusals()).toEqual(["unknownRequest"]);
  });

  test("with an error is shown in the service's own words only", async () => {
    const arrival = await browse(instance, "");
    expect(arrival.parameters.get("error")).toBe("access_denied");
    const refused = await complete(instance, arrival).catch((error: Error) => error);
    expect(refused).toMatchObject({ code: "signInFailed" });
    expect(String(refused)).not.toMatch(/Nobody|access_denied|</);
    expect(deployment.refusals()).toEqual(["providerRefused access_denied"]);
    expect(JSON.stringify(deployment.events)).not.toContain("Nobody");
  });

  test("whose code was issued for another browser's PKCE is rejected by the provider", async () => {
    const [mine, theirs] = [await browse(instance, "ada"), await browse(instance, "uma")];
    const mixed = new URLSearchParams(theirs.parameters);
    mixed.set("code", mine.parameters.get("code")!);
    expect(await problemOf(complete(instance, { ...theirs, parameters: mixed }))).toBe("signInFailed");
    expect(deployment.refusals()).toEqual(["badResponse invalid_grant"]);
  });

  test("that does not arrive gives a clear error, and can be retried", async () => {
    const arrival = await browse(instance, "uma");
    deployments.cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "reset" } });
    expect(await problemOf(complete(instance, arrival))).toBe("unavailable");
    deployments.cloud.control.clearFaults();
    deployments.cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "fail", status: 500 } });
    expect(await problemOf(signIn(instance, "uma"))).toBe("unavailable");
    expect(deployment.refusals()).toEqual(["providerUnreachable request", "providerUnreachable status"]);
    deployments.cloud.control.clearFaults();
    deployments.cloud.control.addFault({ match: { operation: "oidc.discovery" }, action: { kind: "reset" } });
    expect(await problemOf(deployment.start().sso.begin("/", ORIGIN, HERE))).toBe("unavailable");
  });

  test.each(["oidc.discovery", "oidc.token", "oidc.keys"])(
    "with status 101 from %s gives a clear error",
    { timeout: 60_000 },
    async (operation) => {
      const arrival = await browse(instance, "uma");
      deployments.cloud.control.addFault({ match: { operation }, action: { kind: "switchProtocols" } });
      expect(await problemOf(complete(deployment.start(), arrival))).toBe("unavailable");
      const at = operation === "oidc.discovery" ? "discovery" : "request";
      expect(deployment.refusals()).toEqual([`providerUnreachable ${at}`]);
    },
  );

  test("to a client with an outdated secret says how to fix it", async () => {
    await deployment.configure(instance, { isEnabled: false, oidcClientSecret: "the secret of last year" });
    const row = (await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY))!;
    await instance.tables.replace(Configuration, { ...row, isEnabled: true });
    await expect(signIn(deployment.start(), "uma")).rejects.toThrow("its client secret may have expired");
    expect(deployment.refusals()).toEqual(["clientRefused invalid_client"]);
  });
});

describe("a sign-in request", () => {
  test("is completed once, also by two instances at once", async () => {
    const arrival = await browse(instance, "uma");
    const results = await Promise.all(
      [instance, other, instance, other].map((one) => problemOf(complete(one, arrival))),
    );
    expect(results.sort()).toEqual(["none", "signInStale", "signInStale", "signInStale"]);
    expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
    expect(deployment.refusals().every((reason) => reason === "used")).toBe(true);
  });

  test("is completed only by the browser that started it", async () => {
    const [mine, theirs] = [await browse(instance, "ada"), await browse(instance, "uma")];
    expect(await problemOf(complete(instance, { ...mine, cookie: theirs.cookie }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...mine, cookie: undefined }))).toBe("signInStale");
    expect(deployment.refusals()).toEqual(["otherBrowser", "otherBrowser"]);
    expect(await problemOf(complete(instance, mine))).toBe("none");
  });

  test("expires after ten minutes, and is deleted by the next clean-up", async () => {
    const arrival = await browse(instance, "uma");
    const [early, late] = [await browse(instance, "uma"), arrival];
    deployment.pass(10 * MINUTES - 5000);
    // The service's clock is ten minutes behind the provider's tokens here: only the request is tested.
    expect(await problemOf(complete(instance, early))).not.toBe("signInStale");
    deployment.pass(10_000);
    expect(await problemOf(complete(instance, late))).toBe("signInStale");
    expect(deployment.refusals().at(-1)).toBe("expired");
    await instance.sso.cleanUp({ actor: "system", requestId: "test" });
    expect(await problemOf(complete(instance, late))).toBe("signInStale");
    expect(deployment.refusals().at(-1)).toBe("unknownRequest");
  });

  test("expires with the configuration under which it was started", async () => {
    const arrival = await browse(instance, "uma");
    await deployment.configure(instance, { autoCreateUsers: false });
    expect(await problemOf(complete(other, arrival))).toBe("signInStale");
    expect(deployment.refusals()).toEqual(["changedMeanwhile"]);
  });

  test("without a state, or with an invalid one, is unknown", async () => {
    for (const requestId of [undefined, "", "x", "A".repeat(22), "../..", "|configuration"]) {
      const arrival = {
        ...arrivalOf({ location: "", cookies: [{ name: "", value: "x" }] }, new URL(ORIGIN)),
        requestId,
      };
      expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
    }
  });

  test("stores no secret in its row", async () => {
    const { location, cookies } = await instance.sso.begin("/docs", ORIGIN, HERE);
    const asked = new URL(location).searchParams;
    const rows: unknown[] = [];
    for await (const page of instance.tables.pages(
      {
        table: "Sso",
        schema: (await import("zod")).looseObject({}) as never,
        members: [],
        uniqueWrites: false,
        signed: false,
      },
      { partitionKey: "requests" },
    )) {
      rows.push(...page);
    }
    expect(rows).toHaveLength(1);
    for (const secret of [cookies[0]!.value, asked.get("nonce")!]) expect(JSON.stringify(rows)).not.toContain(secret);
  });
});

describe("the page after a sign-in", () => {
  test.each([
    "//evil.example",
    "/\\evil.example",
    "https://evil.example/",
    "/a\\b",
    "/\t/evil.example",
    "/\n/evil.example",
    "javascript:alert(1)",
    "docs",
    "",
    `/${"x".repeat(2048)}`,
  ])("is never %j", async (returnUrl) => {
    expect(await problemOf(instance.sso.begin(returnUrl, ORIGIN, HERE))).toBe("invalidRequest");
  });

  test.each(["/", "/docs?x=https://evil.example#y", "/a//b"])("may be %j", async (returnUrl) => {
    expect(await problemOf(instance.sso.begin(returnUrl, ORIGIN, HERE))).toBe("none");
  });
});

test("no sign-in starts while it is turned off, without a public address, or after it is deleted", async () => {
  expect(await problemOf(instance.sso.begin("/", undefined, HERE))).toBe("conflict");
  await instance.sso.disable(undefined, ADMINISTRATOR);
  expect(await problemOf(other.sso.begin("/", ORIGIN, HERE))).toBe("conflict");
  expect(await problemOf(deployments.next().start().sso.begin("/", ORIGIN, HERE))).toBe("conflict");
});

test("a browser that another site sends to the callback is not signed in as someone else", async () => {
  // The attacker starts a sign-in as themselves and makes the victim open the callback.
  const redirection = await instance.sso.begin("/", ORIGIN, HERE);
  const back = new URL(await new ProviderVisitor().choose(redirection.location, "uma"));
  const victim = await instance.sso.begin("/", ORIGIN, HERE);
  expect(await problemOf(complete(instance, arrivalOf(victim, back)))).toBe("signInStale");
});
