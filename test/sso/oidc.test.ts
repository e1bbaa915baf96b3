import type { OidcModeName } from "simulated-cloud/idp/oidc-modes.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { CONFIGURATION_KEY, Configuration, SSO } from "../../shared/sso/configuration.ts";
import { ProviderVisitor } from "../support/provider-visitor.ts";
import {
  ADMINISTRATOR,
  arrivalOf,
  authenticateSession,
  browse,
  CALLER,
  complete,
  type Deployment,
  type Instance,
  ORIGIN,
  problemOf,
  signIn,
  startDeployments,
} from "./support.ts";

// Tests of sign-ins with OpenID Connect. `browse` starts a sign-in and lets a person choose themselves at the simulated
// provider; `complete` handles the provider's callback.

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
  await deployment.configure(instance, { autoCreateUsers: true });
});
afterEach(() => {
  deployments.cloud.control.setOidcMode("correct");
  deployments.cloud.control.clearFaults();
});

describe("a sign-in", () => {
  test("creates a user and a session, and redirects to the requested page", async () => {
    const arrival = await browse(instance, "uma", "/docs?a=b#c");
    const { location, cookies } = await complete(otherInstance, arrival);
    expect(location).toBe("/docs?a=b#c");
    expect(cookies).toMatchObject([
      { name: "__Host-session", secure: true, httpOnly: true, sameSite: "Lax", path: "/" },
      { name: "__Host-sso", value: "", maxAge: 0, secure: true, path: "/" },
    ]);
    expect(await authenticateSession(instance, cookies[0]!.value)).toMatchObject({ username: "uma", role: "user" });
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 1 });
    const auditEvents = deployment.events.filter(({ type }) => type !== "user.bootstrapped");
    expect(auditEvents.map(({ type, outcome }) => `${type} ${outcome}`).slice(-3)).toEqual([
      "user.created intent",
      "user.created success",
      "user.signedIn success",
    ]);
    const uma = deployments.cloud.control.people().find(({ id }) => id === "uma");
    const details = { by: "sso", issuer: deployments.cloud.oidc.issuer, subject: uma!.objectId };
    expect(auditEvents.at(-2)).toMatchObject({
      caller: { actor: "uma" },
      target: { type: "user", id: "uma" },
      details,
      after: { username: "uma", role: "user", createdBy: "sso" },
    });
  });

  test("sends state, nonce and PKCE to the provider, but not the return URL", async () => {
    const { location, cookies } = await instance.sso.begin("/docs", ORIGIN, CALLER);
    const address = new URL(location);
    const parameters = Object.fromEntries(address.searchParams);
    expect(parameters).toMatchObject({
      response_type: "code",
      redirect_uri: `${ORIGIN}/auth/sso/callback`,
      scope: "openid profile email",
      code_challenge_method: "S256",
    });
    for (const name of ["state", "nonce", "code_challenge"]) expect(parameters[name]).toMatch(/^[\w-]{22,43}$/);
    expect(location).not.toContain("docs");
    expect(cookies).toMatchObject([{ name: "__Host-sso", sameSite: "Lax", secure: true, httpOnly: true, maxAge: 600 }]);
    expect(location).not.toContain(cookies[0]!.value);
  });

  test("signs in the same user at the next sign-in", async () => {
    await signIn(instance, "uma");
    await signIn(otherInstance, "uma");
    // The intent and the outcome of one creation.
    expect(deployment.events.filter(({ type }) => type === "user.created")).toHaveLength(2);
    expect(await instance.sso.configuration()).toMatchObject({ totalSsoLogins: 2 });
  });

  test("works with an ID token that is signed with Ed25519", async () => {
    deployments.cloud.control.setOidcMode("edDsa");
    // A new instance has not cached the discovery document, which lists the algorithms.
    const freshInstance = deployment.start();
    expect(await authenticateSession(instance, await signIn(freshInstance, "uma"))).toMatchObject({ username: "uma" });
  });

  test("works after the provider changed its keys", async () => {
    await signIn(instance, "uma");
    deployments.cloud.control.rollOidcKeys();
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toMatchObject({ username: "uma" });
  });

  test("reads the client's secret at most once in five minutes", async () => {
    const reads = () => deployments.cloud.control.counts()["keyvault.getSecret"] ?? 0;
    const readsBefore = reads();
    for (let time = 0; time < 3; time++) await signIn(instance, "uma");
    expect(reads() - readsBefore).toBe(1);
    deployment.pass(5 * MINUTE_MS + 1);
    // Only the service's clock moved, by less than the tolerance for the provider's tokens.
    await signIn(instance, "uma");
    expect(reads() - readsBefore).toBe(2);
  });

  test("reads the provider's discovery document at most once in ten minutes", async () => {
    const reads = () => deployments.cloud.control.counts()["oidc.discovery"] ?? 0;
    const readsBefore = reads();
    const startSignIn = () => otherInstance.sso.begin("/", ORIGIN, CALLER);
    for (let time = 0; time < 3; time++) await startSignIn();
    deployment.pass(9.5 * MINUTE_MS);
    await startSignIn();
    expect(reads() - readsBefore).toBe(1);
    deployment.pass(0.5 * MINUTE_MS + 1);
    await startSignIn();
    expect(reads() - readsBefore).toBe(2);
  });
});

describe("a sign-in for a step-up", () => {
  /** Signs in again. @param change - Changes the address of the provider, as the user of the browser can. */
  async function confirmedAt(change: (address: URL) => void = () => {}): Promise<Date | undefined> {
    const redirection = await instance.sso.begin("/", ORIGIN, CALLER, true);
    const address = new URL(redirection.location);
    expect([address.searchParams.get("prompt"), address.searchParams.get("max_age")]).toEqual(["login", "0"]);
    change(address);
    const callbackUrl = new URL(await new ProviderVisitor().choose(address.href, "uma"));
    const { cookies } = await complete(otherInstance, arrivalOf(redirection, callbackUrl));
    return (await authenticateSession(instance, cookies[0]!.value))?.confirmedAt;
  }

  test("confirms the session at the time that the provider reports", async () => {
    const confirmed = (await confirmedAt())!;
    const ageMs = Date.now() - confirmed.getTime();
    expect(ageMs).toBeGreaterThanOrEqual(0);
    expect(ageMs).toBeLessThan(MINUTE_MS);
  });

  test("does not confirm the session if the browser removed the request to authenticate again", async () => {
    const removed = await confirmedAt((address) => {
      for (const name of ["prompt", "max_age"]) address.searchParams.delete(name);
    });
    expect(removed).toBeUndefined();
  });

  test("is needed, because another sign-in confirms nothing", async () => {
    const session = await authenticateSession(instance, await signIn(instance, "uma"));
    expect(session).toMatchObject({ username: "uma" });
    expect(session?.confirmedAt).toBeUndefined();
  });
});

describe("a response of the provider", () => {
  test.each<[OidcModeName, string]>([
    ["wrongIssuer", "badResponse"],
    ["wrongAudience", "badResponse"],
    ["wrongAuthorizedParty", "badResponse"],
    ["otherAuthorizedParty", "badResponse azp"],
    ["wrongAccessTokenHash", "badResponse at_hash"],
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
  ])("with the defect %s is rejected", async (mode, reason) => {
    deployments.cloud.control.setOidcMode(mode);
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInFailed");
    expect(deployment.rejectionReasons().at(-1)).toContain(reason);
    expect(deployment.events.some(({ type }) => type === "user.created")).toBe(false);
    // The same sign-in without the defect succeeds.
    deployments.cloud.control.setOidcMode("correct");
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toBeDefined();
  });

  test("without the optional hash of the access token is accepted", async () => {
    deployments.cloud.control.setOidcMode("missingAccessTokenHash");
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toBeDefined();
  });

  test("is rejected if the UserInfo response describes another person", async () => {
    await deployment.configure(instance, { rolesClaim: "only-in-userinfo", roleMapping: { a: "user" } });
    expect(await authenticateSession(instance, await signIn(instance, "uma"))).toBeDefined();
    deployments.cloud.control.setOidcMode("wrongUserinfoSubject");
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInFailed");
  });

  test("with an unknown state is rejected", async () => {
    deployments.cloud.control.setOidcMode("wrongState");
    expect(await problemOf(signIn(instance, "uma"))).toBe("signInStale");
    expect(deployment.rejectionReasons()).toEqual(["unknownRequest"]);
  });

  test("with an error leads to a message without the provider's text", async () => {
    const arrival = await browse(instance, "");
    expect(arrival.parameters.get("error")).toBe("access_denied");
    const problem = await complete(instance, arrival).catch((error: Error) => error);
    expect(problem).toMatchObject({ code: "signInFailed" });
    expect(String(problem)).not.toMatch(/Nobody|access_denied|</);
    expect(deployment.rejectionReasons()).toEqual(["providerRefused access_denied"]);
    expect(JSON.stringify(deployment.events)).not.toContain("Nobody");
  });

  test("with a code that was issued to another sign-in is rejected", async () => {
    const [firstArrival, secondArrival] = [await browse(instance, "ada"), await browse(instance, "uma")];
    const mixedParameters = new URLSearchParams(secondArrival.parameters);
    mixedParameters.set("code", firstArrival.parameters.get("code")!);
    expect(await problemOf(complete(instance, { ...secondArrival, parameters: mixedParameters }))).toBe("signInFailed");
    expect(deployment.rejectionReasons()).toEqual(["badResponse invalid_grant"]);
  });

  test("that does not arrive causes the error `unavailable`", async () => {
    const arrival = await browse(instance, "uma");
    deployments.cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "reset" } });
    expect(await problemOf(complete(instance, arrival))).toBe("unavailable");
    deployments.cloud.control.clearFaults();
    deployments.cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "fail", status: 500 } });
    expect(await problemOf(signIn(instance, "uma"))).toBe("unavailable");
    expect(deployment.rejectionReasons()).toEqual(["providerUnreachable request", "providerUnreachable status"]);
    deployments.cloud.control.clearFaults();
    deployments.cloud.control.addFault({ match: { operation: "oidc.discovery" }, action: { kind: "reset" } });
    expect(await problemOf(deployment.start().sso.begin("/", ORIGIN, CALLER))).toBe("unavailable");
  });

  test.each(["oidc.discovery", "oidc.token", "oidc.keys"])(
    "with status 101 from %s causes the error `unavailable`",
    { timeout: 60_000 },
    async (operation) => {
      const arrival = await browse(instance, "uma");
      deployments.cloud.control.addFault({ match: { operation }, action: { kind: "switchProtocols" } });
      expect(await problemOf(complete(deployment.start(), arrival))).toBe("unavailable");
      const failedStep = operation === "oidc.discovery" ? "discovery" : "request";
      expect(deployment.rejectionReasons()).toEqual([`providerUnreachable ${failedStep}`]);
    },
  );

  test("that rejects the client secret causes an error that names the secret", async () => {
    await deployment.configure(instance, { isEnabled: false, oidcClientSecret: "the secret of last year" });
    const row = (await instance.tables.get(Configuration, SSO, CONFIGURATION_KEY))!;
    await instance.tables.replace(Configuration, { ...row, isEnabled: true });
    await expect(signIn(deployment.start(), "uma")).rejects.toThrow("its client secret may have expired");
    expect(deployment.rejectionReasons()).toEqual(["clientRefused invalid_client"]);
  });
});

describe("a sign-in request", () => {
  test("is completed once by four concurrent callbacks on two instances", async () => {
    const arrival = await browse(instance, "uma");
    const results = await Promise.all(
      [instance, otherInstance, instance, otherInstance].map((each) => problemOf(complete(each, arrival))),
    );
    expect(results.sort()).toEqual(["none", "signInStale", "signInStale", "signInStale"]);
    expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
    expect(deployment.rejectionReasons().every((reason) => reason === "used")).toBe(true);
  });

  test("is completed only by the browser that started it", async () => {
    const [firstArrival, secondArrival] = [await browse(instance, "ada"), await browse(instance, "uma")];
    expect(await problemOf(complete(instance, { ...firstArrival, cookie: secondArrival.cookie }))).toBe("signInStale");
    expect(await problemOf(complete(instance, { ...firstArrival, cookie: undefined }))).toBe("signInStale");
    expect(deployment.rejectionReasons()).toEqual(["otherBrowser", "otherBrowser"]);
    expect(await problemOf(complete(instance, firstArrival))).toBe("none");
  });

  test("expires after ten minutes", async () => {
    const unusedArrival = await browse(instance, "uma");
    const [early, late] = [await browse(instance, "uma"), unusedArrival];
    deployment.pass(10 * MINUTE_MS - 5 * SECOND_MS);
    // The provider's tokens have expired by the service's clock, so the sign-in fails, but not because the request is stale.
    expect(await problemOf(complete(instance, early))).not.toBe("signInStale");
    deployment.pass(10 * SECOND_MS);
    expect(await problemOf(complete(instance, late))).toBe("signInStale");
    expect(deployment.rejectionReasons().at(-1)).toBe("expired");
    await instance.sso.cleanUp({ actor: "system", requestId: "test" });
    expect(await problemOf(complete(instance, late))).toBe("signInStale");
    expect(deployment.rejectionReasons().at(-1)).toBe("unknownRequest");
  });

  test("expires when the configuration changes", async () => {
    const arrival = await browse(instance, "uma");
    await deployment.configure(instance, { autoCreateUsers: false });
    expect(await problemOf(complete(otherInstance, arrival))).toBe("signInStale");
    expect(deployment.rejectionReasons()).toEqual(["changedMeanwhile"]);
  });

  test("is not found without a state or with an invalid state", async () => {
    for (const requestId of [undefined, "", "x", "A".repeat(22), "../..", "|configuration"]) {
      const arrival = {
        ...arrivalOf({ location: "", cookies: [{ name: "", value: "x" }] }, new URL(ORIGIN)),
        requestId,
      };
      expect(await problemOf(complete(instance, arrival))).toBe("signInStale");
    }
  });

  test("stores no secret in its row", async () => {
    const { location, cookies } = await instance.sso.begin("/docs", ORIGIN, CALLER);
    const providerParameters = new URL(location).searchParams;
    const rows: unknown[] = [];
    for await (const page of instance.tables.pages(
      {
        table: "Sso",
        schema: (await import("zod")).looseObject({}) as never,
        members: [],
        uniqueWrites: false,
        signed: false,
        listed: false,
      },
      { partitionKey: "requests" },
    )) {
      rows.push(...page);
    }
    expect(rows).toHaveLength(1);
    for (const secret of [cookies[0]!.value, providerParameters.get("nonce")!])
      expect(JSON.stringify(rows)).not.toContain(secret);
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
  ])("can't be %j", async (returnUrl) => {
    expect(await problemOf(instance.sso.begin(returnUrl, ORIGIN, CALLER))).toBe("invalidRequest");
  });

  test.each(["/", "/docs?x=https://evil.example#y", "/a//b"])("can be %j", async (returnUrl) => {
    expect(await problemOf(instance.sso.begin(returnUrl, ORIGIN, CALLER))).toBe("none");
  });
});

test("no sign-in starts while SSO is turned off, not configured, or without a public address", async () => {
  expect(await problemOf(instance.sso.begin("/", undefined, CALLER))).toBe("conflict");
  await instance.sso.disable(undefined, ADMINISTRATOR);
  expect(await problemOf(otherInstance.sso.begin("/", ORIGIN, CALLER))).toBe("conflict");
  expect(await problemOf((await deployments.next()).start().sso.begin("/", ORIGIN, CALLER))).toBe("conflict");
});

test("a browser that another site sends to the callback is not signed in as the attacker", async () => {
  // The attacker starts a sign-in, completes it at the provider, and makes the victim's browser open the callback.
  const attackersSignIn = await instance.sso.begin("/", ORIGIN, CALLER);
  const attackersCallback = new URL(await new ProviderVisitor().choose(attackersSignIn.location, "uma"));
  const victimsSignIn = await instance.sso.begin("/", ORIGIN, CALLER);
  expect(await problemOf(complete(instance, arrivalOf(victimsSignIn, attackersCallback)))).toBe("signInStale");
});
