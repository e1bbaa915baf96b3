import { existsSync, readFileSync } from "node:fs";
import { acmeCompany } from "./acme.ts";
import { certificateCompany } from "./certificate-company.ts";
import type { Company, SizedCompany } from "./company.ts";
import { sizedCompany } from "./generated-company.ts";
import { keyCompany } from "./key-company.ts";
import { smallCompany } from "./small-company.ts";

/** The company of a cloud: a built-in one, a declaration, or a size. */
export type CompanyChoice = "acme" | "small" | "certificates" | "keys" | Company | SizedCompany;

/** Returns the declaration of a chosen company. The seed varies the company acme. */
export function resolveCompany(choice: CompanyChoice, seed: number): Company {
  if (choice === "acme") return acmeCompany(seed);
  if (choice === "small") return smallCompany;
  if (choice === "certificates") return certificateCompany;
  if (choice === "keys") return keyCompany;
  // Only a size has `vaults` at the top level: their number. A declaration has them in its subscriptions.
  return "vaults" in choice ? sizedCompany(choice) : choice;
}

/**
 * Loads the company that a command-line argument names: `acme`, `small`, `certificates`, `keys`, a JSON file that contains a `Company` or
 * a `SizedCompany`, or a size such as `vaults=100,secrets=50,keys=10,certificates=5,subscriptions=4,bigVault=20000,
 * sites=20000,applications=10000,credentials=15000`.
 *
 * @throws {Error} if the argument is none of these.
 */
export function companyFromArgument(text: string): CompanyChoice {
  if (text === "acme" || text === "small" || text === "certificates" || text === "keys") return text;
  if (/^\w+=\d+(,\w+=\d+)*$/.test(text)) return parseSize(text);
  if (!existsSync(text))
    throw new Error(`Unknown company "${text}". Use acme, small, certificates, keys, a JSON file or vaults=N,…`);
  const value: unknown = JSON.parse(readFileSync(text, "utf8"));
  if (typeof value === "object" && value !== null && ("subscriptions" in value || "vaults" in value)) {
    return value as Company | SizedCompany;
  }
  throw new Error(`${text} has neither "subscriptions" nor "vaults"`);
}

/** Parses a size such as `vaults=100,secrets=50`. */
function parseSize(text: string): SizedCompany {
  const size: SizedCompany = { vaults: 0 };
  for (const part of text.split(",")) {
    const [name, number] = part.split("=");
    switch (name) {
      case "vaults":
      case "secrets":
      case "keys":
      case "certificates":
      case "bigVault":
      case "subscriptions":
      case "sites":
      case "applications":
      case "credentials":
        size[name] = Number(number);
        break;
      default:
        throw new Error(`Unknown member "${name}" of a company's size`);
    }
  }
  return size;
}
