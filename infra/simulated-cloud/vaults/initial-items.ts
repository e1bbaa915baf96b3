// The items that a vault contains at the start: declared ones, and generated ones for load tests.

import type { CompanyCertificate, CompanyKey, CompanySecret } from "../company/company.ts";
import type { InitialItems } from "./collection.ts";

/**
 * Returns the declared items, followed by generated ones.
 * @param generated Number of generated items.
 * @param generate Declares a generated item by its number.
 * @param build Creates an item from its declaration.
 */
export function initialItemsOf<D extends { name: string }, T>(
  declared: readonly D[],
  generated: number,
  generate: (index: number) => D,
  build: (declared: D, generatedIndex?: number) => T,
): InitialItems<T> {
  const built = declared.map((one) => build(one));
  const byName = new Map(declared.map(({ name }, index) => [name.toLowerCase(), index]));
  if (byName.size !== declared.length) throw new Error("Two items of a vault have the same kind and name");
  return {
    count: declared.length + generated,
    itemAt: (index) => built[index] ?? build(generate(index - declared.length), index - declared.length),
    // `name` is in lower case. The number in the name of a generated item is its index among the generated ones.
    indexOf(name) {
      const declaredIndex = byName.get(name);
      if (declaredIndex !== undefined) return declaredIndex;
      const number = /-(\d{6})$/.exec(name)?.[1];
      if (number === undefined || Number(number) >= generated) return -1;
      return generate(Number(number)).name === name ? declared.length + Number(number) : -1;
    },
  };
}

const OWNERS = ["payments", "orders", "identity", "billing", "search", "logistics", "web"].map(
  (team) => `${team}@acme.example`,
);
/** Name of a generated item, such as `secret-000003`. */
const numbered = (prefix: string, index: number) => `${prefix}-${String(index).padStart(6, "0")}`;

/** Returns the expiry of a generated item, from 30 days ago to 720 days ahead. Every tenth item has none. */
const expiry = (index: number) => (index % 10 === 9 ? {} : { expiresInDays: ((index * 37) % 751) - 30 });

/** Declares a generated secret. Its properties repeat in cycles of different lengths, so that combinations vary. */
export function generatedSecret(index: number): CompanySecret {
  return {
    name: numbered("secret", index),
    ...expiry(index),
    createdDaysAgo: 30 + (index % 300),
    ...(index % 4 !== 0 && { contentType: "text/plain" }),
    tags: { owner: OWNERS[index % OWNERS.length]!, env: index % 3 === 0 ? "test" : "prod" },
  };
}

/** Types and sizes of generated keys. */
const SHAPES = [
  { type: "RSA", size: 2048 },
  { type: "EC", curve: "P-256" },
  { type: "RSA", size: 4096 },
  { type: "EC", curve: "P-384" },
] as const;

export function generatedKey(index: number): CompanyKey {
  return {
    name: numbered("key", index),
    ...SHAPES[index % SHAPES.length],
    ...expiry(index),
    createdDaysAgo: 30 + (index % 300),
    ...(index % 2 === 0 && { rotation: { rotateAfterDays: 90 } }),
  };
}

export function generatedCertificate(index: number): CompanyCertificate {
  return {
    name: numbered("certificate", index),
    ...SHAPES[index % 2],
    issuer: ["DigiCert", "Unknown", "GlobalSign"][index % 3]!,
    expiresInDays: ((index * 37) % 395) - 30,
    validityMonths: index % 5 === 0 ? 24 : 12,
    tags: { owner: OWNERS[index % OWNERS.length]! },
  };
}
