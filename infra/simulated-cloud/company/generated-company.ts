import type { CompanyApplication } from "./applications.ts";
import type { Company, SizedCompany } from "./company.ts";

/**
 * Returns a generated company. Vaults `kv-bench-00000`, … are distributed over the subscriptions in turn. Their contents are
 * generated on demand.
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

/** Returns how many of `count` things a position gets when the things are distributed in turn. */
const share = (count: number, places: number, index: number): number =>
  Math.floor(count / places) + (index < count % places ? 1 : 0);

/** Returns applications `app-00000`, …; their credentials, every tenth a certificate, are distributed in turn. */
function sizedApplications(count: number, credentials = count): CompanyApplication[] {
  return Array.from({ length: count }, (_, index): CompanyApplication => {
    const own = share(credentials, count, index);
    const each = Array.from({ length: own }, (_, number) => ({
      name: `credential ${number}`,
      expiresInDays: (((index + number * 7) * 37) % 751) - 30,
      createdDaysAgo: 40 + (index % 300),
    }));
    const certificate = index % 10 === 0;
    return {
      name: `app-${String(index).padStart(5, "0")}`,
      owners: [`team-${index % 50}@acme.example`],
      ...(certificate ? { certificates: each } : { secrets: each }),
    };
  });
}
