import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { isIssuedWith } from "../../shared/sso/oidc/access-token-hash.ts";

const ACCESS_TOKEN = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y";
// With the payload `{}` and any signature, because only the header is read.
const idTokenBy = (alg: string) => `${Buffer.from(JSON.stringify({ alg })).toString("base64url")}.e30.AA`;

describe("the hash of the access token in an ID token", () => {
  it("is that of the example in OpenID Connect Core, A.3", () => {
    expect(isIssuedWith(ACCESS_TOKEN, idTokenBy("RS256"), "77QmUPtjPfzWtF2AnpK9RQ")).toBe(true);
    expect(isIssuedWith(`${ACCESS_TOKEN}x`, idTokenBy("RS256"), "77QmUPtjPfzWtF2AnpK9RQ")).toBe(false);
  });

  it.each([
    ["PS384", "sha384", 24],
    ["ES512", "sha512", 32],
    ["EdDSA", "sha512", 32],
    ["Ed25519", "sha512", 32],
  ])("is the first half of the hash that the algorithm uses: %s", (algorithm, hash, length) => {
    const value = createHash(hash).update(ACCESS_TOKEN).digest().subarray(0, length).toString("base64url");
    expect(isIssuedWith(ACCESS_TOKEN, idTokenBy(algorithm), value)).toBe(true);
    expect(isIssuedWith(`${ACCESS_TOKEN}x`, idTokenBy(algorithm), value)).toBe(false);
  });
});
