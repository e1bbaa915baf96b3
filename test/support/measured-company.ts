import type { Company, CompanyVault } from "simulated-cloud/company/company.ts";

/*
 * The simulated company for which tests and benchmarks count the requests of a scan: 36 vaults with 140 assets each, in three
 * subscriptions. The functions below compute the lowest possible number of requests, to compare with.
 */
export const VAULTS = 36;
export const SECRETS_PER_VAULT = 90;
const KEYS = 20;
const CERTIFICATES = 30;
export const PER_VAULT = SECRETS_PER_VAULT + KEYS + CERTIFICATES;
const SUBSCRIPTIONS = 3;

const vault = (index: number): CompanyVault => ({
  name: `kv-${String(index).padStart(4, "0")}`,
  generate: { secrets: SECRETS_PER_VAULT, keys: KEYS, certificates: CERTIFICATES },
});

/** @param vaults - Number of vaults, a multiple of three. */
export const measuredCompany = (vaults: number): Company => ({
  subscriptions: Array.from({ length: SUBSCRIPTIONS }, (_, index) => ({
    name: `Subscription ${index}`,
    vaults: Array.from({ length: vaults / SUBSCRIPTIONS }, (_, vaultIndex) =>
      vault((index * vaults) / SUBSCRIPTIONS + vaultIndex),
    ),
  })),
});

export const MEASURED_COMPANY = measuredCompany(VAULTS);

/** Returns the number of pages of a Key Vault list, which has 25 items per page. */
const pages = (items: number): number => Math.max(1, Math.ceil(items / 25));

/**
 * Returns the lowest possible number of calls of a scan that only lists, and of a full scan, which also reads details. A
 * certificate is listed three times: also as a managed secret and as a managed key. Details need two calls for each key, one
 * for each certificate, and one for the diagnostic settings of the vault. The first scan also lists the versions of each
 * certificate.
 */
export function minimumCalls(vaults = VAULTS): { lists: number; full: number; first: number } {
  const perVault = pages(SECRETS_PER_VAULT + CERTIFICATES) + pages(KEYS + CERTIFICATES) + pages(CERTIFICATES);
  const subscriptions = 1 + SUBSCRIPTIONS; // One list of subscriptions, and one page of vaults for each.
  const details = 2 * KEYS + CERTIFICATES + 1;
  const full = vaults * (perVault + details) + subscriptions;
  return { lists: vaults * perVault + subscriptions, full, first: full + vaults * CERTIFICATES };
}

/** Returns the number of calls for one vault that must follow each other: the pages of its longest list. */
export const minimumListChain = (): number =>
  Math.max(pages(SECRETS_PER_VAULT + CERTIFICATES), pages(KEYS + CERTIFICATES));
/**
 * Minimum number of calls for a vault with details. A worker reads eight of them at a time, as soon as the list of certificates
 * is complete.
 */
export const minimumCallChain = (): number =>
  Math.max(pages(SECRETS_PER_VAULT + CERTIFICATES), pages(CERTIFICATES) + Math.ceil(CERTIFICATES / 8));
