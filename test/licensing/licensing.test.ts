import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { build } from "esbuild";
import { CompactSign, SignJWT } from "jose";
import { describe, expect, test } from "vitest";
import { builtInKeys } from "../../shared/licensing/built-in-keys.ts";
import { createLicensing } from "../../shared/licensing/licensing.ts";
import { DAY_MS, MINUTE_MS } from "../../shared/platform/time.ts";

// Tests of licenses: signed tokens that enable the PRO tier until they expire.

const NOW = Date.parse("2026-11-21T10:00:00Z");
/** A millisecond as a fraction of a day. */
const ONE_MS_IN_DAYS = 1 / DAY_MS;
const TENANT = "0b9f8a7e-1111-4222-8333-944455556666";

const keyPair = (kid: string) => {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return { kid, privateKey, x: publicKey.export({ format: "jwk" }).x! };
};
const vendor = keyPair("vendor");
const KEYS = [{ kid: vendor.kid, x: vendor.x }];

const claims = { tier: "pro", customer: "Contoso", exp: (NOW + 30 * DAY_MS) / 1000 };

function sign(
  payload: object | string,
  key: { kid: string; privateKey: KeyObject | Uint8Array } = vendor,
  alg = "EdDSA",
) {
  const bytes = new TextEncoder().encode(typeof payload === "string" ? payload : JSON.stringify(payload));
  return new CompactSign(bytes).setProtectedHeader({ alg, kid: key.kid }).sign(key.privateKey);
}

/** Creates the module with a license. @param days - Days since the license was issued */
function createLicensingWith(
  LICENSE_KEY: string | undefined,
  days = 0,
  AZURE_TENANT_ID: string | undefined = undefined,
) {
  const clock = { now: () => new Date(NOW + days * DAY_MS) };
  return createLicensing({ config: { LICENSE_KEY, AZURE_TENANT_ID }, clock, keys: KEYS });
}

describe("a license", () => {
  test("enables its tier until 14 days after its expiry", async () => {
    const license = await sign(claims);
    const statusAfter = async (days: number) => {
      const { tier, valid, inGrace, reason, daysLeft } = await createLicensingWith(license, days).status();
      return { tier, valid, inGrace, reason, daysLeft };
    };
    expect(await statusAfter(0)).toEqual({ tier: "pro", valid: true, inGrace: false, reason: undefined, daysLeft: 30 });
    expect(await statusAfter(30 - ONE_MS_IN_DAYS)).toMatchObject({ tier: "pro", inGrace: false, daysLeft: 0 });
    expect(await statusAfter(30)).toEqual({ tier: "pro", valid: true, inGrace: true, reason: "expired", daysLeft: 0 });
    expect(await statusAfter(44 - ONE_MS_IN_DAYS)).toMatchObject({
      tier: "pro",
      valid: true,
      inGrace: true,
      daysLeft: -14,
    });
    expect(await statusAfter(44)).toEqual({
      tier: "core",
      valid: false,
      inGrace: false,
      reason: "expired",
      daysLeft: -14,
    });
  });

  test("is listed as expiring until it has expired", async () => {
    const license = await sign(claims);
    const expiringNames = async (days: number, within: number, key: string | undefined = license) => {
      const names: string[] = [];
      const by = new Date(NOW + (days + within) * DAY_MS);
      for await (const { what, name, expiresAt } of createLicensingWith(key, days).expiring(by)) {
        names.push(`${what} ${name} ${expiresAt}`);
      }
      return names;
    };
    const line = `License PRO ${new Date(claims.exp * 1000).toISOString()}`;
    expect(await expiringNames(0, 29)).toEqual([]);
    expect(await expiringNames(0, 30)).toEqual([line]);
    expect(await expiringNames(29, 3)).toEqual([line]);
    expect(await expiringNames(31, 30)).toEqual([]);
    expect(await expiringNames(0, 60, "garbage")).toEqual([]);
  });

  test("is malformed if its expiry is later than a Date can represent", async () => {
    const lastSecond = 8.64e12; // The last second that a JavaScript Date can represent.
    const { expiresAt } = await createLicensingWith(await sign({ ...claims, exp: lastSecond })).status();
    expect(expiresAt?.toISOString()).toBe("+275760-09-13T00:00:00.000Z");
    expect(await createLicensingWith(await sign({ ...claims, exp: lastSecond + 1 })).status()).toMatchObject({
      reason: "malformed",
    });
  });

  test.each(["\n", "\r\n"])("is valid with the line break %j at its end", async (lineBreak) => {
    expect(await createLicensingWith(`${await sign(claims)}${lineBreak}`).tier()).toBe("pro");
  });

  test("is valid from its start, with a minute for the clocks' difference", async () => {
    for (const start of [{ nbf: NOW / 1000 + 60 }, { iat: NOW / 1000 + 60 }, { nbf: 0, iat: NOW / 1000 - 1 }])
      expect(await createLicensingWith(await sign({ ...claims, ...start })).tier()).toBe("pro");
    let nowMs = NOW;
    const config = { LICENSE_KEY: await sign({ ...claims, nbf: NOW / 1000 + 3600 }), AZURE_TENANT_ID: undefined };
    const licensing = createLicensing({ config, clock: { now: () => new Date(nowMs) }, keys: KEYS });
    expect(await licensing.status()).toMatchObject({ tier: "core", valid: false, reason: "malformed" });
    nowMs += 59 * MINUTE_MS;
    expect(await licensing.tier()).toBe("pro");
  });

  test("stops enabling its tier while the process runs", async () => {
    let nowMs = NOW;
    const config = { LICENSE_KEY: await sign(claims), AZURE_TENANT_ID: undefined };
    const licensing = createLicensing({ config, clock: { now: () => new Date(nowMs) }, keys: KEYS });
    expect(await licensing.tier()).toBe("pro");
    nowMs += 45 * DAY_MS;
    expect(await licensing.tier()).toBe("core");
  });

  test("contains its customer and enables the features of its tier", async () => {
    const status = await createLicensingWith(await sign(claims)).status();
    expect(status).toMatchObject({ customer: "Contoso", expiresAt: new Date(claims.exp * 1000) });
    const coreFeatures = ["discovery", "compliance", "alerts", "subscriptions", "audit", "settings"];
    expect(status.features).toEqual([...coreFeatures, "rotation", "sync", "dependencies", "sso", "users", "b2c"]);
    const core = await createLicensingWith(await sign({ ...claims, tier: "core" })).status();
    expect(core).toMatchObject({ tier: "core", valid: true });
    expect(core.features).toEqual(coreFeatures);
  });

  test("with a tenant ID is valid only in that tenant", async () => {
    const license = await sign({ ...claims, tenantId: TENANT.toUpperCase() });
    expect(await createLicensingWith(license, 0, TENANT).status()).toMatchObject({ tier: "pro", valid: true });
    for (const otherTenantId of [undefined, "0b9f8a7e-1111-4222-8333-944455550000"]) {
      expect(await createLicensingWith(license, 0, otherTenantId).status()).toMatchObject({
        tier: "core",
        reason: "wrongTenant",
      });
    }
  });

  test.each<[string, string, () => string | undefined | Promise<string>]>([
    ["absent", "missing", () => undefined],
    ["not a JSON Web Signature", "malformed", () => "not-a-licence"],
    ["without JSON as its payload", "malformed", () => sign("pro")],
    ["without an expiry", "malformed", () => sign({ tier: "pro", customer: "Contoso" })],
    ["for an unknown tier", "malformed", () => sign({ ...claims, tier: "gold" })],
    ["changed after it was signed", "badSignature", async () => withChangedExpiry(await sign(claims))],
    ["signed with another key under the vendor's key ID", "badSignature", () => sign(claims, keyPair("vendor"))],
    ["signed with an unknown key", "unknownKey", () => sign(claims, keyPair("other"))],
    ["without a signature", "malformed", async () => withoutSignature(await sign(claims))],
    ["signed with the public key as a secret", "malformed", () => sign(claims, hmacKey(), "HS256")],
    ["signed with a key in its own header", "unknownKey", () => withOwnKey()],
    ["preceded by a blank", "malformed", async () => ` ${await sign(claims)}`],
    ["interrupted by a line break", "malformed", async () => (await sign(claims)).replace(".", ".\n")],
    ["padded", "malformed", async () => `${await sign(claims)}=`],
    ["valid only in more than a minute", "malformed", () => sign({ ...claims, nbf: NOW / 1000 + 61 })],
    ["issued more than a minute in the future", "malformed", () => sign({ ...claims, iat: NOW / 1000 + 60.001 })],
    ["with a text as its start", "malformed", () => sign({ ...claims, nbf: "2026" })],
    ["with an issue time that is no number", "malformed", () => sign({ ...claims, iat: null })],
  ])("that is %s has the reason %s and enables only the tier core", async (_description, reason, createLicense) => {
    const status = await createLicensingWith(await createLicense()).status();
    expect(status).toMatchObject({ tier: "core", valid: false, inGrace: false, reason });
    expect(status.customer).toBeUndefined();
    expect(await createLicensingWith(await createLicense()).tier()).toBe("core");
  });
});

describe("the keys in a build", () => {
  async function keysOfBuild(define: Record<string, string>): Promise<{ kid: string; x: string }[]> {
    const source = 'import { builtInKeys } from "./shared/licensing/built-in-keys.ts"; export default builtInKeys();';
    const { outputFiles } = await build({
      stdin: { contents: source, resolveDir: new URL("../..", import.meta.url).pathname },
      bundle: true,
      format: "esm",
      platform: "node",
      write: false,
      define,
    });
    const code = Buffer.from(outputFiles[0]!.text).toString("base64");
    return (await import(/* @vite-ignore */ `data:text/javascript;base64,${code}`)).default;
  }

  test("are the vendor's keys and those that a build argument adds", async () => {
    const added = [{ kid: "development", x: vendor.x }];
    const keys = await keysOfBuild({ __DEVELOPMENT_LICENSE_KEYS__: JSON.stringify(JSON.stringify(added)) });
    expect(keys).toEqual([...builtInKeys(), ...added]);
    expect(await keysOfBuild({ __DEVELOPMENT_LICENSE_KEYS__: '"[]"' })).toEqual(builtInKeys());
    expect(await keysOfBuild({})).toEqual(builtInKeys());
    expect(builtInKeys().map(({ kid }) => kid)).toContain("vendor-2026-11");
  });

  test("can't be replaced by a setting", async () => {
    const keysBefore = builtInKeys();
    process.env.__DEVELOPMENT_LICENSE_KEYS__ = JSON.stringify([{ kid: "vendor-2026-11", x: vendor.x }]);
    try {
      expect(builtInKeys()).toEqual(keysBefore);
    } finally {
      delete process.env.__DEVELOPMENT_LICENSE_KEYS__;
    }
  });
});

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

function withChangedExpiry(license: string): string {
  const [header, , signature] = license.split(".");
  return [header, part({ ...claims, exp: claims.exp + 1 }), signature].join(".");
}

const withoutSignature = (license: string) => `${part({ alg: "none", kid: "vendor" })}.${license.split(".")[1]}.`;

const hmacKey = () => ({ kid: "vendor", privateKey: new Uint8Array(Buffer.from(vendor.x, "base64url")) });

async function withOwnKey(): Promise<string> {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const header = { alg: "EdDSA", jwk: publicKey.export({ format: "jwk" }) as { kty: string } };
  return await new SignJWT(claims).setProtectedHeader(header).sign(privateKey);
}
