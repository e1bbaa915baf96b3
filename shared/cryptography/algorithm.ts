import type { AssetRecord } from "../inventory/asset.ts";

/** The algorithms of keys and certificates, by the names that Key Vault and X.509 use. */

export const FAMILIES = ["RSA", "EC", "AES"] as const;
type Family = (typeof FAMILIES)[number];

/** The algorithm of a key, or of a certificate's key. */
export interface Algorithm {
  /** For example `RSA-2048`, `EC-P-256` or `AES-256`. */
  name: string;
  family: Family;
  /** Bits of the key. */
  size: number;
  /** Only for EC, as Key Vault names it. */
  curve?: string;
  /** Security strength in bits against classical computers: NIST SP 800-57 part 1 revision 5, tables 2 and 3. */
  strength: number;
}

/** Bits of the curves of Key Vault. */
const CURVE_BITS: Readonly<Record<string, number>> = { "P-256": 256, "P-256K": 256, "P-384": 384, "P-521": 521 };

/** Smallest RSA size of each strength, the largest first. */
const RSA_STRENGTHS = [
  [15_360, 256],
  [7680, 192],
  [3072, 128],
  [2048, 112],
  [1024, 80],
] as const;

/** Returns the algorithm of an asset. Undefined if its type, or the size or curve of its key, is unknown. */
export function algorithmOf({
  keyType,
  keySize,
  keyCurve,
}: Pick<AssetRecord, "keyType" | "keySize" | "keyCurve">): Algorithm | undefined {
  const type = keyType?.toUpperCase().replace(/-HSM$/, "");
  if (type === "RSA" && keySize !== undefined) {
    const strength = RSA_STRENGTHS.find(([size]) => keySize >= size)?.[1] ?? 0;
    return { name: `RSA-${keySize}`, family: "RSA", size: keySize, strength };
  }
  const curve = keyCurve?.toUpperCase().replace(/^SECP256K1$/, "P-256K");
  if (type === "EC" && curve !== undefined && Object.hasOwn(CURVE_BITS, curve)) {
    const size = CURVE_BITS[curve]!;
    // Half of the bits. NIST counts P-521 as 256.
    return { name: `EC-${curve}`, family: "EC", size, curve, strength: Math.min(256, size / 2) };
  }
  // Key Vault calls a symmetric key `oct`. It is used for AES.
  if (type === "OCT" && keySize !== undefined)
    return { name: `AES-${keySize}`, family: "AES", size: keySize, strength: keySize };
  return undefined;
}

/** Returns whether a quantum computer breaks the algorithm: Shor's algorithm breaks RSA and EC, but no symmetric algorithm. */
export const isQuantumVulnerable = ({ family }: Algorithm): boolean => family !== "AES";

/** An algorithm of signatures of certificates. */
export interface SignatureAlgorithm {
  name: string;
  /** Family and hash as CycloneDX 1.7 names them. */
  family: "RSASSA-PKCS1" | "RSASSA-PSS" | "ECDSA" | "EdDSA" | "ML-DSA";
  parameterSet?: string;
}

/**
 * Signature algorithms by object identifier: RFC 8017 (RSA), RFC 5758 (ECDSA), RFC 8410 (EdDSA), RFC 9881 (ML-DSA). The hash of
 * RSASSA-PSS is in its parameters, which are not stored.
 */
const SIGNATURE_ALGORITHMS: Readonly<Record<string, SignatureAlgorithm>> = {
  "1.2.840.113549.1.1.5": { name: "RSA-PKCS1-1.5-SHA-1", family: "RSASSA-PKCS1", parameterSet: "SHA-1" },
  "1.2.840.113549.1.1.11": { name: "RSA-PKCS1-1.5-SHA-256", family: "RSASSA-PKCS1", parameterSet: "SHA-256" },
  "1.2.840.113549.1.1.12": { name: "RSA-PKCS1-1.5-SHA-384", family: "RSASSA-PKCS1", parameterSet: "SHA-384" },
  "1.2.840.113549.1.1.13": { name: "RSA-PKCS1-1.5-SHA-512", family: "RSASSA-PKCS1", parameterSet: "SHA-512" },
  "1.2.840.113549.1.1.10": { name: "RSA-PSS", family: "RSASSA-PSS" },
  "1.2.840.10045.4.1": { name: "ECDSA-SHA-1", family: "ECDSA", parameterSet: "SHA-1" },
  "1.2.840.10045.4.3.2": { name: "ECDSA-SHA-256", family: "ECDSA", parameterSet: "SHA-256" },
  "1.2.840.10045.4.3.3": { name: "ECDSA-SHA-384", family: "ECDSA", parameterSet: "SHA-384" },
  "1.2.840.10045.4.3.4": { name: "ECDSA-SHA-512", family: "ECDSA", parameterSet: "SHA-512" },
  "1.3.101.112": { name: "Ed25519", family: "EdDSA" },
  "1.3.101.113": { name: "Ed448", family: "EdDSA" },
  "2.16.840.1.101.3.4.3.17": { name: "ML-DSA-44", family: "ML-DSA", parameterSet: "44" },
  "2.16.840.1.101.3.4.3.18": { name: "ML-DSA-65", family: "ML-DSA", parameterSet: "65" },
  "2.16.840.1.101.3.4.3.19": { name: "ML-DSA-87", family: "ML-DSA", parameterSet: "87" },
};

/** Returns the signature algorithm of an object identifier. Undefined for one that is not in the table. */
export const signatureAlgorithmOf = (oid: string): SignatureAlgorithm | undefined =>
  Object.hasOwn(SIGNATURE_ALGORITHMS, oid) ? SIGNATURE_ALGORITHMS[oid] : undefined;
