import type { Company, SizedCompany } from "./company.ts";

/** Vaults `kv-bench-00000`, … dealt out over the subscriptions in turn; their contents are computed when asked for. */
export function sizedCompany(size: SizedCompany): Company {
  const subscriptions = Array.from({ length: size.subscriptions ?? 1 }, (_, index) => ({
    name: `Benchmark ${String(index).padStart(4, "0")}`,
    vaults: [] as NonNullable<Company["subscriptions"][number]["vaults"]>,
  }));
  for (let index = 0; index < size.vaults; index++) {
    subscriptions[index % subscriptions.length]!.vaults.push({
      name: `kv-bench-${String(index).padStart(5, "0")}`,
      generate: { secrets: size.secrets ?? 0, keys: size.keys ?? 0, certificates: size.certificates ?? 0 },
    });
  }
  if (size.bigVault) subscriptions[0]!.vaults.push({ name: "kv-big", generate: { secrets: size.bigVault } });
  return { subscriptions };
}
