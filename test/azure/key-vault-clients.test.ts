import { generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { CertificateClient } from "@azure/keyvault-certificates";
import { KeyClient } from "@azure/keyvault-keys";
import { SecretClient } from "@azure/keyvault-secrets";
import fc from "fast-check";
import { makeCertificate } from "simulated-cloud/x509.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { collectItems, fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "./services.ts";

/**
 * Compares the service's Key Vault client with Azure's SDK clients. For random responses of a vault, both must return the same
 * values. fast-check generates the responses.
 */

/** Number of random responses in each test. A campaign is the long test run. */
const RUNS = IS_CAMPAIGN ? 2000 : 60;

let server: FakeServer;
let address: string;
beforeAll(async () => {
  server = await startFakeServer();
  address = `https://kv-odd.vault.localhost:${server.port}`;
});
afterAll(() => server.stop());

const openVault = () => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: fakeIdentity, log: recordingLog(), limits: SHORT_WAITS });
  return vaults.open({ name: "kv-odd", vaultUri: address });
};

const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
/** Seconds since 1970. 2_147_483_648 does not fit in a signed 32-bit integer, 253_402_300_799 ends the year 9999. */
const seconds = optional(fc.oneof(fc.constantFrom(0, 1, 2_147_483_648, 253_402_300_799), fc.nat()));
const text = optional(fc.string({ unit: "grapheme" }));
const texts = optional(fc.array(fc.string(), { maxLength: 3 }));
const bytes = optional(
  fc.uint8Array({ minLength: 1, maxLength: 40 }).map((one) => Buffer.from(one).toString("base64url")),
);
const attributes = optional(
  fc.record({ enabled: optional(fc.boolean()), nbf: seconds, exp: seconds, created: seconds, updated: seconds }),
);
const tags = optional(
  fc.dictionary(
    fc.string({ minLength: 1 }).filter((name) => name !== "__proto__"),
    fc.string(),
  ),
);
const objectName = fc.stringMatching(/^[0-9A-Za-z-]{1,40}$/);
const version = fc.stringMatching(/^[0-9a-f]{32}$/);
const commonMembers = { attributes, tags };

type RandomEntry = Record<string, unknown>;
const identifier = (collection: string, [name, versionId]: readonly [string, string?]) =>
  `${address}/${collection}/${name}${versionId === undefined ? "" : `/${versionId}`}`;
/** Generates entries of a list of objects (`names`), and the same entries as a list of versions (`versions`). */
const randomList = (member: "id" | "kid", collection: string, others: Record<string, fc.Arbitrary<unknown>>) =>
  fc
    .array(fc.tuple(objectName, version, fc.record({ ...commonMembers, ...others })), { maxLength: 5 })
    .map((entries) => ({
      names: entries.map(([name, , entry]): RandomEntry => ({ ...entry, [member]: identifier(collection, [name]) })),
      versions: entries.map(
        ([name, versionId, entry]): RandomEntry => ({ ...entry, [member]: identifier(collection, [name, versionId]) }),
      ),
    }));

function respondWithPages(entries: RandomEntry[]): void {
  server.setResponse((request, response) => {
    const from = Number(new URL(request.url!, address).searchParams.get("from"));
    const { pathname } = new URL(request.url!, address);
    const nextLink = from + 2 < entries.length ? `${address}${pathname}?from=${from + 2}` : null;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ value: entries.slice(from, from + 2), nextLink }));
  });
}
const respondWith = (body: unknown) =>
  server.setResponse((_, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
  });

interface SdkProperties {
  name?: string;
  version?: string;
  enabled?: boolean;
  notBefore?: Date | number;
  expiresOn?: Date | number;
  createdOn?: Date | number;
  updatedOn?: Date | number;
  tags?: object;
  managed?: boolean;
}
/** Returns a date of the SDKs in seconds since 1970. The SDKs return the time 0 as a number. */
const epochSeconds = (date: Date | number | undefined) => (date instanceof Date ? date.getTime() / 1000 : date);
const expectedProperties = (properties: SdkProperties) => ({
  name: properties.name,
  enabled: properties.enabled ?? true,
  notBefore: epochSeconds(properties.notBefore),
  expiresOn: epochSeconds(properties.expiresOn),
  createdOn: epochSeconds(properties.createdOn),
  updatedOn: epochSeconds(properties.updatedOn),
  tags: { ...properties.tags },
  managed: properties.managed ?? false,
});
const upperHex = (value: Uint8Array | undefined) => value && Buffer.from(value).toString("hex").toUpperCase();
async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}
const credential = await fakeIdentity.credential();
const checkProperty = <T>(arbitrary: fc.Arbitrary<T>, check: (value: T) => Promise<void>) =>
  fc.assert(fc.asyncProperty(arbitrary, check), { numRuns: RUNS });

test("lists of secrets and their versions equal those of the SDK", async () => {
  const client = new SecretClient(address, credential);
  await checkProperty(
    randomList("id", "secrets", { contentType: text, managed: optional(fc.boolean()) }),
    async (list) => {
      respondWithPages(list.names);
      const secrets = await collect(client.listPropertiesOfSecrets());
      const expected = secrets.map((one) => ({
        kind: "secret",
        ...expectedProperties(one),
        contentType: one.contentType,
      }));
      expect(await collectItems(openVault().secrets())).toEqual(expected);
      respondWithPages(list.versions);
      const versions = await collect(client.listPropertiesOfSecretVersions("a"));
      const actual = await collectItems(openVault().versions("secret", "a"));
      expect(actual).toEqual(versions.map((one) => ({ ...expectedProperties(one), version: one.version })));
    },
  );
});

test("lists of keys and their versions equal those of the SDK", async () => {
  const client = new KeyClient(address, credential);
  await checkProperty(randomList("kid", "keys", { managed: optional(fc.boolean()) }), async (list) => {
    respondWithPages(list.names);
    const keys = await collect(client.listPropertiesOfKeys());
    expect(await collectItems(openVault().keys())).toEqual(
      keys.map((one) => ({ kind: "key", ...expectedProperties(one) })),
    );
    respondWithPages(list.versions);
    const versions = await collect(client.listPropertiesOfKeyVersions("a"));
    const actual = await collectItems(openVault().versions("key", "a"));
    expect(actual).toEqual(versions.map((one) => ({ ...expectedProperties(one), version: one.version })));
  });
});

test("lists of certificates and their versions equal those of the SDK", async () => {
  const client = new CertificateClient(address, credential);
  await checkProperty(randomList("id", "certificates", { x5t: bytes }), async (list) => {
    respondWithPages(list.names);
    const expected = (await collect(client.listPropertiesOfCertificates())).map((one) => ({
      kind: "certificate",
      ...expectedProperties(one),
      thumbprint: upperHex(one.x509Thumbprint),
    }));
    expect(await collectItems(openVault().certificates())).toEqual(expected);
    respondWithPages(list.versions);
    const versions = await collect(client.listPropertiesOfCertificateVersions("a"));
    const actual = await collectItems(openVault().versions("certificate", "a"));
    expect(actual).toEqual(versions.map((one) => ({ ...expectedProperties(one), version: one.version })));
  });
});

test("a key equals that of the SDK", async () => {
  const client = new KeyClient(address, credential);
  const modulus = fc.tuple(fc.nat(2), fc.uint8Array({ maxLength: 40 }));
  const n = optional(modulus.map(([zeros, rest]) => Buffer.concat([Buffer.alloc(zeros), rest]).toString("base64url")));
  const key = fc.record({ kty: fc.string(), key_ops: texts, n, crv: text });
  await checkProperty(
    fc.tuple(objectName, version, key, attributes),
    async ([name, versionId, members, keyAttributes]) => {
      respondWith({ key: { ...members, kid: identifier("keys", [name, versionId]) }, attributes: keyAttributes });
      const expected = await client.getKey("a");
      const number = expected.key?.n && BigInt(`0x0${Buffer.from(expected.key.n).toString("hex")}`);
      expect((await openVault().key("a")).read()).toEqual({
        version: expected.properties.version,
        keyType: expected.keyType,
        keyCurve: expected.key?.crv,
        keySize: number === undefined ? undefined : number === 0n ? 0 : number.toString(2).length,
        operations: expected.keyOperations ?? [],
      });
    },
  );
});

test("a rotation policy equals that of the SDK", async () => {
  const client = new KeyClient(address, credential);
  const action = fc.record({
    action: fc.record({ type: fc.constantFrom("Rotate", "rotate", "NOTIFY", "Notify") }),
    trigger: optional(fc.record({ timeAfterCreate: text, timeBeforeExpiry: text })),
  });
  const policy = fc.record({
    attributes: optional(fc.record({ expiryTime: text })),
    lifetimeActions: optional(fc.array(action, { maxLength: 3 })),
  });
  await checkProperty(policy, async (body) => {
    respondWith(body);
    const { expiresIn, lifetimeActions = [] } = await client.getKeyRotationPolicy("a");
    expect((await openVault().rotationPolicy("a"))?.read()).toEqual({ expiresIn, lifetimeActions });
  });
});

test("a certificate and its policy equal those of the SDK", async () => {
  const client = new CertificateClient(address, credential);
  const policy = fc.record({
    key_props: optional(fc.record({ kty: text, key_size: optional(fc.nat()), crv: text })),
    x509_props: optional(
      fc.record({
        subject: text,
        validity_months: optional(fc.nat()),
        sans: optional(fc.record({ emails: texts, dns_names: texts, upns: texts })),
      }),
    ),
    issuer: optional(fc.record({ name: text })),
    lifetime_actions: optional(
      fc.array(
        fc.record({
          action: optional(
            fc.record({ action_type: optional(fc.constantFrom("AutoRenew", "EmailContacts", "Other")) }),
          ),
          trigger: optional(
            fc.record({ lifetime_percentage: optional(fc.nat()), days_before_expiry: optional(fc.nat()) }),
          ),
        }),
        { maxLength: 3 },
      ),
    ),
  });
  const { publicKey, privateKey: signingKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const cer = makeCertificate({
    subject: "CN=www.acme.example, O=Acme",
    issuer: "CN=Acme CA",
    serial: randomBytes(8),
    notBefore: new Date("2026-01-01"),
    notAfter: new Date("2027-01-01"),
    publicKey,
    signingKey,
  }).toString("base64");
  const certificate = fc.record({ x5t: bytes, attributes, policy: optional(policy), cer: optional(fc.constant(cer)) });
  await checkProperty(fc.tuple(objectName, version, certificate), async ([name, versionId, members]) => {
    respondWith({ ...members, id: identifier("certificates", [name, versionId]) });
    const { properties, policy: sdkPolicy, cer: der } = await client.getCertificate("a");
    const x509 = der && new X509Certificate(der);
    const alternativeNames = sdkPolicy?.subjectAlternativeNames;
    const actions = (sdkPolicy?.lifetimeActions ?? []).filter(({ action }) => (action as string) !== "Other" && action);
    expect((await openVault().certificate("a")).read()).toMatchObject({
      version: properties.version,
      autoRenew: actions.some(({ action }) => action === "AutoRenew"),
      lifetimeActions: actions.map((one) => JSON.parse(JSON.stringify(one))),
      ...JSON.parse(
        JSON.stringify({
          subject: x509 ? x509.subject.split("\n").join(", ") : sdkPolicy?.subject,
          issuer: x509?.issuer.split("\n").join(", "),
          issuerName: sdkPolicy?.issuerName,
          thumbprint: upperHex(properties.x509Thumbprint),
          validityMonths: sdkPolicy?.validityInMonths,
          keyType: sdkPolicy?.keyType,
          keySize: sdkPolicy?.keySize,
          keyCurve: sdkPolicy?.keyCurveName,
          notBefore: epochSeconds(properties.notBefore),
          expiresOn: epochSeconds(properties.expiresOn),
        }),
      ),
      ...(x509
        ? {}
        : {
            subjectAlternativeNames: [
              ...(alternativeNames?.dnsNames ?? []),
              ...(alternativeNames?.emails ?? []),
              ...(alternativeNames?.userPrincipalNames ?? []),
            ],
          }),
    });
  });
});
