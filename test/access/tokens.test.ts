import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { SignJWT } from "jose";
import { describe, expect, test } from "vitest";
import { createTokens } from "../../shared/access/tokens.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { MINUTES, SECONDS, signingKey, TestClock } from "./instances.ts";

const randomness = systemRandomness();
const second = signingKey("second");
/** Also long enough for HS512, so that only the pinned algorithm rejects it. */
const first = { kid: "first", key: new Uint8Array(randomBytes(64)) };
const config = { JWT_SIGNING_KEYS: [first, second], JWT_ISSUER: "issuer", JWT_AUDIENCE: "audience" };

function setUp(overrides: Partial<typeof config> = {}) {
  const clock = new TestClock();
  return { clock, tokens: createTokens({ config: { ...config, ...overrides }, clock, randomness }) };
}

/** A valid token, except for the result of `change`. */
function forge(
  clock: TestClock,
  change: (token: SignJWT) => SignJWT,
  header: { alg: string; kid?: string } = { alg: "HS256", kid: "first" },
  key = first.key,
): Promise<string> {
  const now = clock.now().getTime() / 1000;
  const token = new SignJWT({ iat: now, exp: now + 3600 })
    .setProtectedHeader(header)
    .setIssuer("issuer")
    .setAudience("audience")
    .setSubject("maria")
    .setJti("1");
  return change(token).sign(key);
}

describe("tokens", () => {
  test("one is valid for an hour, and contains its time to the millisecond", async () => {
    const { clock, tokens } = setUp();
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
    const { clock, tokens } = setUp();
    const payload = JSON.parse(
      Buffer.from(
        (await tokens.issue({ username: "maria", uid: "u1" }, clock.now())).split(".")[1]!,
        "base64url",
      ).toString(),
    );
    expect(Object.keys(payload).sort()).toEqual(["aud", "exp", "iat", "iss", "jti", "sub", "uid"]);
  });

  test("control: a token made like the service's is valid", async () => {
    const { clock, tokens } = setUp();
    expect(await tokens.verify(await forge(clock, (token) => token))).toBeDefined();
  });

  test.each<[string, (clock: TestClock) => Promise<string>]>([
    ["another issuer", (clock) => forge(clock, (token) => token.setIssuer("other"))],
    ["another audience", (clock) => forge(clock, (token) => token.setAudience("other"))],
    ["another algorithm", (clock) => forge(clock, (token) => token, { alg: "HS512", kid: "first" })],
    ["another key under our name", (clock) => forge(clock, (token) => token, undefined, signingKey("x").key)],
    ["a key by another's name", (clock) => forge(clock, (token) => token, { alg: "HS256", kid: "second" })],
    ["an unknown key", (clock) => forge(clock, (token) => token, { alg: "HS256", kid: "third" })],
    ["no key name", (clock) => forge(clock, (token) => token, { alg: "HS256" })],
    ["no algorithm", async (clock) => unsigned(await forge(clock, (token) => token))],
    ["an empty name", (clock) => forge(clock, (token) => token.setSubject(""))],
    ["an empty id", (clock) => forge(clock, (token) => token.setJti(""))],
    ["a changed name", async (clock) => changed(await forge(clock, (token) => token))],
  ])("a token with %s is invalid", async (_what, make) => {
    const { clock, tokens } = setUp();
    expect(await tokens.verify(await make(clock))).toBeUndefined();
  });

  test("no text makes verifying throw", async () => {
    const { tokens } = setUp();
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

  test("keys rotate: a token is valid until its key is removed", async () => {
    const { clock, tokens } = setUp();
    const token = await tokens.issue({ username: "maria", uid: "u1" }, clock.now());
    const rotated = setUp({ JWT_SIGNING_KEYS: [second, first] }).tokens;
    expect(await rotated.verify(token)).toBeDefined();
    const newer = await rotated.issue({ username: "maria", uid: "u1" }, clock.now());
    const removed = setUp({ JWT_SIGNING_KEYS: [second] }).tokens;
    expect(await removed.verify(token)).toBeUndefined();
    expect(await removed.verify(newer)).toBeDefined();
  });
});

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

const unsigned = (token: string) => `${part({ alg: "none", kid: "first" })}.${token.split(".")[1]}.`;

function changed(token: string): string {
  const [header, payload, signature] = token.split(".");
  const claims = JSON.parse(Buffer.from(payload!, "base64url").toString());
  return [header, part({ ...claims, sub: "admin" }), signature].join(".");
}
