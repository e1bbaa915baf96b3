// The cryptographic bill of materials and the dates of post-quantum standards, over HTTP.
import { readFileSync } from "node:fs";
import path from "node:path";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { algorithmOf, signatureAlgorithmOf } from "../../shared/cryptography/algorithm.ts";
import { compareRanks, dayOfTag, type Rank } from "../../shared/cryptography/post-quantum.ts";
import { RULES, rulesFor, STANDARD_IDS } from "../../shared/cryptography/rules.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";

const VAULT = "kv-crypto";
const KEYS = [
  { name: "rsa-2048", expiresInDays: 100 },
  { name: "rsa-3072", type: "RSA-HSM", size: 3072, tags: { protectUntil: "2050" } },
  { name: "p-256", type: "EC", curve: "P-256", tags: { protectUntil: "2041-06-30" } },
  { name: "p-384", type: "EC-HSM", curve: "P-384", tags: { protectUntil: "soon" } },
  { name: "disabled", enabled: false },
] as const;

const company: Company = {
  subscriptions: [
    {
      name: "Acme Production",
      vaults: [
        {
          name: VAULT,
          keys: [...KEYS],
          certificates: [
            { name: "www", issuer: "DigiCert", dnsNames: ["www.acme.example"], expiresInDays: 60 },
            { name: "api", type: "EC", curve: "P-384", issuer: "Unknown", expiresInDays: 90 },
          ],
          secrets: [{ name: "password" }],
        },
      ],
      resources: [
        {
          type: "Microsoft.Web/sites",
          name: "app-www",
          kind: "app,linux",
          identity: { system: true },
          properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
          settings: { CERTIFICATE: `@Microsoft.KeyVault(SecretUri={uri:${VAULT}}/secrets/www)` },
        },
      ],
    },
  ],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
  await service.scan();
  await service.admin("POST", "/api/assets/dependencies/discover");
});
afterAll(() => service?.stop());

const SCHEMAS = path.resolve(import.meta.dirname, "../../node_modules/@cyclonedx/cyclonedx-library/res/schema");
const schemaOf = (name: string) => JSON.parse(readFileSync(path.join(SCHEMAS, `${name}.SNAPSHOT.schema.json`), "utf8"));

/** Returns a function that returns the errors of a document by the published schema of CycloneDX 1.7. */
function validator(): (document: unknown) => unknown {
  const ajv = new Ajv({ strict: false });
  addFormats.default(ajv).addFormat("iri-reference", true).addFormat("idn-email", true);
  // Without the $id, the references to the other schemas are resolved by their file names.
  for (const name of ["spdx", "jsf-0.82", "cryptography-defs"]) {
    const { $id: _, ...schema } = schemaOf(name);
    ajv.addSchema(schema, `${name}.SNAPSHOT.schema.json`);
  }
  const { $id: _, ...schema } = schemaOf("bom-1.7");
  const validate = ajv.compile(schema);
  return (document) => (validate(document) ? null : validate.errors);
}

// biome-ignore lint/suspicious/noExplicitAny: the tests know the shape of the documents.
type Any = any;
const readCbom = async (query = ""): Promise<Any> =>
  JSON.parse((await service.admin("GET", `/compliance/cbom${query}`)).text);
const readList = async (query = ""): Promise<Any> =>
  (await service.admin("GET", `/compliance/post-quantum${query}`)).body;
const refOf = (type: string, name: string) => `asset:${VAULT}.${type}.${name}`;

describe("the bill of materials", () => {
  test("is valid CycloneDX 1.7, and the schema rejects an unknown primitive", async () => {
    const problemsOf = validator();
    const bom = await readCbom();
    expect(problemsOf(bom)).toBeNull();
    const wrong = structuredClone(bom);
    const algorithm = wrong.components.find((one: Any) => one.cryptoProperties?.assetType === "algorithm");
    algorithm.cryptoProperties.algorithmProperties.primitive = "magic";
    expect(problemsOf(wrong)).not.toBeNull();
  });

  test("has each key with its algorithm, size, dates, state and protection", async () => {
    const { components } = await readCbom();
    const byRef = new Map<string, Any>(components.map((one: Any) => [one["bom-ref"], one]));
    const keyOf = (name: string) => byRef.get(refOf("key", name)).cryptoProperties.relatedCryptoMaterialProperties;
    expect(components.filter((one: Any) => /^asset:.*\.key\./.test(one["bom-ref"]))).toHaveLength(KEYS.length);
    expect(keyOf("rsa-2048")).toMatchObject({
      type: "private-key",
      state: "active",
      size: 2048,
      creationDate: expect.any(String),
      expirationDate: expect.any(String),
      securedBy: { mechanism: "Software" },
      relatedCryptographicAssets: [{ type: "algorithm", ref: "algorithm:RSA-2048" }],
    });
    expect(keyOf("rsa-3072")).toMatchObject({ size: 3072, securedBy: { mechanism: "HSM" } });
    expect(keyOf("disabled").state).toBe("deactivated");
    expect(byRef.get("algorithm:EC-P-384").cryptoProperties.algorithmProperties).toEqual({
      primitive: "signature",
      algorithmFamily: "ECDSA",
      parameterSetIdentifier: "P-384",
      ellipticCurve: "nist/P-384",
      classicalSecurityLevel: 192,
      nistQuantumSecurityLevel: 0,
    });
    expect(components.map((one: Any) => one.name)).not.toContain("password");
  });

  test("has each certificate with its names, validity, signature algorithm and public key", async () => {
    const { components, dependencies } = await readCbom();
    const byRef = new Map<string, Any>(components.map((one: Any) => [one["bom-ref"], one]));
    const ref = refOf("certificate", "www");
    const { certificateProperties } = byRef.get(ref).cryptoProperties;
    expect(certificateProperties).toMatchObject({
      serialNumber: expect.stringMatching(/^[0-9a-f]+$/),
      subjectName: expect.stringContaining("CN=www"),
      issuerName: expect.stringMatching(/digicert/i),
      notValidBefore: expect.any(String),
      notValidAfter: expect.any(String),
      fingerprint: { alg: "SHA-1", content: expect.stringMatching(/^[0-9a-f]{40}$/) },
      certificateState: [{ state: "active" }],
    });
    const [signature, publicKey] = certificateProperties.relatedCryptographicAssets;
    expect(byRef.get(signature.ref).cryptoProperties.algorithmProperties.primitive).toBe("signature");
    expect(publicKey).toEqual({ type: "publicKey", ref: `${ref}#public-key` });
    expect(byRef.get(publicKey.ref).cryptoProperties.relatedCryptoMaterialProperties).toMatchObject({ size: 2048 });
    // The app reads the secret of the certificate.
    const used = dependencies.filter(({ dependsOn }: Any) => dependsOn.includes(ref));
    expect(used.map((one: Any) => byRef.get(one.ref).name)).toEqual(["app-www"]);
  });

  test("contains each component once, and refers only to components that it contains", async () => {
    const { components, dependencies } = await readCbom();
    const refs = components.map((one: Any) => one["bom-ref"]);
    expect(new Set(refs).size).toBe(refs.length);
    const used = dependencies.flatMap(({ ref, dependsOn }: Any) => [ref, ...dependsOn]);
    const inComponents = [...JSON.stringify(components).matchAll(/"ref":"([^"]+)"/g)].map(([, ref]) => ref);
    expect([...used, ...inComponents].filter((ref) => !refs.includes(ref))).toEqual([]);
  });

  test("has the same serial number for the same contents, and another one for others", async () => {
    const [first, second, keys] = [await readCbom(), await readCbom(), await readCbom("?type=key")];
    expect(second.serialNumber).toBe(first.serialNumber);
    expect(keys.serialNumber).not.toBe(first.serialNumber);
    expect(keys.components.some((one: Any) => one["bom-ref"].includes(".certificate."))).toBe(false);
  });
});

describe("the list of post-quantum dates", () => {
  test("ranks by the time that an asset must protect, then by its consumers", async () => {
    const { items, summary } = await readList();
    expect(items.slice(0, 2).map(({ name }: Any) => name)).toEqual(["rsa-3072", "p-256"]);
    expect(items.map(({ name }: Any) => name)).not.toContain("disabled");
    const byName = new Map<string, Any>(items.map((item: Any) => [item.name, item]));
    expect(byName.get("rsa-3072")).toMatchObject({ protectUntil: "2050-12-31", protectUntilSource: "tag" });
    expect(byName.get("p-256")).toMatchObject({ protectUntil: "2041-06-30", hasInvalidTag: false });
    expect(byName.get("p-384")).toMatchObject({ protectUntilSource: "setting", hasInvalidTag: true });
    expect(byName.get("www")).toMatchObject({ protectUntilSource: "expiry", consumers: 1 });
    expect(summary).toMatchObject({ assets: 6, vulnerable: 6, safe: 0, unknown: 0, consumersKnown: true });
    expect(summary.byAlgorithm).toContainEqual({ algorithm: "EC-P-384", assets: 2 });
  });

  test("can be filtered by the effect of quantum computers", async () => {
    const { items, summary } = await readList("?quantum=unknown");
    expect([items, summary.assets]).toEqual([[], 0]);
    expect((await readList("?quantum=vulnerable")).summary.assets).toBe(6);
  });

  test("has the dates of each standard with its source", async () => {
    const { items } = await readList("?type=key");
    const datesOf = (name: string) =>
      items
        .find((item: Any) => item.name === name)
        .standards.map(({ standard, deprecatedAfter, disallowedAfter, state }: Any) => [
          standard,
          deprecatedAfter,
          disallowedAfter,
          state,
        ]);
    expect(datesOf("rsa-2048")).toEqual([
      ["nistIr8547", "2030-12-31", "2035-12-31", "allowed"],
      ["cnsa2", null, null, "disallowed"],
      ["bsiTr02102", null, "2023-12-31", "disallowed"],
    ]);
    expect(datesOf("p-384")).toEqual([
      ["nistIr8547", null, "2035-12-31", "allowed"],
      ["cnsa2", "2025-12-31", "2033-12-31", "deprecated"],
      ["bsiTr02102", "2030-12-31", "2031-12-31", "allowed"],
    ]);
    for (const { source, rule } of items[0].standards)
      expect([source, rule]).toEqual([expect.stringMatching(/^https:/), expect.stringMatching(/\.$/)]);
  });

  test("has pages with each asset once, in the order of the whole list", async () => {
    const whole = (await readList()).items.map(({ id }: Any) => id);
    const ids: string[] = [];
    for (let cursor = ""; ; ) {
      const { items, nextCursor, total } = await readList(`?limit=2${cursor}`);
      expect([items.length <= 2, total]).toEqual([true, whole.length]);
      ids.push(...items.map(({ id }: Any) => id));
      if (nextCursor === null) break;
      cursor = `&cursor=${nextCursor}`;
    }
    expect(ids).toEqual(whole);
    const { nextCursor } = await readList("?limit=2");
    expect((await service.admin("GET", `/compliance/post-quantum?type=key&cursor=${nextCursor}`)).status).toBe(400);
  });
});

describe("the rules", () => {
  test("have one rule of each standard for every algorithm, with a source", () => {
    const algorithms = [
      ...[1024, 2048, 3072, 4096].map((keySize) => ({ keyType: "RSA", keySize })),
      ...["P-256", "P-256K", "P-384", "P-521"].map((keyCurve) => ({ keyType: "EC-HSM", keyCurve })),
      ...[128, 256].map((keySize) => ({ keyType: "oct-HSM", keySize })),
    ].map((key) => algorithmOf(key)!);
    const used = new Set(
      algorithms.flatMap((algorithm) => (["key", "certificate"] as const).flatMap((type) => rulesFor(algorithm, type))),
    );
    expect(RULES.filter((rule) => !used.has(rule))).toEqual([]);
    for (const algorithm of algorithms)
      expect(rulesFor(algorithm, "key").map(({ standard }) => standard)).toEqual(STANDARD_IDS);
    expect(algorithms.map(({ strength }) => strength)).toEqual([80, 112, 128, 128, 128, 128, 192, 256, 128, 256]);
    expect(algorithmOf({ keyType: "RSA" })).toBeUndefined();
    expect(algorithmOf({ keyType: "EC", keyCurve: "constructor" })).toBeUndefined();
    expect(signatureAlgorithmOf("constructor")).toBeUndefined();
  });

  test("a tag is a year or a date", () => {
    expect(
      ["2040", " 2040-06-30 ", "2040-02-30", "0000", "40", "2040-6-1", ""].map((value) => dayOfTag(value)),
    ).toEqual(["2040-12-31", "2040-06-30", ...Array(5).fill(undefined)]);
  });

  test("ranks are in one order: state, time, consumers, ID", () => {
    const ranks: Rank[] = [
      [0, "2050-01-01", 0, "b"],
      [0, "2040-01-01", 7, "a"],
      [0, "2040-01-01", 1, "a"],
      [0, "2040-01-01", 1, "b"],
      [1, "2099-01-01", 9, "a"],
      [2, "2099-01-01", 9, "a"],
    ];
    expect(ranks.toReversed().sort(compareRanks)).toEqual(ranks);
  });
});
