import * as z from "zod";
import { subscriptionId, vaultName } from "../inventory/api.ts";
import { titleOfCredential } from "../inventory/asset.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { FAMILIES } from "./algorithm.ts";
import { type PostQuantum, PROTECTION_SOURCES, QUANTUM_STATES, RULE_STATES } from "./post-quantum.ts";
import { STANDARD_IDS, STANDARDS, type StandardId } from "./rules.ts";

/** Schemas and views of the dates of post-quantum standards, and the query of the cryptographic bill of materials. */

const day = z.iso.date();
const count = z.int().min(0);
const CRYPTO_TYPES = ["key", "certificate"] as const;

const Verdict = z.object({
  standard: z
    .enum(STANDARD_IDS as [StandardId, ...StandardId[]])
    .meta({ description: "Standard that sets the dates." }),
  name: z.string().meta({ description: "Name and version of the standard.", example: "CNSA 2.0" }),
  source: z
    .string()
    .meta({ description: "Address of the standard.", example: "https://csrc.nist.gov/pubs/ir/8547/ipd" }),
  rule: z.string().meta({
    description: "Statement of the standard about the algorithm, in our words.",
    example: "CNSA 2.0 contains AES-256.",
  }),
  deprecatedAfter: day.nullable().meta({ description: "Last day before the use is discouraged. Null without one." }),
  disallowedAfter: day
    .nullable()
    .meta({ description: "Last day on which the use is allowed. Null without one, and if it was never allowed." }),
  state: z.enum(RULE_STATES).meta({ description: "State today." }),
});

const PostQuantumAsset = z
  .object({
    id: z.string().meta({ description: "ID of the asset.", example: "kv-payments.key.signing" }),
    type: z.enum(CRYPTO_TYPES).meta({ description: "Whether the asset is a key or a certificate." }),
    name: z.string(),
    credentialTitle: z.string().nullable().meta({
      description: "For a directory credential: its application and its name. Null otherwise.",
      example: "Payments API/2026",
    }),
    vaultName: z.string().nullable().meta({ description: "Null for assets outside key vaults." }),
    subscriptionId: z.string().nullable(),
    owner: z.string().nullable().meta({ description: "Value of the tag that the setting OWNER_TAG names." }),
    algorithm: z
      .object({
        name: z.string().meta({ description: "Name with the size or curve.", example: "RSA-2048" }),
        family: z.enum(FAMILIES).meta({ description: "Family of the algorithm." }),
        size: z.int().meta({ description: "Size of the key in bits." }),
        curve: z.string().nullable().meta({ description: "Elliptic curve. Null for RSA and AES.", example: "P-256" }),
      })
      .nullable()
      .meta({ description: "Null if the details of the asset are not known." }),
    quantum: z.enum(QUANTUM_STATES).meta({
      description:
        "`vulnerable`: a quantum computer breaks the algorithm. `safe`: it does not. `unknown`: the algorithm is not known.",
    }),
    protectUntil: day.meta({ description: "Last day on which what the asset protects must stay protected." }),
    protectUntilSource: z.enum(PROTECTION_SOURCES).meta({
      description:
        "`tag`: the tag that PROTECT_UNTIL_TAG names. `expiry`: the expiration date of a certificate without the tag. `setting`: PROTECTION_YEARS from today.",
    }),
    hasInvalidTag: z
      .boolean()
      .meta({ description: "Whether the tag has a value that is neither a year nor a date. It is then ignored." }),
    consumers: count.nullable().meta({
      description:
        "Number of resources that use the asset; for a certificate the sum over it, its key and its secret. Null if consumers are not known, which needs a PRO license and a discovery of dependencies.",
    }),
    firstDisallowedAfter: day
      .nullable()
      .meta({ description: "Earliest `disallowedAfter` of the standards. Null without one." }),
    exposedDays: count
      .nullable()
      .meta({ description: "Days from `firstDisallowedAfter` to `protectUntil`. Null without the first." }),
    standards: z.array(Verdict).meta({ description: "Dates of each standard. Empty if the algorithm is not known." }),
  })
  .meta({ id: "PostQuantumAsset" });

const Summary = z
  .object({
    assets: count.meta({ description: "Number of enabled keys and certificates." }),
    vulnerable: count.meta({ description: "Number of assets that a quantum computer breaks." }),
    unknown: count.meta({ description: "Number of assets whose algorithm is not known." }),
    safe: count.meta({ description: "Number of assets that a quantum computer does not break." }),
    byAlgorithm: z
      .array(
        z.object({
          algorithm: z.string().meta({ description: "Name of the algorithm.", example: "RSA-2048" }),
          assets: count.meta({ description: "Number of assets with this algorithm." }),
        }),
      )
      .meta({ description: "Numbers by algorithm, the most frequent first." }),
    consumersKnown: z
      .boolean()
      .meta({ description: "False without a PRO license or before the first discovery of dependencies." }),
  })
  .meta({ id: "PostQuantumSummary" });

export const PostQuantumList = pageOf(PostQuantumAsset, "PostQuantumList")
  .extend({ summary: Summary.meta({ description: "Numbers of all assets that match the filters." }) })
  .meta({ id: "PostQuantumList" });

const filters = {
  type: z.enum(CRYPTO_TYPES).optional().meta({ description: "Only keys or only certificates." }),
  vault: vaultName.optional().meta({ description: "Name of a vault." }),
  subscription: subscriptionId.optional(),
};
export const PostQuantumQuery = z.strictObject({
  ...filters,
  quantum: z.enum(QUANTUM_STATES).optional().meta({
    description: "Only assets whose algorithm quantum computers break, do not break, or whose algorithm is not known.",
  }),
  limit: pageParameters.limit,
  cursor: pageParameters.cursor,
});
export const CbomQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });

export function postQuantumView(item: PostQuantum): z.infer<typeof PostQuantumAsset> {
  const { asset, algorithm, verdicts } = item;
  return {
    id: item.id,
    type: asset.type as (typeof CRYPTO_TYPES)[number],
    name: asset.name,
    credentialTitle: asset.credential ? titleOfCredential(asset.credential) : null,
    vaultName: asset.credential ? null : asset.vaultName,
    subscriptionId: asset.credential ? null : asset.subscriptionId,
    owner: item.owner ?? null,
    algorithm: algorithm
      ? { name: algorithm.name, family: algorithm.family, size: algorithm.size, curve: algorithm.curve ?? null }
      : null,
    quantum: item.quantum,
    protectUntil: item.protectUntil,
    protectUntilSource: item.protectUntilSource,
    hasInvalidTag: item.hasInvalidTag,
    consumers: item.consumers ?? null,
    firstDisallowedAfter: item.firstDisallowedAfter ?? null,
    exposedDays: item.exposedDays ?? null,
    standards: verdicts.map(({ standard, text, deprecatedAfter, disallowedAfter, state }) => ({
      standard,
      ...STANDARDS[standard],
      rule: text,
      deprecatedAfter: deprecatedAfter ?? null,
      disallowedAfter: disallowedAfter ?? null,
      state,
    })),
  };
}
