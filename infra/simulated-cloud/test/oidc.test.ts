import { createHash, createHmac, createPublicKey, randomBytes, verify } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ProviderVisitor } from "../../../test/support/provider-visitor.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import { isOidcMode, OIDC_MODES } from "../idp/oidc-modes.ts";

const CALLBACK = "http://localhost:7071/auth/sso/callback";

let cloud: Cloud;
beforeAll(async () => {
  cloud = await startCloud({ company: "small" });
});
afterEach(() => {
  cloud.control.setOidcMode("correct");
  cloud.control.clearFaults();
});
afterAll(() => cloud?.stop());

interface Sent {
  state: string;
  nonce: string;
  verifier: string;
}
const sent = (): Sent => ({
  state: randomBytes(16).toString("base64url"),
  nonce: randomBytes(16).toString("base64url"),
  verifier: randomBytes(32).toString("base64url"),
});

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
const json = async (address: string): Promise<any> => (await fetch(address)).json();
const discovery = () => json(`${cloud.oidc.issuer}/.well-known/openid-configuration`);

function authorizeUrl({ state, nonce, verifier }: Sent, change: Record<string, string | undefined> = {}): string {
  const address = new URL(`${cloud.oidc.issuer}/authorize`);
  const parameters: Record<string, string | undefined> = {
    response_type: "code",
    client_id: cloud.oidc.clientId,
    redirect_uri: CALLBACK,
    scope: "openid profile email",
    state,
    nonce,
    code_challenge: createHash("sha256").update(verifier).digest("base64url"),
    code_challenge_method: "S256",
    ...change,
  };
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined) address.searchParams.set(name, value);
  return address.href;
}

async function codeFor(person: string, request: Sent): Promise<URLSearchParams> {
  const left = await new ProviderVisitor().choose(authorizeUrl(request), person);
  expect(left.startsWith(`${CALLBACK}?`)).toBe(true);
  return new URL(left).searchParams;
}

async function exchange(code: string, verifier: string, by: "basic" | "post" | "wrong" = "basic") {
  const { clientId, clientSecret } = cloud.oidc;
  const secret = by === "wrong" ? "guess" : clientSecret;
  const inBody: Record<string, string> = by === "basic" ? {} : { client_id: clientId, client_secret: secret };
  const basic = `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}`;
  const answer = await fetch(`${cloud.oidc.issuer}/token`, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded", ...(by === "basic" && { authorization: basic }) },
    body: new URLSearchParams({
      grant_type: "authorization_code",
      code,
      redirect_uri: CALLBACK,
      code_verifier: verifier,
      ...inBody,
    }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  return { status: answer.status, body: (await answer.json()) as any };
}

function opened(idToken: string) {
  const [header, payload, signature] = idToken.split(".");
  const read = (part: string) => JSON.parse(Buffer.from(part, "base64url").toString("utf8"));
  return {
    header: read(header!),
    claims: read(payload!),
    signed: Buffer.from(`${header}.${payload}`),
    signature: Buffer.from(signature!, "base64url"),
  };
}

async function holds(idToken: string): Promise<boolean> {
  const { header, signed, signature } = opened(idToken);
  const { keys } = await json(`${cloud.oidc.issuer}/jwks`);
  const jwk = keys.find((key: { kid: string }) => key.kid === header.kid);
  return jwk !== undefined && verify("sha256", signed, createPublicKey({ key: jwk, format: "jwk" }), signature);
}

async function idTokenFor(person: string, request = sent()): Promise<string> {
  const code = (await codeFor(person, request)).get("code")!;
  const { status, body } = await exchange(code, request.verifier);
  expect(status).toBe(200);
  return body.id_token;
}

describe("the OIDC provider", () => {
  test("signs a person in who is selected by name", async () => {
    const request = sent();
    const parameters = await codeFor("ada", request);
    expect(parameters.get("state")).toBe(request.state);
    expect(parameters.get("iss")).toBe(cloud.oidc.issuer);

    const { body } = await exchange(parameters.get("code")!, request.verifier, "post");
    expect(await holds(body.id_token)).toBe(true);
    const { header, claims } = opened(body.id_token);
    expect(header.alg).toBe("RS256");
    const ada = cloud.control.people().find(({ id }) => id === "ada")!;
    expect(claims).toMatchObject({
      iss: cloud.oidc.issuer,
      aud: cloud.oidc.clientId,
      nonce: request.nonce,
      sub: ada.objectId,
      name: ada.name,
      email: ada.email,
      email_verified: true,
      roles: ["Lifecycle.Admin"],
      groups: ["platform", "everyone"],
    });
    const userinfo = await fetch(`${cloud.oidc.issuer}/userinfo`, {
      headers: { authorization: `Bearer ${body.access_token}` },
    });
    expect(await userinfo.json()).toMatchObject({ sub: ada.objectId, email: ada.email });
  });

  test("publishes its metadata, supports the issuer parameter, and asks at each sign-in", async () => {
    expect(await discovery()).toMatchObject({
      issuer: cloud.oidc.issuer,
      authorization_response_iss_parameter_supported: true,
      code_challenge_methods_supported: ["S256"],
    });
    const visitor = new ProviderVisitor();
    for (const person of ["uma", "bruno"]) {
      const request = sent();
      const code = new URL(await visitor.choose(authorizeUrl(request), person)).searchParams.get("code")!;
      const { claims } = opened((await exchange(code, request.verifier)).body.id_token);
      expect(claims.email).toBe(`${person}@acme.example`);
    }
  });

  test("issues no token for a reused code, another verifier or another secret", async () => {
    const request = sent();
    const code = (await codeFor("uma", request)).get("code")!;
    expect((await exchange(code, request.verifier)).status).toBe(200);
    expect((await exchange(code, request.verifier)).body.error).toBe("invalid_grant");
    const second = (await codeFor("uma", request)).get("code")!;
    expect((await exchange(second, sent().verifier)).body.error).toBe("invalid_grant");
    const third = (await codeFor("uma", request)).get("code")!;
    expect((await exchange(third, request.verifier, "wrong")).body.error).toBe("invalid_client");
  });

  test.each([
    ["no PKCE", { code_challenge: undefined, code_challenge_method: undefined }, "invalid_request"],
    ["plain PKCE", { code_challenge_method: "plain" }, "invalid_request"],
    ["another response type", { response_type: "id_token" }, "invalid_request"],
  ])("rejects %s", async (_what, change, error) => {
    const left = await new ProviderVisitor().choose(authorizeUrl(sent(), change), "uma");
    expect(decodeURIComponent(left)).toContain(`error=${error}`);
  });

  test.each([
    "http://localhost:7071/elsewhere",
    "https://localhost:7071/auth/sso/callback",
    "http://elsewhere.example/auth/sso/callback",
  ])("does not redirect to %s", async (redirect) => {
    const attempt = new ProviderVisitor().choose(authorizeUrl(sent(), { redirect_uri: redirect }), "uma");
    await expect(attempt).rejects.toThrow(/answered 400/);
  });

  test("reports a canceled sign-in", async () => {
    expect((await codeFor("", sent())).get("error")).toBe("access_denied");
  });

  test("uses the current data of a person", async () => {
    cloud.control.changePerson("uma", { roles: ["Lifecycle.Operator"], emailVerified: false });
    const changed = {
      roles: ["Lifecycle.Operator"],
      email_verified: false,
      realm_access: { roles: ["Lifecycle.Operator"] },
    };
    expect(opened(await idTokenFor("uma")).claims).toMatchObject(changed);
    cloud.control.changePerson("uma", { roles: ["Lifecycle.User"], emailVerified: true });
  });

  test("replaces its signing key", async () => {
    const before = await idTokenFor("uma");
    cloud.control.rollOidcKeys();
    const after = await idTokenFor("uma");
    expect([await holds(before), await holds(after)]).toEqual([false, true]);
    expect(opened(after).header.kid).not.toBe(opened(before).header.kid);
  });
});

/** The observable effect of each mode. */
const shown: Record<keyof typeof OIDC_MODES, () => Promise<void>> = {
  correct: async () => expect(await holds(await idTokenFor("uma"))).toBe(true),
  wrongIssuer: async () => expect((await claimsOf()).iss).toBe("https://login.elsewhere.example"),
  wrongAudience: async () => expect((await claimsOf()).aud).toBe("another-client"),
  wrongAuthorizedParty: async () => {
    const { aud, azp } = await claimsOf();
    expect([aud, azp]).toEqual([[cloud.oidc.clientId, "another-client"], "another-client"]);
  },
  otherAuthorizedParty: async () => {
    const { aud, azp } = await claimsOf();
    expect([aud, azp]).toEqual([cloud.oidc.clientId, "another-client"]);
  },
  wrongNonce: async () => {
    const request = sent();
    const { nonce } = opened(await idTokenFor("uma", request)).claims;
    expect(nonce).toEqual(expect.any(String));
    expect(nonce).not.toBe(request.nonce);
  },
  missingNonce: async () => expect((await claimsOf()).nonce).toBeUndefined(),
  missingSubject: async () => expect((await claimsOf()).sub).toBeUndefined(),
  expired: async () => expect((await claimsOf()).exp).toBeLessThan(Date.now() / 1000 - 600),
  missingExpiry: async () => expect((await claimsOf()).exp).toBeUndefined(),
  issuedLater: async () => expect((await claimsOf()).iat).toBeGreaterThan(Date.now() / 1000 + 600),
  notYetValid: async () => expect((await claimsOf()).nbf).toBeGreaterThan(Date.now() / 1000 + 600),
  algNone: async () => {
    const token = await idTokenFor("uma");
    expect(opened(token).header.alg).toBe("none");
    expect(token.endsWith(".")).toBe(true);
  },
  clientSecretHmac: () => hmacWith(() => cloud.oidc.clientSecret),
  publicKeyHmac: () =>
    hmacWith(async () => {
      const { keys } = await json(`${cloud.oidc.issuer}/jwks`);
      return createPublicKey({ key: keys[0], format: "jwk" }).export({ type: "spki", format: "pem" }).toString();
    }),
  foreignKey: async () => {
    const token = await idTokenFor("uma");
    const { keys } = await json(`${cloud.oidc.issuer}/jwks`);
    expect(opened(token).header).toMatchObject({ alg: "RS256", kid: keys[0].kid });
    expect(await holds(token)).toBe(false);
  },
  wrongIssuerParameter: async () =>
    expect((await codeFor("uma", sent())).get("iss")).toBe("https://login.elsewhere.example"),
  missingIssuerParameter: async () => expect((await codeFor("uma", sent())).has("iss")).toBe(false),
  wrongState: async () => {
    const request = sent();
    expect((await codeFor("uma", request)).get("state")).not.toBe(request.state);
  },
  wrongUserinfoSubject: async () => {
    const request = sent();
    const code = (await codeFor("uma", request)).get("code")!;
    const { body } = await exchange(code, request.verifier);
    const headers = { authorization: `Bearer ${body.access_token}` };
    const answer = await fetch(`${cloud.oidc.issuer}/userinfo`, { headers });
    expect(await answer.json()).toMatchObject({ sub: "somebody-else" });
  },
  addressVouchedForElsewhere: async () => {
    const request = sent();
    const code = (await codeFor("uma", request)).get("code")!;
    const { body } = await exchange(code, request.verifier);
    expect(opened(body.id_token).claims).not.toHaveProperty("email_verified");
    const headers = { authorization: `Bearer ${body.access_token}` };
    const answer = await fetch(`${cloud.oidc.issuer}/userinfo`, { headers });
    expect(await answer.json()).toMatchObject({ email: "somebody@elsewhere.example", email_verified: true });
  },
  redirectingDiscovery: async () => {
    const address = `${cloud.oidc.issuer}/.well-known/openid-configuration`;
    expect((await fetch(address, { redirect: "manual" })).status).toBe(302);
    // A client that follows the redirect gets the correct document, so that only the refusal to follow prevents the sign-in.
    expect((await json(address)).issuer).toBe(cloud.oidc.issuer);
  },
  largeDiscovery: async () => expect(JSON.stringify(await discovery()).length).toBeGreaterThan(1024 * 1024),
  wrongDiscoveryIssuer: async () => expect((await discovery()).issuer).toBe("https://login.elsewhere.example"),
  templateIssuer: async () => expect((await discovery()).issuer).toBe(`${cloud.oidc.issuer}/{tenantid}`),
  metadataAddressKeys: async () => expect((await discovery()).jwks_uri).toContain("//169.254.169.254/"),
  metadataAddressToken: async () => expect((await discovery()).token_endpoint).toContain("//169.254.169.254/"),
};

const claimsOf = async () => {
  const token = await idTokenFor("uma");
  // Correct except for one mistake.
  expect(await holds(token)).toBe(true);
  return opened(token).claims;
};

async function hmacWith(secret: () => string | Promise<string>): Promise<void> {
  const { header, signed, signature } = opened(await idTokenFor("uma"));
  expect(header.alg).toBe("HS256");
  expect(
    signature.equals(
      createHmac("sha256", await secret())
        .update(signed)
        .digest(),
    ),
  ).toBe(true);
}

test.each(Object.keys(OIDC_MODES).filter(isOidcMode))("mode %s has the documented effect", async (mode) => {
  cloud.control.setOidcMode(mode);
  await shown[mode]();
});

test("requests are delayed, failed and counted like those of every other service", async () => {
  cloud.control.resetCounts();
  cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "reset" } });
  cloud.control.addFault({ match: { operation: "oidc.keys" }, action: { kind: "fail", status: 503 } });
  const request = sent();
  const code = (await codeFor("uma", request)).get("code")!;
  await expect(exchange(code, request.verifier)).rejects.toThrow();
  expect((await fetch(`${cloud.oidc.issuer}/jwks`)).status).toBe(503);
  expect(cloud.control.counts()).toMatchObject({ "oidc.token": 1, "oidc.keys": 1, "oidc.choose": 2 });
});
