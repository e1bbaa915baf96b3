import type { Company, CompanyVault } from "simulated-cloud/company/company.ts";

/** The company of the request budgets: 36 vaults with 140 assets each, in three subscriptions. */
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

/** @param vaults - A multiple of three. */
export const measuredCompany = (vaults: number): Company => ({
  subscriptions: Array.from({ length: SUBSCRIPTIONS }, (_, index) => ({
    name: `Subscription ${index}`,
    vaults: Array.from({ length: vaults / SUBSCRIPTIONS }, (_, at) => vault((index * vaults) / SUBSCRIPTIONS + at)),
  })),
});

export const MEASURED_COMPANY = measuredCompany(VAULTS);

/** Key Vault lists 25 items per page. A certificate is also listed as a managed secret and a managed key. */
const pages = (items: number): number => Math.max(1, Math.ceil(items / 25));

/** The lowest possible number of calls of a scan. */
export function leastCalls(vaults = VAULTS): { lists: number; full: number } {
  const perVault = pages(SECRETS + CERTIFICATES) + pages(KEYS + CERTIFICATES) + pages(CERTIFICATES);
  const subscriptions = 1 + SUBSCRIPTIONS; // One list of subscriptions, and one page of vaults for each.
  const details = 2 * KEYS + CERTIFICATES + 1;
  return { lists: vaults * perVault + subscriptions, full: vaults * (perVault + details) + subscriptions };
}

/** Sequential calls that parallel reading of one vault can't avoid: the longest list, and then details, eight at a time. */
export const leastListing = (): number => Math.max(pages(SECRETS + CERTIFICATES), pages(KEYS + CERTIFICATES));
export const leastChain = (): number =>
  Math.max(pages(SECRETS + CERTIFICATES), pages(CERTIFICATES) + Math.ceil(CERTIFICATES / 8));
