import { createHash, createHmac, createPublicKey, randomBytes, verify } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { ProviderVisitor } from "../../../test/support/provider-visitor.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import { isOidcMode, OIDC_MODES } from "../idp/oidc-modes.ts";

// Tests the OpenID Connect provider of the simulated cloud. A mode makes the provider misbehave in one way, so that other tests
// can check that the service rejects the sign-in.

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

/** The random values of one sign-in request. */
interface SignInRequest {
  state: string;
  nonce: string;
  /** PKCE code verifier. */
  verifier: string;
}
const createRequest = (): SignInRequest => ({
  state: randomBytes(16).toString("base64url"),
  nonce: randomBytes(16).toString("base64url"),
  verifier: randomBytes(32).toString("base64url"),
});

// biome-ignore lint/suspicious/noExplicitAny: each test checks the fields that it expects
const fetchJson = async (address: string): Promise<any> => (await fetch(address)).json();
const fetchDiscovery = () => fetchJson(`${cloud.oidc.issuer}/.well-known/openid-configuration`);

function authorizeUrl(
  { state, nonce, verifier }: SignInRequest,
  change: Record<string, string | undefined> = {},
): string {
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

/** Signs a person in. Returns the parameters with which the provider redirects to the service, such as `code` and `state`. */
async function signInAs(person: string, request: SignInRequest): Promise<URLSearchParams> {
  const redirectUrl = await new ProviderVisitor().choose(authorizeUrl(request), person);
  expect(redirectUrl.startsWith(`${CALLBACK}?`)).toBe(true);
  return new URL(redirectUrl).searchParams;
}

/**
 * Exchanges a code for tokens.
 * @param authentication How the client sends its secret: in the Authorization header, in the body, or a wrong secret in the
 * body.
 */
async function exchangeCode(code: string, verifier: string, authentication: "basic" | "post" | "wrong" = "basic") {
  const { clientId, clientSecret } = cloud.oidc;
  const secret = authentication === "wrong" ? "guess" : clientSecret;
  const inBody: Record<string, string> =
    authentication === "basic" ? {} : { client_id: clientId, client_secret: secret };
  const basic = `Basic ${Buffer.from(`${clientId}:${secret}`).toString("base64")}`;
  const answer = await fetch(`${cloud.oidc.issuer}/token`, {
    method: "POST",
    headers: {
      "content-type": "application/x-www-form-urlencoded",
      ...(authentication === "basic" && { authorization: basic }),
    },
    body: new URLSearchParams({
      grant_type: "authorization_code",
      code,
      redirect_uri: CALLBACK,
      code_verifier: verifier,
      ...inBody,
    }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: each test checks the fields that it expects
  return { status: answer.status, body: (await answer.json()) as any };
}

/** Splits an ID token into its parts. `signed` contains the bytes that the signature covers. */
function decodeIdToken(idToken: string) {
  const [header, payload, signature] = idToken.split(".");
  const read = (part: string) => JSON.parse(Buffer.from(part, "base64url").toString("utf8"));
  return {
    header: read(header!),
    claims: read(payload!),
    signed: Buffer.from(`${header}.${payload}`),
    signature: Buffer.from(signature!, "base64url"),
  };
}

/** Returns whether a published key of the provider verifies the signature. */
async function hasValidSignature(idToken: string): Promise<boolean> {
  const { header, signed, signature } = decodeIdToken(idToken);
  const { keys } = await fetchJson(`${cloud.oidc.issuer}/jwks`);
  const jwk = keys.find((key: { kid: string }) => key.kid === header.kid);
  return jwk !== undefined && verify("sha256", signed, createPublicKey({ key: jwk, format: "jwk" }), signature);
}

async function idTokenFor(person: string, request = createRequest()): Promise<string> {
  const code = (await signInAs(person, request)).get("code")!;
  const { status, body } = await exchangeCode(code, request.verifier);
  expect(status).toBe(200);
  return body.id_token;
}

describe("the OIDC provider", () => {
  test("signs in the person that the user selects", async () => {
    const request = createRequest();
    const parameters = await signInAs("ada", request);
    expect(parameters.get("state")).toBe(request.state);
    expect(parameters.get("iss")).toBe(cloud.oidc.issuer);

    const { body } = await exchangeCode(parameters.get("code")!, request.verifier, "post");
    expect(await hasValidSignature(body.id_token)).toBe(true);
    const { header, claims } = decodeIdToken(body.id_token);
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

  test("asks who signs in at each sign-in, without remembering the browser", async () => {
    expect(await fetchDiscovery()).toMatchObject({
      issuer: cloud.oidc.issuer,
      authorization_response_iss_parameter_supported: true,
      code_challenge_methods_supported: ["S256"],
    });
    const visitor = new ProviderVisitor();
    for (const person of ["uma", "bruno"]) {
      const request = createRequest();
      const code = new URL(await visitor.choose(authorizeUrl(request), person)).searchParams.get("code")!;
      const { claims } = decodeIdToken((await exchangeCode(code, request.verifier)).body.id_token);
      expect(claims.email).toBe(`${person}@acme.example`);
    }
  });

  test("issues no token for a used code, another verifier or another client secret", async () => {
    const request = createRequest();
    const code = (await signInAs("uma", request)).get("code")!;
    expect((await exchangeCode(code, request.verifier)).status).toBe(200);
    expect((await exchangeCode(code, request.verifier)).body.error).toBe("invalid_grant");
    const second = (await signInAs("uma", request)).get("code")!;
    expect((await exchangeCode(second, createRequest().verifier)).body.error).toBe("invalid_grant");
    const third = (await signInAs("uma", request)).get("code")!;
    expect((await exchangeCode(third, request.verifier, "wrong")).body.error).toBe("invalid_client");
  });

  test.each([
    ["no PKCE", { code_challenge: undefined, code_challenge_method: undefined }, "invalid_request"],
    ["plain PKCE", { code_challenge_method: "plain" }, "invalid_request"],
    ["another response type", { response_type: "id_token" }, "invalid_request"],
  ])("rejects %s", async (_what, change, error) => {
    const redirectUrl = await new ProviderVisitor().choose(authorizeUrl(createRequest(), change), "uma");
    expect(decodeURIComponent(redirectUrl)).toContain(`error=${error}`);
  });

  test.each([
    "http://localhost:7071/elsewhere",
    "https://localhost:7071/auth/sso/callback",
    "http://elsewhere.example/auth/sso/callback",
  ])("does not redirect to %s", async (redirect) => {
    const attempt = new ProviderVisitor().choose(authorizeUrl(createRequest(), { redirect_uri: redirect }), "uma");
    await expect(attempt).rejects.toThrow(/answered 400/);
  });

  test("reports a canceled sign-in", async () => {
    expect((await signInAs("", createRequest())).get("error")).toBe("access_denied");
  });

  test("issues tokens with the current data of a person", async () => {
    cloud.control.changePerson("uma", { roles: ["Lifecycle.Operator"], emailVerified: false });
    const expectedClaims = {
      roles: ["Lifecycle.Operator"],
      email_verified: false,
      realm_access: { roles: ["Lifecycle.Operator"] },
    };
    expect(decodeIdToken(await idTokenFor("uma")).claims).toMatchObject(expectedClaims);
    cloud.control.changePerson("uma", { roles: ["Lifecycle.User"], emailVerified: true });
  });

  test("stops publishing the old signing key after a key change", async () => {
    const oldToken = await idTokenFor("uma");
    cloud.control.rollOidcKeys();
    const newToken = await idTokenFor("uma");
    expect([await hasValidSignature(oldToken), await hasValidSignature(newToken)]).toEqual([false, true]);
    expect(decodeIdToken(newToken).header.kid).not.toBe(decodeIdToken(oldToken).header.kid);
  });
});

async function requestTokenWithWrongSecret() {
  const authorization = `Basic ${Buffer.from(`${cloud.oidc.clientId}:wrong`).toString("base64")}`;
  const form = new URLSearchParams({ grant_type: "authorization_code", code: "none" });
  const answer = await fetch(`${cloud.oidc.issuer}/token`, { method: "POST", headers: { authorization }, body: form });
  return { answer, body: await answer.json() };
}

/**
 * Checks by mode that the provider misbehaves as the mode describes. "Party" is the claim `azp` (authorized party). "Nonce" is
 * the random value of the request that the ID token must repeat.
 */
const checkMode: Record<keyof typeof OIDC_MODES, () => Promise<void>> = {
  correct: async () => expect(await hasValidSignature(await idTokenFor("uma"))).toBe(true),
  unauthorizedClient: async () => {
    const { answer, body } = await requestTokenWithWrongSecret();
    expect([answer.status, answer.headers.has("www-authenticate")]).toEqual([401, false]);
    expect(body).toMatchObject({ error: "unauthorized_client" });
  },
  entraUnknownClient: async () => {
    const { answer, body } = await requestTokenWithWrongSecret();
    expect(answer.status).toBe(400);
    expect(body).toMatchObject({ error: "unauthorized_client", error_codes: [700016] });
  },
  entraWrongSecret: async () => {
    const { answer, body } = await requestTokenWithWrongSecret();
    expect(answer.status).toBe(401);
    expect(body).toMatchObject({ error: "invalid_client", error_codes: [7000215] });
  },
  edDsa: async () => {
    const { header, signed, signature } = decodeIdToken(await idTokenFor("uma"));
    const { keys } = await fetchJson(`${cloud.oidc.issuer}/jwks`);
    const jwk = keys.find(({ kid }: { kid: string }) => kid === header.kid);
    expect([header.alg, jwk.crv]).toEqual(["EdDSA", "Ed25519"]);
    expect(verify(null, Buffer.from(signed), createPublicKey({ key: jwk, format: "jwk" }), signature)).toBe(true);
  },
  noLogout: async () => expect(await fetchDiscovery()).not.toHaveProperty("end_session_endpoint"),
  wrongIssuer: async () => expect((await newClaims()).iss).toBe("https://login.elsewhere.example"),
  wrongAudience: async () => expect((await newClaims()).aud).toBe("another-client"),
  wrongAuthorizedParty: async () => {
    const { aud, azp } = await newClaims();
    expect([aud, azp]).toEqual([[cloud.oidc.clientId, "another-client"], "another-client"]);
  },
  wrongAccessTokenHash: async () => expect((await newClaims()).at_hash).toBe("AAAAAAAAAAAAAAAAAAAAAA"),
  missingAccessTokenHash: async () => expect(await newClaims()).not.toHaveProperty("at_hash"),
  otherAuthorizedParty: async () => {
    const { aud, azp } = await newClaims();
    expect([aud, azp]).toEqual([cloud.oidc.clientId, "another-client"]);
  },
  wrongNonce: async () => {
    const request = createRequest();
    const { nonce } = decodeIdToken(await idTokenFor("uma", request)).claims;
    expect(nonce).toEqual(expect.any(String));
    expect(nonce).not.toBe(request.nonce);
  },
  missingNonce: async () => expect((await newClaims()).nonce).toBeUndefined(),
  missingSubject: async () => expect((await newClaims()).sub).toBeUndefined(),
  expired: async () => expect((await newClaims()).exp).toBeLessThan(Date.now() / 1000 - 600),
  missingExpiry: async () => expect((await newClaims()).exp).toBeUndefined(),
  issuedLater: async () => expect((await newClaims()).iat).toBeGreaterThan(Date.now() / 1000 + 600),
  notYetValid: async () => expect((await newClaims()).nbf).toBeGreaterThan(Date.now() / 1000 + 600),
  algNone: async () => {
    const token = await idTokenFor("uma");
    expect(decodeIdToken(token).header.alg).toBe("none");
    expect(token.endsWith(".")).toBe(true);
  },
  clientSecretHmac: () => expectHmacSignature(() => cloud.oidc.clientSecret),
  publicKeyHmac: () =>
    expectHmacSignature(async () => {
      const { keys } = await fetchJson(`${cloud.oidc.issuer}/jwks`);
      return createPublicKey({ key: keys[0], format: "jwk" }).export({ type: "spki", format: "pem" }).toString();
    }),
  foreignKey: async () => {
    const token = await idTokenFor("uma");
    const { keys } = await fetchJson(`${cloud.oidc.issuer}/jwks`);
    expect(decodeIdToken(token).header).toMatchObject({ alg: "RS256", kid: keys[0].kid });
    expect(await hasValidSignature(token)).toBe(false);
  },
  wrongIssuerParameter: async () =>
    expect((await signInAs("uma", createRequest())).get("iss")).toBe("https://login.elsewhere.example"),
  missingIssuerParameter: async () => expect((await signInAs("uma", createRequest())).has("iss")).toBe(false),
  wrongState: async () => {
    const request = createRequest();
    expect((await signInAs("uma", request)).get("state")).not.toBe(request.state);
  },
  wrongUserinfoSubject: async () => {
    const request = createRequest();
    const code = (await signInAs("uma", request)).get("code")!;
    const { body } = await exchangeCode(code, request.verifier);
    const headers = { authorization: `Bearer ${body.access_token}` };
    const answer = await fetch(`${cloud.oidc.issuer}/userinfo`, { headers });
    expect(await answer.json()).toMatchObject({ sub: "somebody-else" });
  },
  // The ID token has no verified e-mail address. Only the userinfo endpoint has one, of another person.
  addressVouchedForElsewhere: async () => {
    const request = createRequest();
    const code = (await signInAs("uma", request)).get("code")!;
    const { body } = await exchangeCode(code, request.verifier);
    expect(decodeIdToken(body.id_token).claims).not.toHaveProperty("email_verified");
    const headers = { authorization: `Bearer ${body.access_token}` };
    const answer = await fetch(`${cloud.oidc.issuer}/userinfo`, { headers });
    expect(await answer.json()).toMatchObject({ email: "somebody@elsewhere.example", email_verified: true });
  },
  redirectingDiscovery: async () => {
    const address = `${cloud.oidc.issuer}/.well-known/openid-configuration`;
    expect((await fetch(address, { redirect: "manual" })).status).toBe(302);
    // The target of the redirect returns the correct document. A sign-in fails only if the client does not follow the redirect.
    expect((await fetchJson(address)).issuer).toBe(cloud.oidc.issuer);
  },
  largeDiscovery: async () => expect(JSON.stringify(await fetchDiscovery()).length).toBeGreaterThan(1024 * 1024),
  wrongDiscoveryIssuer: async () => expect((await fetchDiscovery()).issuer).toBe("https://login.elsewhere.example"),
  // Entra's discovery document for all tenants has such a placeholder instead of a tenant ID.
  templateIssuer: async () => expect((await fetchDiscovery()).issuer).toBe(`${cloud.oidc.issuer}/{tenantid}`),
  metadataAddressKeys: async () => expect((await fetchDiscovery()).jwks_uri).toContain("//169.254.169.254/"),
  metadataAddressToken: async () => expect((await fetchDiscovery()).token_endpoint).toContain("//169.254.169.254/"),
};

/** Returns the claims of a new ID token. */
const newClaims = async () => {
  const token = await idTokenFor("uma");
  // The signature is valid, so only the claims under test are wrong.
  expect(await hasValidSignature(token)).toBe(true);
  return decodeIdToken(token).claims;
};

/** Checks that the ID token is signed with HS256 and this secret. */
async function expectHmacSignature(secret: () => string | Promise<string>): Promise<void> {
  const { header, signed, signature } = decodeIdToken(await idTokenFor("uma"));
  expect(header.alg).toBe("HS256");
  expect(
    signature.equals(
      createHmac("sha256", await secret())
        .update(signed)
        .digest(),
    ),
  ).toBe(true);
}

test.each(Object.keys(OIDC_MODES).filter(isOidcMode))(
  "the mode %s makes the provider misbehave in that way",
  async (mode) => {
    cloud.control.setOidcMode(mode);
    await checkMode[mode]();
  },
);

test("faults and request counts work for the provider too", async () => {
  cloud.control.resetCounts();
  cloud.control.addFault({ match: { operation: "oidc.token" }, action: { kind: "reset" } });
  cloud.control.addFault({ match: { operation: "oidc.keys" }, action: { kind: "fail", status: 503 } });
  const request = createRequest();
  const code = (await signInAs("uma", request)).get("code")!;
  await expect(exchangeCode(code, request.verifier)).rejects.toThrow();
  expect((await fetch(`${cloud.oidc.issuer}/jwks`)).status).toBe(503);
  expect(cloud.control.counts()).toMatchObject({ "oidc.token": 1, "oidc.keys": 1, "oidc.choose": 2 });
});
