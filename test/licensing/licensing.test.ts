import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { build } from "esbuild";
import { CompactSign, SignJWT } from "jose";
import { describe, expect, test } from "vitest";
import { builtInKeys } from "../../shared/licensing/built-in-keys.ts";
import { createLicensing } from "../../shared/licensing/licensing.ts";

const NOW = Date.parse("2026-11-21T10:00:00Z");
const DAY = 24 * 60 * 60_000;
/** A millisecond, in days. */
const MOMENT = 1 / DAY;
const TENANT = "0b9f8a7e-1111-4222-8333-944455556666";

const keyPair = (kid: string) => {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  return { kid, privateKey, x: publicKey.export({ format: "jwk" }).x! };
};
const vendor = keyPair("vendor");
const KEYS = [{ kid: vendor.kid, x: vendor.x }];

const claims = { tier: "pro", customer: "Contoso", exp: (NOW + 30 * DAY) / 1000 };

function sign(
  payload: object | string,
  key: { kid: string; privateKey: KeyObject | Uint8Array } = vendor,
  alg = "EdDSA",
) {
  const bytes = new TextEncoder().encode(typeof payload === "string" ? payload : JSON.stringify(payload));
  return new CompactSign(bytes).setProtectedHeader({ alg, kid: key.kid }).sign(key.privateKey);
}

function licensed(LICENSE_KEY: string | undefined, days = 0, AZURE_TENANT_ID: string | undefined = undefined) {
  const clock = { now: () => new Date(NOW + days * DAY) };
  return createLicensing({ config: { LICENSE_KEY, AZURE_TENANT_ID }, clock, keys: KEYS });
}

describe("a license", () => {
  test("enables its tier until it expires and for 14 days of grace, and not a moment longer", async () => {
    const license = await sign(claims);
    const at = async (days: number) => {
      const { tier, valid, inGrace, reason, daysLeft } = await licensed(license, days).status();
      return { tier, valid, inGrace, reason, daysLeft };
    };
    expect(await at(0)).toEqual({ tier: "pro", valid: true, inGrace: false, reason: undefined, daysLeft: 30 });
    expect(await at(30 - MOMENT)).toMatchObject({ tier: "pro", inGrace: false, daysLeft: 0 });
    expect(await at(30)).toEqual({ tier: "pro", valid: true, inGrace: true, reason: "expired", daysLeft: 0 });
    expect(await at(44 - MOMENT)).toMatchObject({ tier: "pro", valid: true, inGrace: true, daysLeft: -14 });
    expect(await at(44)).toEqual({ tier: "core", valid: false, inGrace: false, reason: "expired", daysLeft: -14 });
  });

  test("is in the alerts before it expires, while it is valid", async () => {
    const license = await sign(claims);
    const reported = async (days: number, within: number, key: string | undefined = license) => {
      const names: string[] = [];
      const by = new Date(NOW + (days + within) * DAY);
      for await (const { what, name, expiresAt } of licensed(key, days).expiring(by)) {
        names.push(`${what} ${name} ${expiresAt}`);
      }
      return names;
    };
    const line = `Licence PRO ${new Date(claims.exp * 1000).toISOString()}`;
    expect(await reported(0, 29)).toEqual([]);
    expect(await reported(0, 30)).toEqual([line]);
    expect(await reported(29, 3)).toEqual([line]);
    expect(await reported(31, 30)).toEqual([]);
    expect(await reported(0, 60, "garbage")).toEqual([]);
  });

  test("expires no later than the last representable time", async () => {
    const last = 8.64e12;
    const { expiresAt } = await licensed(await sign({ ...claims, exp: last })).status();
    expect(expiresAt?.toISOString()).toBe("+275760-09-13T00:00:00.000Z");
    expect(await licensed(await sign({ ...claims, exp: last + 1 })).status()).toMatchObject({ reason: "malformed" });
  });

  test("expires while the process runs", async () => {
    let now = NOW;
    const config = { LICENSE_KEY: await sign(claims), AZURE_TENANT_ID: undefined };
    const licensing = createLicensing({ config, clock: { now: () => new Date(now) }, keys: KEYS });
    expect(await licensing.tier()).toBe("pro");
    now += 45 * DAY;
    expect(await licensing.tier()).toBe("core");
  });

  test("names its customer and the features it enables", async () => {
    const status = await licensed(await sign(claims)).status();
    expect(status).toMatchObject({ customer: "Contoso", expiresAt: new Date(claims.exp * 1000) });
    const free = ["discovery", "compliance", "alerts", "subscriptions", "audit", "settings"];
    expect(status.features).toEqual([...free, "rotation", "sync", "dependencies", "sso", "users", "b2c"]);
    const core = await licensed(await sign({ ...claims, tier: "core" })).status();
    expect(core).toMatchObject({ tier: "core", valid: true });
    expect(core.features).toEqual(free);
  });

  test("for one tenant is valid in that tenant only", async () => {
    const license = await sign({ ...claims, tenantId: TENANT.toUpperCase() });
    expect(await licensed(license, 0, TENANT).status()).toMatchObject({ tier: "pro", valid: true });
    for (const other of [undefined, "0b9f8a7e-1111-4222-8333-944455550000"]) {
      expect(await licensed(license, 0, other).status()).toMatchObject({ tier: "core", reason: "wrongTenant" });
    }
  });

  test.each<[string, string, () => string | undefined | Promise<string>]>([
    ["none", "missing", () => undefined],
    ["no JWS", "malformed", () => "not-a-licence"],
    ["one whose payload is no JSON", "malformed", () => sign("pro")],
    ["one without an expiry", "malformed", () => sign({ tier: "pro", customer: "Contoso" })],
    ["one of an unknown tier", "malformed", () => sign({ ...claims, tier: "gold" })],
    ["one that is changed", "badSignature", async () => changed(await sign(claims))],
    ["one of another key under the vendor's name", "badSignature", () => sign(claims, keyPair("vendor"))],
    ["one of an unknown key", "unknownKey", () => sign(claims, keyPair("other"))],
    ["one without a signature", "malformed", async () => unsigned(await sign(claims))],
    ["one signed with the public key as a secret", "malformed", () => sign(claims, hmacKey(), "HS256")],
    ["one whose key comes along", "unknownKey", () => withOwnKey()],
  ])("that is %s is %s, and the tier is core", async (_what, reason, make) => {
    const status = await licensed(await make()).status();
    expect(status).toMatchObject({ tier: "core", valid: false, inGrace: false, reason });
    expect(status.customer).toBeUndefined();
    expect(await licensed(await make()).tier()).toBe("core");
  });
});

describe("the keys in a build", () => {
  async function built(define: Record<string, string>): Promise<{ kid: string; x: string }[]> {
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

  test("are the vendor's, and those that a build argument adds", async () => {
    const added = [{ kid: "development", x: vendor.x }];
    const keys = await built({ __DEVELOPMENT_LICENSE_KEYS__: JSON.stringify(JSON.stringify(added)) });
    expect(keys).toEqual([...builtInKeys(), ...added]);
    expect(await built({ __DEVELOPMENT_LICENSE_KEYS__: '"[]"' })).toEqual(builtInKeys());
    expect(await built({})).toEqual(builtInKeys());
    expect(builtInKeys().map(({ kid }) => kid)).toContain("vendor-2026-11");
  });

  test("can't be replaced by a setting", async () => {
    const before = builtInKeys();
    process.env.__DEVELOPMENT_LICENSE_KEYS__ = JSON.stringify([{ kid: "vendor-2026-11", x: vendor.x }]);
    try {
      expect(builtInKeys()).toEqual(before);
    } finally {
      delete process.env.__DEVELOPMENT_LICENSE_KEYS__;
    }
  });
});

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

function changed(license: string): string {
  const [header, , signature] = license.split(".");
  return [header, part({ ...claims, exp: claims.exp + 1 }), signature].join(".");
}

const unsigned = (license: string) => `${part({ alg: "none", kid: "vendor" })}.${license.split(".")[1]}.`;

const hmacKey = () => ({ kid: "vendor", privateKey: new Uint8Array(Buffer.from(vendor.x, "base64url")) });

async function withOwnKey(): Promise<string> {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const header = { alg: "EdDSA", jwk: publicKey.export({ format: "jwk" }) as { kty: string } };
  return await new SignJWT(claims).setProtectedHeader(header).sign(privateKey);
}
