import { KEY_VAULT_PACE } from "../../shared/platform/azure/key-vault-pace.ts";
import { runCountedScan } from "../../test/support/counted-scan.ts";
import { Service } from "../../test/support/service.ts";
import { atMost, equalTo, type Figure, ratio, type Section } from "./section.ts";

/** Hardware keys of a premium vault. A full scan sends two requests for each, so that it needs three periods. */
const HARDWARE_KEYS = 600;
/** Certificates of a standard vault. A full scan sends one request for each, so that it needs three periods. */
const CERTIFICATES = 2_300;
/** Further vaults of the same region, so that the region receives as many requests as the machine can send. */
const VAULTS = 8;
const KEYS_PER_VAULT = 300;
/** Two hosts, because each keeps its own limits. */
const HOSTS = 2;

/**
 * Benchmark `pace`: a full scan of vaults that need more requests than the service may send in ten seconds. The simulated cloud
 * counts the requests in the busiest ten seconds.
 */
export async function pace(): Promise<Section> {
  const furtherVaults = Array.from({ length: VAULTS }, (_, index) => ({
    name: `kv-more-${index}`,
    sku: "standard" as const,
    generate: { secrets: 0, keys: KEYS_PER_VAULT, certificates: 0 },
  }));
  const service = await Service.start({
    hosts: HOSTS,
    tableProxy: true,
    company: {
      subscriptions: [
        {
          name: "One",
          vaults: [
            { name: "kv-hardware", sku: "premium", generate: { secrets: 0, keys: HARDWARE_KEYS, certificates: 0 } },
            {
              name: "kv-certificates",
              sku: "standard",
              generate: { secrets: 0, keys: 0, certificates: CERTIFICATES },
            },
            ...furtherVaults,
          ],
        },
      ],
    },
  });
  try {
    const { control } = service.cloud;
    const { scan, calls } = await runCountedScan(service, { mode: "full" });
    const busiest = control.busiestTenSeconds();
    const ofRegion = busiest[`${control.subscriptions()[0]!.id}/westeurope`] ?? 0;
    const assets = HARDWARE_KEYS + CERTIFICATES + VAULTS * KEYS_PER_VAULT;
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    // Shortest possible duration: the first period's requests are sent at once, and each further period starts ten seconds later.
    const minimumSeconds = (Math.ceil((2 * HARDWARE_KEYS) / KEY_VAULT_PACE.hardwareKeysPerVault) - 1) * 10;
    const perPeriod = (what: string, requests: number, limit: number, comparedWith: string): Figure => ({
      what: `requests in the busiest ten seconds, ${what}`,
      value: String(requests),
      comparedWith,
      bound: atMost(requests, limit),
    });
    return {
      title: "Pace of requests to key vaults",
      how: `A full scan of ${VAULTS + 2} vaults of one subscription and region with ${HOSTS} instances, without added latency. One vault has ${HARDWARE_KEYS} keys and its SKU is premium, one has ${CERTIFICATES} certificates, the others have ${KEYS_PER_VAULT} keys. The simulated cloud counts the requests in any ten seconds. Azure allows 4,000 for a vault, 2,000 for its hardware keys and 20,000 for a region. The service sends at most a quarter to a vault. Each instance sends at most a quarter to a region, and one instance at a time scans a vault.`,
      figures: [
        {
          what: "assets found",
          value: `${scan.progress.assetsFound}, ${scan.status}`,
          comparedWith: `${assets} in the vaults`,
          bound: equalTo(scan.progress.assetsFound, assets),
        },
        perPeriod(
          "a vault with hardware keys: keys",
          busiest["kv-hardware/keys"] ?? 0,
          KEY_VAULT_PACE.hardwareKeysPerVault,
          "2,000 that Azure allows",
        ),
        perPeriod(
          "a vault",
          Math.max(...Object.entries(busiest).flatMap(([name, count]) => (name.includes("/") ? [] : [count]))),
          KEY_VAULT_PACE.perVault,
          "4,000 that Azure allows",
        ),
        perPeriod("the region", ofRegion, HOSTS * KEY_VAULT_PACE.perRegion, "20,000 that Azure allows"),
        {
          what: "seconds of the scan",
          value: `${seconds.toFixed(0)}, ${ratio(seconds, minimumSeconds)}`,
          comparedWith: `${minimumSeconds}, which the limit of hardware keys alone takes; ${calls.total} calls`,
          bound: atMost(seconds, 6 * minimumSeconds, " s"),
        },
      ],
    };
  } finally {
    await service.stop();
  }
}
