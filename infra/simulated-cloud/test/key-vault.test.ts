import { X509Certificate } from "node:crypto";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import type { Company } from "../company/company.ts";
import { SdkClient } from "./sdk-client.ts";

// Tests Key Vault in the simulated cloud with Azure's SDK clients.

const company: Company = {
  subscriptions: [
    {
      name: "Main",
      vaults: [
        {
          name: "kv-main",
          secrets: [
            {
              name: "plain",
              value: "s3cret",
              expiresInDays: 10,
              tags: { note: "Zürich ✓" },
              contentType: "text/plain",
            },
            { name: "off", enabled: false },
            { name: "later", activeInDays: 5 },
          ],
          keys: [
            { name: "rsa", size: 4096, rotation: { rotateAfterDays: 90, expiryDays: 730 } },
            { name: "koblitz", type: "EC", curve: "P-256K" },
          ],
          certificates: [
            { name: "self", expiresInDays: 20, validityMonths: 6, dnsNames: ["a.example", "b.example"] },
            {
              name: "bought",
              issuer: "DigiCert",
              type: "EC",
              curve: "P-384",
              renewal: { action: "EmailContacts", daysBeforeExpiry: 30 },
            },
            { name: "off-too", enabled: false },
          ],
        },
        { name: "kv-many", generate: { secrets: 60, keys: 3, certificates: 4 } },
        // `reach` says whether the service's requests to the vault succeed, or why they are rejected. See the test "rejects".
        { name: "kv-denied", reach: "denied" },
        { name: "kv-policy", reach: "denied", rbac: false },
        { name: "kv-walled", reach: "firewalled" },
        { name: "kv-private", reach: "privateOnly", publicNetworkAccess: "Disabled" },
        { name: "kv-half", deniedKinds: ["keys"] },
        { name: "kv-write", purgeProtection: false },
      ],
    },
  ],
};

const DAY_MS = 86_400_000;
/** Maximum size of a secret's value in Key Vault. */
const MAX_VALUE_BYTES = 25_600;

let cloud: Cloud;
let sdk: SdkClient;
beforeAll(async () => {
  cloud = await startCloud({ company });
  sdk = await SdkClient.start(cloud);
});
afterEach(() => cloud.control.clearFaults());
afterAll(async () => {
  await sdk?.stop();
  await cloud?.stop();
});

test("the first request of a client gets a challenge, and the retry with a token gets the list", async () => {
  cloud.control.resetCounts();
  const listed = await sdk.call("listSecrets", "kv-main");
  expect(listed.map(({ name }) => name)).toEqual(["plain", "off", "later", "self", "bought", "off-too"]);
  expect(cloud.control.counts()).toEqual({
    "identity.token": expect.any(Number),
    "keyvault.challenge": 1,
    "keyvault.listSecrets": 1,
    total: expect.any(Number),
  });
});

test("lists have pages of at most 25 entries, and each item occurs once", async () => {
  // 60 secrets, and those of 4 certificates.
  expect(await sdk.call("listSecretPages", "kv-many", 25)).toEqual([25, 25, 14]);
  expect(await sdk.call("listSecretPages", "kv-many", 10)).toEqual([10, 10, 10, 10, 10, 10, 4]);
  const names = (await sdk.call("listSecrets", "kv-many")).map(({ name }) => name);
  expect(new Set(names).size).toBe(64);
  expect(await sdk.failure("listSecretPages", "kv-many", 26)).toMatchObject({ statusCode: 400, code: "BadParameter" });
});

test("list entries have dates and tags, but no value and no version", async () => {
  const [plain, off, later, managed] = await sdk.call("listSecrets", "kv-main");
  expect(plain).toMatchObject({
    name: "plain",
    enabled: true,
    contentType: "text/plain",
    tags: { note: "Zürich ✓" },
    recoveryLevel: "Recoverable",
  });
  expect(plain!.version).toBeUndefined();
  expect(plain).not.toHaveProperty("value");
  expect(Math.round((plain!.expiresOn!.getTime() - Date.now()) / DAY_MS)).toBe(10);
  expect(off!.enabled).toBe(false);
  expect(later!.notBefore!.getTime()).toBeGreaterThan(Date.now());
  expect(managed).toMatchObject({ name: "self", managed: true, contentType: "application/x-pkcs12" });
  expect((await sdk.call("listKeys", "kv-main")).filter((key) => key.managed).map(({ name }) => name)).toEqual([
    "self",
    "bought",
    "off-too",
  ]);
});

test("keys have a real public key and a rotation policy", async () => {
  const rsa = await sdk.call("getKey", "kv-main", "RSA");
  expect(rsa).toMatchObject({ kty: "RSA", e: "010001" });
  // A hexadecimal digit has four bits.
  expect(rsa.n).toHaveLength(4096 / 4);
  expect(await sdk.call("getKey", "kv-main", "koblitz")).toMatchObject({ kty: "EC", crv: "P-256K" });
  expect(await sdk.call("getRotationPolicy", "kv-main", "rsa")).toMatchObject({
    expiresIn: "P730D",
    lifetimeActions: [
      { action: "Rotate", timeAfterCreate: "P90D" },
      { action: "Notify", timeBeforeExpiry: "P30D" },
    ],
  });
  const standard = await sdk.call("getRotationPolicy", "kv-main", "koblitz");
  expect(standard.lifetimeActions).toMatchObject([{ action: "Notify" }]);
});

test("certificates are real X.509 certificates that match their policy", async () => {
  const { cer, policy, thumbprint } = await sdk.call("getCertificate", "kv-main", "self");
  const parsed = new X509Certificate(Buffer.from(cer, "base64"));
  expect(parsed.verify(parsed.publicKey)).toBe(true);
  expect(parsed.subjectAltName).toBe("DNS:a.example, DNS:b.example");
  expect(parsed.fingerprint.replaceAll(":", "").toLowerCase()).toBe(thumbprint);
  expect(Math.round((Date.parse(parsed.validTo) - Date.now()) / DAY_MS)).toBe(20);
  expect(policy).toMatchObject({ issuerName: "Self", keyType: "RSA", keySize: 2048, validityInMonths: 6 });

  const bought = await sdk.call("getCertificate", "kv-main", "bought");
  expect(new X509Certificate(Buffer.from(bought.cer, "base64"))).toMatchObject({
    issuer: expect.stringContaining("DigiCert"),
    publicKey: expect.objectContaining({ asymmetricKeyDetails: { namedCurve: "secp384r1" } }),
  });
  expect(bought.policy).toMatchObject({
    keyCurveName: "P-384",
    lifetimeActions: [{ action: "EmailContacts", daysBeforeExpiry: 30 }],
  });
  const listed = await sdk.call("listCertificates", "kv-main");
  expect(Buffer.from(listed[0]!.x509Thumbprint!).toString("hex")).toBe(thumbprint);
});

describe("rejects", () => {
  test.each([
    ["kv-denied", "ForbiddenByRbac"],
    ["kv-policy", "AccessDenied"],
    ["kv-walled", "ForbiddenByFirewall"],
    ["kv-private", "ForbiddenByConnection"],
  ])("every request to the vault %s, with the inner code %s", async (vault, inner) => {
    expect(await sdk.failure("listSecrets", vault)).toMatchObject({ statusCode: 403, code: "Forbidden" });
    const { details } = await sdk.failure("getSecret", vault, "any");
    expect(details).toMatchObject({ error: { code: "Forbidden", innerError: { code: inner } } });
  });

  test("the list of a denied kind, but not the other lists", async () => {
    expect(await sdk.failure("listKeys", "kv-half")).toMatchObject({ statusCode: 403 });
    expect(await sdk.call("listSecrets", "kv-half")).toEqual([]);
  });

  test("the value of a disabled secret, but not a disabled key or certificate", async () => {
    const failure = await sdk.failure("getSecret", "kv-main", "off");
    expect(failure).toMatchObject({ statusCode: 403, message: expect.stringContaining("disabled secret") });
    expect(await sdk.call("getCertificate", "kv-main", "off-too")).toMatchObject({ properties: { enabled: false } });
  });

  test("an unknown item, with an error code per kind", async () => {
    expect(await sdk.failure("getSecret", "kv-main", "no")).toMatchObject({ statusCode: 404, code: "SecretNotFound" });
    expect(await sdk.failure("getKey", "kv-main", "no")).toMatchObject({ code: "KeyNotFound" });
    expect(await sdk.failure("getCertificate", "kv-main", "no")).toMatchObject({ code: "CertificateNotFound" });
    expect(await sdk.failure("getRotationPolicy", "kv-main", "no")).toMatchObject({ code: "KeyNotFound" });
    expect(await sdk.failure("listSecrets", "kv-none")).toMatchObject({ statusCode: 404, code: "VaultNotFound" });
  });

  test("a token for Azure Resource Manager", async () => {
    const scope = `${cloud.environment.AZURE_RESOURCE_MANAGER_ENDPOINT}/.default`;
    const failure = await sdk.failure("secretWithTokenFor", "kv-main", "plain", scope);
    expect(failure).toMatchObject({ statusCode: 401, code: "Unauthorized" });
    expect(failure.details?.error?.message).toContain("Invalid audience");
  });
});

describe("a written secret", () => {
  test("gets a new version with each write, and old versions stay readable", async () => {
    const first = await sdk.call("setSecret", "kv-write", "Token", "one", { by: "test" });
    const second = await sdk.call("setSecret", "kv-write", "token", "two", {});
    expect(second.properties.version).not.toBe(first.properties.version);
    expect(await sdk.call("getSecret", "kv-write", "TOKEN")).toMatchObject({ name: "Token", value: "two" });
    const old = await sdk.call("getSecret", "kv-write", "Token", first.properties.version);
    expect(old).toMatchObject({ value: "one", properties: { tags: { by: "test" }, contentType: "text/plain" } });
    expect(await sdk.call("listSecretVersions", "kv-write", "Token")).toHaveLength(2);
    expect(await sdk.call("disableSecret", "kv-write", "Token")).toMatchObject({ enabled: false });
    expect(await sdk.failure("getSecret", "kv-write", "Token")).toMatchObject({ statusCode: 403 });
  });

  test("blocks its name after its deletion, until it is recovered", async () => {
    await sdk.call("setSecret", "kv-write", "gone", "value", {});
    expect(await sdk.call("deleteSecret", "kv-write", "gone")).toContain("/deletedsecrets/gone");
    expect(await sdk.failure("getSecret", "kv-write", "gone")).toMatchObject({ code: "SecretNotFound" });
    expect(await sdk.failure("setSecret", "kv-write", "gone", "new", {})).toMatchObject({ statusCode: 409 });
    expect(await sdk.call("recoverSecret", "kv-write", "gone")).toBe("gone");
    expect(await sdk.call("getSecret", "kv-write", "gone")).toMatchObject({ value: "value" });
  });

  test("must have a valid name, value size and number of tags", async () => {
    expect(await sdk.failure("setSecret", "kv-write", "a_b", "x", {})).toMatchObject({ code: "BadParameter" });
    const failure = await sdk.failure("setSecret", "kv-write", "long", "x".repeat(MAX_VALUE_BYTES + 1), {});
    expect(failure).toMatchObject({ statusCode: 400, code: "BadParameter" });
    const tags = Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`t${index}`, "x"]));
    expect(await sdk.failure("setSecret", "kv-write", "tagged", "x", tags)).toMatchObject({ statusCode: 400 });
  });

  test("cannot be changed if it belongs to a certificate", async () => {
    expect(await sdk.failure("setSecret", "kv-main", "self", "x", {})).toMatchObject({ statusCode: 403 });
  });
});

describe("a throttled client", () => {
  test("retries if the response has Retry-After, and otherwise fails at once", async () => {
    const match = { vault: "kv-main", operation: "keyvault.listSecrets" };
    cloud.control.addFault({ match, action: { kind: "throttle", retryAfterSeconds: 0 }, times: 1 });
    expect(await sdk.call("listSecrets", "kv-main")).toHaveLength(6);

    cloud.control.resetCounts();
    cloud.control.addFault({ match, action: { kind: "throttle" } });
    const failure = await sdk.failure("listSecrets", "kv-main");
    expect(failure).toMatchObject({ statusCode: 429, code: "Throttled" });
    expect(cloud.control.counts()["keyvault.listSecrets"]).toBe(1);
  });
});
