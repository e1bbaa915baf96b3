import { generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { CertificateClient } from "@azure/keyvault-certificates";
import { KeyClient } from "@azure/keyvault-keys";
import { SecretClient } from "@azure/keyvault-secrets";
import fc from "fast-check";
import { makeCertificate } from "simulated-cloud/x509.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

/** Vaults have the values that Azure's own clients return, through our policies and conversions. */

const RUNS = IS_CAMPAIGN ? 2000 : 60;

let server: OddServer;
let address: string;
beforeAll(async () => {
  server = await startOddServer();
  address = `https://kv-odd.vault.localhost:${server.port}`;
});
afterAll(() => server.stop());

const ours = () => {
  const config = testConfig({ AZURE_KEY_VAULT_SUFFIX: "vault.localhost" });
  const vaults = createKeyVaults({ config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT });
  return vaults.open({ name: "kv-odd", vaultUri: address });
};

const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const seconds = maybe(fc.oneof(fc.constantFrom(0, 1, 2_147_483_648, 253_402_300_799), fc.nat()));
const text = maybe(fc.string({ unit: "grapheme" }));
const texts = maybe(fc.array(fc.string(), { maxLength: 3 }));
const bytes = maybe(
  fc.uint8Array({ minLength: 1, maxLength: 40 }).map((one) => Buffer.from(one).toString("base64url")),
);
const attributes = maybe(
  fc.record({ enabled: maybe(fc.boolean()), nbf: seconds, exp: seconds, created: seconds, updated: seconds }),
);
const tags = maybe(
  fc.dictionary(
    fc.string({ minLength: 1 }).filter((name) => name !== "__proto__"),
    fc.string(),
  ),
);
const word = fc.stringMatching(/^[0-9A-Za-z-]{1,40}$/);
const version = fc.stringMatching(/^[0-9a-f]{32}$/);
const described = { attributes, tags };

type Drawn = Record<string, unknown>;
const identifier = (collection: string, [name, of]: readonly [string, string?]) =>
  `${address}/${collection}/${name}${of === undefined ? "" : `/${of}`}`;
/** Returns entries of a list, each with a name of its own, and a version in lists of versions. */
const drawnList = (member: "id" | "kid", collection: string, others: Record<string, fc.Arbitrary<unknown>>) =>
  fc.array(fc.tuple(word, version, fc.record({ ...described, ...others })), { maxLength: 5 }).map((entries) => ({
    names: entries.map(([name, , entry]): Drawn => ({ ...entry, [member]: identifier(collection, [name]) })),
    versions: entries.map(([name, of, entry]): Drawn => ({ ...entry, [member]: identifier(collection, [name, of]) })),
  }));

function answerPages(entries: Drawn[]): void {
  server.answer((request, response) => {
    const from = Number(new URL(request.url!, address).searchParams.get("from"));
    const { pathname } = new URL(request.url!, address);
    const nextLink = from + 2 < entries.length ? `${address}${pathname}?from=${from + 2}` : null;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ value: entries.slice(from, from + 2), nextLink }));
  });
}
const answer = (body: unknown) =>
  server.answer((_, response) => {
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
/** The SDKs return the second 0 as a number. */
const instant = (date: Date | number | undefined) => (date instanceof Date ? date.getTime() / 1000 : date);
const listed = (properties: SdkProperties) => ({
  name: properties.name,
  enabled: properties.enabled ?? true,
  notBefore: instant(properties.notBefore),
  expiresOn: instant(properties.expiresOn),
  createdOn: instant(properties.createdOn),
  updatedOn: instant(properties.updatedOn),
  tags: { ...properties.tags },
  managed: properties.managed ?? false,
});
const upperHex = (value: Uint8Array | undefined) => value && Buffer.from(value).toString("hex").toUpperCase();
async function every<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}
const credential = await plainIdentity.credential();
const drawn = <T>(arbitrary: fc.Arbitrary<T>, holds: (value: T) => Promise<void>) =>
  fc.assert(fc.asyncProperty(arbitrary, holds), { numRuns: RUNS });

test("lists of secrets and of their versions", async () => {
  const client = new SecretClient(address, credential);
  await drawn(drawnList("id", "secrets", { contentType: text, managed: maybe(fc.boolean()) }), async (list) => {
    answerPages(list.names);
    const secrets = await every(client.listPropertiesOfSecrets());
    const expected = secrets.map((one) => ({ kind: "secret", ...listed(one), contentType: one.contentType }));
    expect(await all(ours().secrets())).toEqual(expected);
    answerPages(list.versions);
    const versions = await every(client.listPropertiesOfSecretVersions("a"));
    const read = await all(ours().versions("secret", "a"));
    expect(read).toEqual(versions.map((one) => ({ ...listed(one), version: one.version })));
  });
});

test("lists of keys and of their versions", async () => {
  const client = new KeyClient(address, credential);
  await drawn(drawnList("kid", "keys", { managed: maybe(fc.boolean()) }), async (list) => {
    answerPages(list.names);
    const keys = await every(client.listPropertiesOfKeys());
    expect(await all(ours().keys())).toEqual(keys.map((one) => ({ kind: "key", ...listed(one) })));
    answerPages(list.versions);
    const versions = await every(client.listPropertiesOfKeyVersions("a"));
    const read = await all(ours().versions("key", "a"));
    expect(read).toEqual(versions.map((one) => ({ ...listed(one), version: one.version })));
  });
});

test("lists of certificates and of their versions", async () => {
  const client = new CertificateClient(address, credential);
  await drawn(drawnList("id", "certificates", { x5t: bytes }), async (list) => {
    answerPages(list.names);
    const expected = (await every(client.listPropertiesOfCertificates())).map((one) => ({
      kind: "certificate",
      ...listed(one),
      thumbprint: upperHex(one.x509Thumbprint),
    }));
    expect(await all(ours().certificates())).toEqual(expected);
    answerPages(list.versions);
    const versions = await every(client.listPropertiesOfCertificateVersions("a"));
    const read = await all(ours().versions("certificate", "a"));
    expect(read).toEqual(versions.map((one) => ({ ...listed(one), version: one.version })));
  });
});

test("a key", async () => {
  const client = new KeyClient(address, credential);
  const modulus = fc.tuple(fc.nat(2), fc.uint8Array({ maxLength: 40 }));
  const n = maybe(modulus.map(([zeros, rest]) => Buffer.concat([Buffer.alloc(zeros), rest]).toString("base64url")));
  const key = fc.record({ kty: fc.string(), key_ops: texts, n, crv: text });
  await drawn(fc.tuple(word, version, key, attributes), async ([name, of, members, its]) => {
    answer({ key: { ...members, kid: identifier("keys", [name, of]) }, attributes: its });
    const expected = await client.getKey("a");
    const number = expected.key?.n && BigInt(`0x0${Buffer.from(expected.key.n).toString("hex")}`);
    expect((await ours().key("a")).read()).toEqual({
      version: expected.properties.version,
      keyType: expected.keyType,
      keyCurve: expected.key?.crv,
      keySize: number === undefined ? undefined : number === 0n ? 0 : number.toString(2).length,
      operations: expected.keyOperations ?? [],
    });
  });
});

test("a rotation policy", async () => {
  const client = new KeyClient(address, credential);
  const action = fc.record({
    action: fc.record({ type: fc.constantFrom("Rotate", "rotate", "NOTIFY", "Notify") }),
    trigger: maybe(fc.record({ timeAfterCreate: text, timeBeforeExpiry: text })),
  });
  const policy = fc.record({
    attributes: maybe(fc.record({ expiryTime: text })),
    lifetimeActions: maybe(fc.array(action, { maxLength: 3 })),
  });
  await drawn(policy, async (body) => {
    answer(body);
    const { expiresIn, lifetimeActions = [] } = await client.getKeyRotationPolicy("a");
    expect((await ours().rotationPolicy("a"))?.read()).toEqual({ expiresIn, lifetimeActions });
  });
});

test("a certificate and its policy", async () => {
  const client = new CertificateClient(address, credential);
  const policy = fc.record({
    key_props: maybe(fc.record({ kty: text, key_size: maybe(fc.nat()), crv: text })),
    x509_props: maybe(
      fc.record({
        subject: text,
        validity_months: maybe(fc.nat()),
        sans: maybe(fc.record({ emails: texts, dns_names: texts, upns: texts })),
      }),
    ),
    issuer: maybe(fc.record({ name: text })),
    lifetime_actions: maybe(
      fc.array(
        fc.record({
          action: maybe(fc.record({ action_type: maybe(fc.constantFrom("AutoRenew", "EmailContacts", "Other")) })),
          trigger: maybe(fc.record({ lifetime_percentage: maybe(fc.nat()), days_before_expiry: maybe(fc.nat()) })),
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
  const certificate = fc.record({ x5t: bytes, attributes, policy: maybe(policy), cer: maybe(fc.constant(cer)) });
  await drawn(fc.tuple(word, version, certificate), async ([name, of, members]) => {
    answer({ ...members, id: identifier("certificates", [name, of]) });
    const { properties, policy: its, cer: der } = await client.getCertificate("a");
    const x509 = der && new X509Certificate(der);
    const wanted = its?.subjectAlternativeNames;
    const actions = (its?.lifetimeActions ?? []).filter(({ action }) => (action as string) !== "Other" && action);
    expect((await ours().certificate("a")).read()).toMatchObject({
      version: properties.version,
      autoRenew: actions.some(({ action }) => action === "AutoRenew"),
      lifetimeActions: actions.map((one) => JSON.parse(JSON.stringify(one))),
      ...JSON.parse(
        JSON.stringify({
          subject: x509 ? x509.subject.split("\n").join(", ") : its?.subject,
          issuer: x509?.issuer.split("\n").join(", "),
          issuerName: its?.issuerName,
          thumbprint: upperHex(properties.x509Thumbprint),
          validityMonths: its?.validityInMonths,
          keyType: its?.keyType,
          keySize: its?.keySize,
          keyCurve: its?.keyCurveName,
          notBefore: instant(properties.notBefore),
          expiresOn: instant(properties.expiresOn),
        }),
      ),
      ...(x509
        ? {}
        : {
            subjectAlternativeNames: [
              ...(wanted?.dnsNames ?? []),
              ...(wanted?.emails ?? []),
              ...(wanted?.userPrincipalNames ?? []),
            ],
          }),
    });
  });
});
