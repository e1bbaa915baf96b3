import { createHash } from "node:crypto";
import { v5 } from "uuid";
import { type AssetRecord, assetId, isStale, titleOfCredential } from "../inventory/asset.ts";
import { PRODUCT } from "../platform/product.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type Algorithm, algorithmOf, isQuantumVulnerable, signatureAlgorithmOf } from "./algorithm.ts";

/**
 * Writes a part of the cryptographic bill of materials in CycloneDX 1.7 (https://cyclonedx.org/docs/1.7/json/). Each part is a
 * valid document. A certificate is a component with a second one for its public key, because only the key has an algorithm with
 * a size. Algorithms are components too, and other components refer to them.
 */
export interface CbomPart {
  json: string;
  /** Number of keys and certificates. */
  assets: number;
}

/** A resource that uses the asset with this ID: `<vault>.<type>.<name>` in lower case. */
export interface AssetConsumer {
  assetId: string;
  resource: { id: string; kind: string; name: string };
}

interface CbomContext {
  /** Milliseconds since 1970. */
  now: number;
  /** 1 for the first part. */
  part: number;
  isOnlyPart: boolean;
  consumersOf(asset: AssetRecord): readonly AssetConsumer["resource"][];
  /** Version of the service. */
  version: string;
}

/** Curves of Key Vault as CycloneDX names them. */
const ELLIPTIC_CURVES: Readonly<Record<string, string>> = {
  "P-256": "nist/P-256",
  "P-384": "nist/P-384",
  "P-521": "nist/P-521",
  "P-256K": "secg/secp256k1",
};

/** Properties of this service have this prefix. */
const PREFIX = "credential-lifecycle:";

type Json = Record<string, unknown>;

/** Writes the components and dependencies of one part. A component is written once, however many others refer to it. */
class Writer {
  readonly #components: string[] = [];
  readonly #written = new Set<string>();
  readonly #dependencies = new Map<string, Set<string>>();

  /** Adds a component, unless its `bom-ref` exists. */
  component(component: { "bom-ref": string } & Json): void {
    const ref = component["bom-ref"];
    if (this.#written.has(ref)) return;
    this.#written.add(ref);
    this.#components.push(JSON.stringify(component));
  }

  dependency(ref: string, dependsOn: string): void {
    const known = this.#dependencies.get(ref) ?? new Set();
    this.#dependencies.set(ref, known.add(dependsOn));
  }

  /** Returns the two lists as members of a JSON object, without its braces. */
  text(): string {
    const dependencies = [...this.#dependencies].map(([ref, on]) => JSON.stringify({ ref, dependsOn: [...on] }));
    return `"components":[\n${this.#components.join(",\n")}\n],"dependencies":[\n${dependencies.join(",\n")}\n]`;
  }
}

/** Returns a part of the bill. The same assets and consumers give the same serial number, which is a hash of them. */
export function cbomPart(assets: readonly AssetRecord[], context: CbomContext): CbomPart {
  const writer = new Writer();
  for (const asset of assets) {
    const ref = refOf(asset);
    if (asset.type === "certificate") addCertificate(writer, asset, context.now);
    else addKey(writer, asset, context.now);
    for (const { id, kind, name } of context.consumersOf(asset)) {
      const consumer = `resource:${id.toLowerCase()}`;
      writer.component({
        type: "application",
        "bom-ref": consumer,
        name,
        properties: [
          { name: `${PREFIX}resourceId`, value: id },
          { name: `${PREFIX}resourceKind`, value: kind },
        ],
      });
      writer.dependency(consumer, ref);
    }
    if (asset.credential) addApplication(writer, asset, ref);
  }
  const body = writer.text();
  const serial = v5(createHash("sha256").update(body).digest("hex"), v5.URL);
  const head = {
    $schema: "http://cyclonedx.org/schema/bom-1.7.schema.json",
    bomFormat: "CycloneDX",
    specVersion: "1.7",
    serialNumber: `urn:uuid:${serial}`,
    version: 1,
    metadata: {
      timestamp: new Date(context.now).toISOString(),
      lifecycles: [{ phase: "operations" }],
      tools: { components: [{ type: "application", name: PRODUCT, version: context.version }] },
      properties: [{ name: `${PREFIX}part`, value: String(context.part) }],
    },
    // A resource may use assets in ways that the service does not see, so dependencies are never complete.
    compositions: [{ aggregate: context.isOnlyPart ? "unknown" : "incomplete" }],
  };
  return { json: `${JSON.stringify(head).slice(0, -1)},${body}}\n`, assets: assets.length };
}

/** The thumbprint of a certificate. A directory can report another identifier. */
const SHA1 = /^[0-9a-f]{40}$/i;

const refOf = (asset: AssetRecord): string => `asset:${assetId(asset)}`;
const instant = (seconds: number | undefined): string | undefined =>
  seconds === undefined ? undefined : new Date(seconds * SECOND_MS).toISOString();

/** State by the dates, as NIST SP 800-57 names it. A disabled key can't be used, so it is deactivated. */
function stateOf({ enabled, notBefore, expiresOn }: AssetRecord, now: number): string {
  if (!enabled || (expiresOn !== undefined && expiresOn * SECOND_MS < now)) return "deactivated";
  return notBefore !== undefined && notBefore * SECOND_MS > now ? "pre-activation" : "active";
}

/** Returns the members that all assets have. */
function commonMembers(asset: AssetRecord): Json {
  const { source, subscriptionId, vaultName, version, credential } = asset;
  const properties = [
    { name: `${PREFIX}id`, value: assetId(asset) },
    ...(credential
      ? [{ name: `${PREFIX}source`, value: source }]
      : [
          { name: `${PREFIX}vault`, value: vaultName },
          { name: `${PREFIX}subscription`, value: subscriptionId },
        ]),
    { name: `${PREFIX}enabled`, value: String(asset.enabled) },
    ...(isStale(asset) ? [{ name: `${PREFIX}stale`, value: "true" }] : []),
  ];
  return {
    type: "cryptographic-asset",
    name: credential ? titleOfCredential(credential) : asset.name,
    ...(version !== undefined && { version }),
    properties,
  };
}

function addKey(writer: Writer, asset: AssetRecord, now: number): void {
  const algorithm = algorithmOf(asset);
  const isHsm = asset.keyType === undefined ? undefined : /-HSM$/i.test(asset.keyType);
  writer.component({
    ...commonMembers(asset),
    "bom-ref": refOf(asset),
    cryptoProperties: {
      assetType: "related-crypto-material",
      relatedCryptoMaterialProperties: {
        type: algorithm?.family === "AES" ? "secret-key" : algorithm ? "private-key" : "key",
        ...(asset.version !== undefined && { id: asset.version }),
        state: stateOf(asset, now),
        ...(algorithm && { size: algorithm.size }),
        ...datesOf({
          creationDate: asset.createdOn,
          activationDate: asset.notBefore,
          updateDate: asset.updatedOn,
          expirationDate: asset.expiresOn,
        }),
        ...(isHsm !== undefined && { securedBy: { mechanism: isHsm ? "HSM" : "Software" } }),
        ...(algorithm && { relatedCryptographicAssets: [{ type: "algorithm", ref: addAlgorithm(writer, algorithm) }] }),
      },
    },
  });
  if (algorithm) writer.dependency(refOf(asset), algorithmRef(algorithm));
}

function addCertificate(writer: Writer, asset: AssetRecord, now: number): void {
  const algorithm = algorithmOf(asset);
  const { certificate: facts, subjectAlternativeNames: names = [] } = asset;
  const ref = refOf(asset);
  const publicKey = `${ref}#public-key`;
  const signature =
    facts?.signatureAlgorithm === undefined ? undefined : addSignature(writer, facts.signatureAlgorithm);
  const related = [
    ...(signature === undefined ? [] : [{ type: "algorithm", ref: signature }]),
    ...(algorithm ? [{ type: "publicKey", ref: publicKey }] : []),
  ];
  writer.component({
    ...commonMembers(asset),
    "bom-ref": ref,
    cryptoProperties: {
      assetType: "certificate",
      certificateProperties: {
        ...(facts?.serialNumber !== undefined && { serialNumber: facts.serialNumber }),
        ...(asset.subject !== undefined && { subjectName: asset.subject }),
        ...(asset.issuer !== undefined && { issuerName: asset.issuer }),
        ...datesOf({
          notValidBefore: facts?.notBefore ?? asset.notBefore,
          notValidAfter: facts?.notAfter ?? asset.expiresOn,
          creationDate: asset.createdOn,
        }),
        certificateFormat: "X.509",
        ...(SHA1.test(asset.thumbprint ?? "") && {
          fingerprint: { alg: "SHA-1", content: asset.thumbprint!.toLowerCase() },
        }),
        certificateState: [{ state: stateOf(asset, now) }],
        ...(names.length > 0 && {
          certificateExtensions: [
            { commonExtensionName: "subjectAlternativeName", commonExtensionValue: names.join(", ") },
          ],
        }),
        ...(related.length > 0 && { relatedCryptographicAssets: related }),
      },
    },
  });
  if (signature !== undefined) writer.dependency(ref, signature);
  if (!algorithm) return;
  writer.component({
    type: "cryptographic-asset",
    "bom-ref": publicKey,
    name: `Public key of ${asset.name}`,
    cryptoProperties: {
      assetType: "related-crypto-material",
      relatedCryptoMaterialProperties: {
        type: "public-key",
        size: algorithm.size,
        relatedCryptographicAssets: [{ type: "algorithm", ref: addAlgorithm(writer, algorithm) }],
      },
    },
  });
  writer.dependency(ref, publicKey);
  writer.dependency(publicKey, algorithmRef(algorithm));
}

const datesOf = (dates: Record<string, number | undefined>): Json =>
  Object.fromEntries(
    Object.entries(dates).flatMap(([name, seconds]) => (seconds === undefined ? [] : [[name, instant(seconds)]])),
  );

const algorithmRef = ({ name }: Algorithm): string => `algorithm:${name}`;

/**
 * Adds the algorithm of a key and returns its reference. A key of RSA or EC can sign and, with RSA, encrypt. The operations of a
 * key are not read, so the primitive of these is `other`.
 */
function addAlgorithm(writer: Writer, algorithm: Algorithm): string {
  const { family, size, curve, strength } = algorithm;
  writer.component({
    type: "cryptographic-asset",
    "bom-ref": algorithmRef(algorithm),
    name: algorithm.name,
    cryptoProperties: {
      assetType: "algorithm",
      algorithmProperties: {
        primitive: family === "AES" ? "block-cipher" : family === "EC" ? "signature" : "other",
        ...(family === "AES" && { algorithmFamily: "AES" }),
        ...(family === "EC" && { algorithmFamily: "ECDSA" }),
        parameterSetIdentifier: curve ?? String(size),
        ...(curve !== undefined && { ellipticCurve: ELLIPTIC_CURVES[curve] }),
        classicalSecurityLevel: strength,
        // NIST's categories 1, 3 and 5 have the strength of AES-128, AES-192 and AES-256. 0: a quantum computer breaks it.
        nistQuantumSecurityLevel: isQuantumVulnerable(algorithm) ? 0 : strength >= 256 ? 5 : strength >= 192 ? 3 : 1,
      },
    },
  });
  return algorithmRef(algorithm);
}

/** Adds the algorithm of a signature and returns its reference. */
function addSignature(writer: Writer, oid: string): string {
  const algorithm = signatureAlgorithmOf(oid);
  const ref = `signature:${algorithm?.name ?? oid}`;
  writer.component({
    type: "cryptographic-asset",
    "bom-ref": ref,
    name: algorithm?.name ?? oid,
    cryptoProperties: {
      assetType: "algorithm",
      algorithmProperties: {
        primitive: "signature",
        ...(algorithm && { algorithmFamily: algorithm.family }),
        ...(algorithm?.parameterSet !== undefined && { parameterSetIdentifier: algorithm.parameterSet }),
      },
      oid,
    },
  });
  return ref;
}

/** Adds the application to which a credential belongs, as its consumer. */
function addApplication(writer: Writer, { credential }: AssetRecord, asset: string): void {
  const { tenantId, appId, applicationName } = credential!;
  const ref = `application:${tenantId}/${appId ?? applicationName}`.toLowerCase();
  writer.component({
    type: "application",
    "bom-ref": ref,
    name: applicationName,
    properties: [
      { name: `${PREFIX}tenant`, value: tenantId },
      ...(appId ? [{ name: `${PREFIX}appId`, value: appId }] : []),
    ],
  });
  writer.dependency(ref, asset);
}
