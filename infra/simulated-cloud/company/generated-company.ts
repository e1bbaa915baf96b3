import type { CompanyApplication } from "./applications.ts";
import type { Company, SizedCompany } from "./company.ts";

/**
 * Returns a generated company of a size, for load tests. Vaults `kv-bench-00000`, … are dealt to the subscriptions in turn.
 * Their items are generated on demand.
 */
export function sizedCompany(size: SizedCompany): Company {
  const subscriptions = Array.from({ length: size.subscriptions ?? 1 }, (_, index) => ({
    name: `Benchmark ${String(index).padStart(4, "0")}`,
    vaults: [] as NonNullable<Company["subscriptions"][number]["vaults"]>,
    generate: { sites: share(size.sites ?? 0, size.subscriptions ?? 1, index) },
  }));
  for (let index = 0; index < size.vaults; index++) {
    subscriptions[index % subscriptions.length]!.vaults.push({
      name: `kv-bench-${String(index).padStart(5, "0")}`,
      generate: { secrets: size.secrets ?? 0, keys: size.keys ?? 0, certificates: size.certificates ?? 0 },
    });
  }
  if (size.bigVault) subscriptions[0]!.vaults.push({ name: "kv-big", generate: { secrets: size.bigVault } });
  return { subscriptions, applications: sizedApplications(size.applications ?? 0, size.credentials) };
}

/** Returns how many of `count` elements the receiver `index` gets, if the elements are dealt to the receivers in turn. */
const share = (count: number, receivers: number, index: number): number =>
  Math.floor(count / receivers) + (index < count % receivers ? 1 : 0);

/**
 * Returns applications `app-00000`, …, to which the credentials are dealt in turn. Every tenth application has certificates.
 */
function sizedApplications(count: number, credentials = count): CompanyApplication[] {
  return Array.from({ length: count }, (_, index): CompanyApplication => {
    const credentialCount = share(credentials, count, index);
    const appCredentials = Array.from({ length: credentialCount }, (_, number) => ({
      name: `credential ${number}`,
      // Spread over -30 to 720 days.
      expiresInDays: (((index + number * 7) * 37) % 751) - 30,
      createdDaysAgo: 40 + (index % 300),
    }));
    const usesCertificates = index % 10 === 0;
    return {
      name: `app-${String(index).padStart(5, "0")}`,
      owners: [`team-${index % 50}@acme.example`],
      ...(usesCertificates ? { certificates: appCredentials } : { secrets: appCredentials }),
    };
  });
}
