import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { SignJWT } from "jose";
import { describe, expect, test } from "vitest";
import { createTokens } from "../../shared/access/tokens.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { MINUTES, SECONDS, signingKey, TestClock } from "./instances.ts";

// Tests of the service's access tokens (JSON Web Tokens): issuing, verifying, and rotation of the signing keys.

const randomness = systemRandomness();
const secondKey = signingKey("second");
/** Long enough for HS512 too, so that a token with HS512 can only be rejected because of its algorithm. */
const firstKey = { kid: "first", key: new Uint8Array(randomBytes(64)) };
const config = { JWT_SIGNING_KEYS: [firstKey, secondKey], JWT_ISSUER: "issuer", JWT_AUDIENCE: "audience" };

const HEADER = { alg: "HS256", kid: "first" };

function createTestTokens(overrides: Partial<typeof config> = {}) {
  const clock = new TestClock();
  return { clock, tokens: createTokens({ config: { ...config, ...overrides }, clock, randomness }) };
}

/** Signs a token like the service's, with a change by which the test makes it invalid. */
function forge(
  clock: TestClock,
  change: (token: SignJWT) => SignJWT,
  header: { alg: string; kid?: string; typ?: string } = { alg: "HS256", kid: "first" },
  key = firstKey.key,
): Promise<string> {
  const nowSeconds = clock.now().getTime() / 1000;
  const token = new SignJWT({ iat: nowSeconds, exp: nowSeconds + 3600 })
    .setProtectedHeader({ typ: "JWT", ...header })
    .setIssuer("issuer")
    .setAudience("audience")
    .setSubject("maria")
    .setJti("1");
  return change(token).sign(key);
}

describe("tokens", () => {
  test("a token is valid for an hour, and contains its time of issue to the millisecond", async () => {
    const { clock, tokens } = createTestTokens();
    clock.pass(123);
    const token = await tokens.issue({ username: "maria", uid: "u1" }, clock.now());
    const claims = await tokens.verify(token);
    expect(claims).toMatchObject({ username: "maria", issuedAt: clock.now() });
    expect(claims!.expiresAt.getTime() - claims!.issuedAt.getTime()).toBe(60 * MINUTES);
    clock.pass(60 * MINUTES - SECONDS);
    expect(await tokens.verify(token)).toBeDefined();
    clock.pass(2 * SECONDS);
    expect(await tokens.verify(token)).toBeUndefined();
  });

  test("a token does not contain the role", async () => {
    const { clock, tokens } = createTestTokens();
    const payload = JSON.parse(
      Buffer.from(
        (await tokens.issue({ username: "maria", uid: "u1" }, clock.now())).split(".")[1]!,
        "base64url",
      ).toString(),
    );
    expect(Object.keys(payload).sort()).toEqual(["aud", "exp", "iat", "iss", "jti", "sub", "uid"]);
  });

  test("a forged token without a change is valid, so the changes below are what makes tokens invalid", async () => {
    const { clock, tokens } = createTestTokens();
    expect(await tokens.verify(await forge(clock, (token) => token))).toBeDefined();
  });

  test.each<[string, (clock: TestClock) => Promise<string>]>([
    ["another issuer", (clock) => forge(clock, (token) => token.setIssuer("other"))],
    ["another audience", (clock) => forge(clock, (token) => token.setAudience("other"))],
    ["another algorithm", (clock) => forge(clock, (token) => token, { alg: "HS512", kid: "first" })],
    [
      "another key under the name of a configured key",
      (clock) => forge(clock, (token) => token, undefined, signingKey("x").key),
    ],
    [
      "a configured key under the name of another",
      (clock) => forge(clock, (token) => token, { alg: "HS256", kid: "second" }),
    ],
    ["an unknown key", (clock) => forge(clock, (token) => token, { alg: "HS256", kid: "third" })],
    ["no key name", (clock) => forge(clock, (token) => token, { alg: "HS256" })],
    ["no algorithm", async (clock) => withoutSignature(await forge(clock, (token) => token))],
    ["another type", (clock) => forge(clock, (token) => token, { ...HEADER, typ: "license+jwt" })],
    ["the type of an OAuth access token", (clock) => forge(clock, (token) => token, { ...HEADER, typ: "at+jwt" })],
    [
      "a lifetime of more than an hour",
      (clock) => forge(clock, (token) => token.setExpirationTime(secondsFromNow(clock, 3601))),
    ],
    ["an expiry that is too large for a date", (clock) => forge(clock, (token) => token.setExpirationTime(1e300))],
    ["padding", async (clock) => `${await forge(clock, (token) => token)}=`],
    ["other unused bits", async (clock) => withOtherUnusedBits(await forge(clock, (token) => token))],
    ["an empty name", (clock) => forge(clock, (token) => token.setSubject(""))],
    ["an empty id", (clock) => forge(clock, (token) => token.setJti(""))],
    ["a changed name", async (clock) => withAnotherSubject(await forge(clock, (token) => token))],
  ])("a token with %s is invalid", async (_description, forgeToken) => {
    const { clock, tokens } = createTestTokens();
    expect(await tokens.verify(await forgeToken(clock))).toBeUndefined();
  });

  test("a token is valid in whichever millisecond it is issued", async () => {
    const { clock, tokens } = createTestTokens();
    for (let step = 0; step < 1_000; step++) {
      clock.pass(1);
      expect(await tokens.verify(await tokens.issue({ username: "maria", uid: "u1" }, clock.now()))).toBeDefined();
    }
  });

  test("random text is invalid and does not make `verify` throw", async () => {
    const { tokens } = createTestTokens();
    const part = fc.oneof(
      fc.base64String(),
      fc.json().map((text) => Buffer.from(text).toString("base64url")),
    );
    const text = fc.oneof(
      fc.string(),
      fc.tuple(part, part, part).map((parts) => parts.join(".")),
    );
    await fc.assert(
      fc.asyncProperty(text, async (token) => {
        expect(await tokens.verify(token)).toBeUndefined();
      }),
      { numRuns: 300 },
    );
  });

  test("a token is valid until its signing key is removed", async () => {
    const { clock, tokens } = createTestTokens();
    const token = await tokens.issue({ username: "maria", uid: "u1" }, clock.now());
    const tokensAfterRotation = createTestTokens({ JWT_SIGNING_KEYS: [secondKey, firstKey] }).tokens;
    expect(await tokensAfterRotation.verify(token)).toBeDefined();
    const newerToken = await tokensAfterRotation.issue({ username: "maria", uid: "u1" }, clock.now());
    const tokensAfterRemoval = createTestTokens({ JWT_SIGNING_KEYS: [secondKey] }).tokens;
    expect(await tokensAfterRemoval.verify(token)).toBeUndefined();
    expect(await tokensAfterRemoval.verify(newerToken)).toBeDefined();
  });
});

const secondsFromNow = (clock: TestClock, seconds: number): number => clock.now().getTime() / 1000 + seconds;

/** Changes bits of the signature's last character that the decoder ignores: 32 bytes take 43 characters, with two bits to spare. */
function withOtherUnusedBits(token: string): string {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return token.slice(0, -1) + digits[digits.indexOf(token.at(-1)!) + 1]!;
}

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

const withoutSignature = (token: string) => `${part({ alg: "none", kid: "first" })}.${token.split(".")[1]}.`;

function withAnotherSubject(token: string): string {
  const [header, payload, signature] = token.split(".");
  const claims = JSON.parse(Buffer.from(payload!, "base64url").toString());
  return [header, part({ ...claims, sub: "admin" }), signature].join(".");
}
