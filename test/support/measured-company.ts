import type { Company, CompanyVault } from "simulated-cloud/company/company.ts";

/** The company that budgets are counted on: 36 vaults of 140 assets, in three subscriptions. */
export const VAULTS = 36;
const SECRETS = 90;
const KEYS = 20;
const CERTIFICATES = 30;
export const PER_VAULT = SECRETS + KEYS + CERTIFICATES;
const SUBSCRIPTIONS = 3;

const vault = (index: number): CompanyVault => ({
  name: `kv-${String(index).padStart(4, "0")}`,
  generate: { secrets: SECRETS, keys: KEYS, certificates: CERTIFICATES },
});

/** Of so many vaults, a multiple of three. */
export const measuredCompany = (vaults: number): Company => ({
  subscriptions: Array.from({ length: SUBSCRIPTIONS }, (_, index) => ({
    name: `Subscription ${index}`,
    vaults: Array.from({ length: vaults / SUBSCRIPTIONS }, (_, at) => vault((index * vaults) / SUBSCRIPTIONS + at)),
  })),
});

export const MEASURED_COMPANY = measuredCompany(VAULTS);

/** Key Vault lists 25 items a page; a certificate also shows as a managed secret and a managed key. */
const pages = (items: number): number => Math.max(1, Math.ceil(items / 25));

/** The least calls a scan can do with: see "Shows when" of the budgets in the README. */
export function leastCalls(vaults = VAULTS): { lists: number; full: number } {
  const perVault = pages(SECRETS + CERTIFICATES) + pages(KEYS + CERTIFICATES) + pages(CERTIFICATES);
  const subscriptions = 1 + SUBSCRIPTIONS; // the subscriptions, and one page of vaults in each
  const details = 2 * KEYS + CERTIFICATES + 1;
  return { lists: vaults * perVault + subscriptions, full: vaults * (perVault + details) + subscriptions };
}

/** Calls in a row that no parallel reading of one vault can avoid: its longest list, and eight details at once after it. */
export const leastListing = (): number => Math.max(pages(SECRETS + CERTIFICATES), pages(KEYS + CERTIFICATES));
export const leastChain = (): number =>
  Math.max(pages(SECRETS + CERTIFICATES), pages(CERTIFICATES) + Math.ceil(CERTIFICATES / 8));
