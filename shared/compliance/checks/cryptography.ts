/** Checks of key types, key sizes, curves and rotation policies. */
import { isStale } from "../../inventory/asset.ts";
import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";
import { createStrongerCertificate, createStrongerKey, setRotationPolicy } from "../remedies/key-vault.ts";

/** Key types that are allowed by Azure Policy 75c4f823-d65c-4f29-a733-01d0077fdbcb. */
export const APPROVED_KEY_TYPES = ["RSA", "RSA-HSM", "EC", "EC-HSM"];
/**
 * Minimum size of RSA keys in bits: the parameter of Azure Policy 82067dbb-e53b-4e06-b631-546d197452d9 in Microsoft's
 * regulatory sets.
 */
export const MIN_RSA_BITS = 2048;
/**
 * Curves of Key Vault that NIST recommends for signatures and key agreement. P-256K (secp256k1) is only for blockchains.
 * https://csrc.nist.gov/pubs/sp/800/186/final
 */
export const APPROVED_CURVES = ["P-256", "P-384", "P-521"];

const REMEDY_OF = { key: createStrongerKey, certificate: createStrongerCertificate };

const isRsa = (type: string): boolean => type.toUpperCase().startsWith("RSA");
const isEc = (type: string): boolean => type.toUpperCase().startsWith("EC");

const keyType = assetCheck({
  id: "key-type",
  code: 28,
  title: "Key is of type RSA or EC",
  failureTitle: "Key is not of type RSA or EC",
  severity: "high",
  resourceType: "key",
  onlyFor: "whose type is known",
  rationale:
    "With RSA and EC keys, the private key stays in the vault. The standards listed here don't cover other types.",
  remedy: createStrongerKey,
  evaluate: ({ asset: { keyType: type } }) => {
    if (!type) return notApplicable("Its type could not be read.");
    return APPROVED_KEY_TYPES.includes(type.toUpperCase())
      ? pass(`Its type is ${type}.`)
      : fail(`Its type is ${type}.`);
  },
});

const rsaSizeCheck = (type: "key" | "certificate", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-rsa-size`,
    code,
    title: `RSA ${type} has at least ${MIN_RSA_BITS} bits`,
    failureTitle: `RSA ${type} has fewer than ${MIN_RSA_BITS} bits`,
    severity: "high",
    resourceType: type,
    onlyFor: "of type RSA or RSA-HSM, whose size is known",
    rationale: `RSA with fewer than ${MIN_RSA_BITS} bits can be broken with current technology.`,
    remedy: REMEDY_OF[type],
    evaluate: ({ asset: { keyType: keyTypeName, keySize } }) => {
      if (!keyTypeName || !isRsa(keyTypeName))
        return notApplicable(keyTypeName ? `Its type is ${keyTypeName}.` : "Its type could not be read.");
      if (keySize === undefined) return notApplicable("Its size could not be read.");
      return keySize < MIN_RSA_BITS ? fail(`It has ${keySize} bits.`) : pass(`It has ${keySize} bits.`);
    },
  });

const curveCheck = (type: "key" | "certificate", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-curve`,
    code,
    title: `Elliptic-curve ${type} uses P-256, P-384 or P-521`,
    failureTitle: `Elliptic-curve ${type} uses a curve other than P-256, P-384 or P-521`,
    severity: "high",
    resourceType: type,
    onlyFor: "of type EC or EC-HSM, whose curve is known",
    rationale: "Other curves are not approved for general use. Validated modules and partners may reject them.",
    remedy: REMEDY_OF[type],
    evaluate: ({ asset: { keyType: keyTypeName, keyCurve } }) => {
      if (!keyTypeName || !isEc(keyTypeName))
        return notApplicable(keyTypeName ? `Its type is ${keyTypeName}.` : "Its type could not be read.");
      if (!keyCurve) return notApplicable("Its curve could not be read.");
      return APPROVED_CURVES.includes(keyCurve.toUpperCase())
        ? pass(`Its curve is ${keyCurve}.`)
        : fail(`Its curve is ${keyCurve}.`);
    },
  });

const rotationPolicy = assetCheck({
  id: "key-rotation-policy",
  code: 31,
  title: "Key is rotated automatically",
  failureTitle: "Key is not rotated automatically",
  severity: "medium",
  resourceType: "key",
  onlyFor: "whose type and rotation policy were read; a key without a policy fails",
  rationale:
    "Manual rotation is easily forgotten. A rotation policy limits the amount of data that one key version protects.",
  remedy: setRotationPolicy,
  evaluate: ({ asset }) => {
    const { keyType: type, rotationPolicy: policy } = asset;
    if (!type) return notApplicable("Its details could not be read.");
    if (!policy && isStale(asset)) return notApplicable("Its rotation policy could not be read.");
    if (!policy) return fail("It has no rotation policy.");
    const rotate = policy.lifetimeActions.find(({ action }) => action.toLowerCase() === "rotate");
    if (!rotate) return fail("Its rotation policy does not rotate it.");
    const { timeAfterCreate, timeBeforeExpiry } = rotate;
    if (timeAfterCreate) return pass(`It is rotated ${timeAfterCreate} after creation.`);
    return pass(
      timeBeforeExpiry ? `It is rotated ${timeBeforeExpiry} before its expiry.` : "Its rotation policy rotates it.",
    );
  },
});

/** The numbers are the codes of the checks in stored rows. They must never change. */
export const cryptographyChecks: AssetCheck[] = [
  keyType,
  rsaSizeCheck("key", 29),
  curveCheck("key", 30),
  rotationPolicy,
  rsaSizeCheck("certificate", 48),
  curveCheck("certificate", 49),
];
