import type { AssetType } from "../inventory/asset.ts";
import type { Algorithm } from "./algorithm.ts";

/** The dates by which published standards end the use of algorithms that a quantum computer breaks. */

export const STANDARDS = {
  nistIr8547: {
    name: "NIST IR 8547 (initial public draft, November 2024)",
    source: "https://csrc.nist.gov/pubs/ir/8547/ipd",
  },
  cnsa2: {
    name: "CNSA 2.0",
    source: "https://media.defense.gov/2025/May/30/2003728741/-1/-1/0/CSA_CNSA_2.0_ALGORITHMS.PDF",
  },
  bsiTr02102: {
    name: "BSI TR-02102-1, version 2026-01",
    source:
      "https://www.bsi.bund.de/SharedDocs/Downloads/EN/BSI/Publications/TechGuidelines/TG02102/BSI-TR-02102-1.html",
  },
} as const;
export type StandardId = keyof typeof STANDARDS;
export const STANDARD_IDS = Object.keys(STANDARDS) as StandardId[];

/** The statement of a standard about a group of algorithms. Dates are the last day of a use. */
export interface Rule {
  standard: StandardId;
  /** Which keys and certificates the rule is about. */
  about: string;
  matches(algorithm: Algorithm, type: AssetType): boolean;
  /** Last day before the use is discouraged. */
  deprecatedAfter?: string;
  /** Last day on which the use is allowed or recommended. */
  disallowedAfter?: string;
  /** True if the standard never allowed the algorithm, so that there is no date. */
  neverAllowed?: true;
  /** The statement in our words, with its place in the standard. */
  text: string;
}

const isSymmetric = ({ family }: Algorithm): boolean => family === "AES";

/**
 * The rules. The first one of a standard that matches applies, and for each algorithm there is one. The uses of a key are not
 * known, so the date of encryption applies to a key, and the date of signatures to a certificate.
 */
export const RULES: readonly Rule[] = [
  {
    standard: "nistIr8547",
    about: "AES",
    matches: isSymmetric,
    text: "Section 4.1.3: symmetric algorithms with at least 128 bits of strength stay approved.",
  },
  {
    standard: "nistIr8547",
    about: "RSA below 2048 bits",
    matches: ({ strength }) => strength < 112,
    disallowedAfter: "2013-12-31",
    text: "SP 800-131A revision 2: strengths below 112 bits have been disallowed since 2014.",
  },
  {
    standard: "nistIr8547",
    about: "RSA from 2048 to 3071 bits",
    matches: ({ strength }) => strength < 128,
    deprecatedAfter: "2030-12-31",
    disallowedAfter: "2035-12-31",
    text: "Tables 2 and 4: 112 bits of strength are deprecated after 2030 and disallowed after 2035.",
  },
  {
    standard: "nistIr8547",
    about: "RSA from 3072 bits, EC",
    matches: () => true,
    disallowedAfter: "2035-12-31",
    text: "Tables 2 and 4: 128 bits of strength and more are disallowed after 2035.",
  },
  {
    standard: "cnsa2",
    about: "AES-256",
    matches: ({ name }) => name === "AES-256",
    text: "CNSA 2.0 contains AES-256.",
  },
  {
    standard: "cnsa2",
    about: "RSA from 3072 bits, EC with P-384",
    matches: ({ family, size, curve }) => (family === "RSA" && size >= 3072) || curve === "P-384",
    deprecatedAfter: "2025-12-31",
    disallowedAfter: "2033-12-31",
    text: "Algorithms of CNSA 1.0. Cloud services prefer CNSA 2.0 by 2025, and use nothing else by 2033.",
  },
  {
    standard: "cnsa2",
    about: "all others",
    matches: () => true,
    neverAllowed: true,
    text: "Neither CNSA 1.0 nor CNSA 2.0 contains the algorithm.",
  },
  {
    standard: "bsiTr02102",
    about: "AES",
    matches: isSymmetric,
    text: "Block ciphers: AES with 128, 192 and 256 bits is recommended.",
  },
  {
    standard: "bsiTr02102",
    about: "RSA below 3000 bits",
    matches: ({ family, size }) => family === "RSA" && size < 3000,
    disallowedAfter: "2023-12-31",
    text: "Recommended key lengths: since 2024, RSA needs at least 3000 bits.",
  },
  {
    standard: "bsiTr02102",
    about: "EC with P-256K",
    matches: ({ curve }) => curve === "P-256K",
    neverAllowed: true,
    text: "The recommended curves don't contain secp256k1.",
  },
  {
    standard: "bsiTr02102",
    about: "other certificates",
    matches: (_, type) => type === "certificate",
    disallowedAfter: "2035-12-31",
    text: "Section 2.1: classical signatures alone are recommended until the end of 2035.",
  },
  {
    standard: "bsiTr02102",
    about: "other keys",
    matches: () => true,
    deprecatedAfter: "2030-12-31",
    disallowedAfter: "2031-12-31",
    text: "Section 2.1: classical encryption and key agreement alone until the end of 2031, and for very high protection until the end of 2030.",
  },
];

/** Returns the rule of each standard for the algorithm of an asset. */
export const rulesFor = (algorithm: Algorithm, type: AssetType): Rule[] =>
  STANDARD_IDS.map((id) => RULES.find(({ standard, matches }) => standard === id && matches(algorithm, type))!);
