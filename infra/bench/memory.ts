import { runCountedScan } from "../../test/support/counted-scan.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, smallInstance } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, ratio, type Section } from "./section.ts";

/** Divisor of the sizes. `MEMORY_PART=10` measures estates of a tenth of the size, for a quick run or to see the growth. */
const SIZE_DIVISOR = Number(process.env.MEMORY_PART ?? 1);
/** Only estates whose names contain this text are measured. `MEMORY_OF=vaults` measures "5,000 vaults". */
const NAME_FILTER = process.env.MEMORY_OF ?? "";
/** Maximum MB that an unchanged delta scan of 5,000 small vaults reads from tables: 12 kB for each vault. */
const MAX_READ_MB = 60;
/** Timeout of one scan: 50 minutes. */
const TIMEOUT_MS = 3_000_000;

/** A company whose vaults are scanned, and its name in the table. */
interface Estate {
  what: string;
  company: { vaults: number; secrets: number; keys: number; certificates: number; bigVault?: number };
  /** Whether the vaults are so small that each is read over one connection. */
  small?: boolean;
}

const scaled = (size: number): number => Math.max(1, Math.round(size / SIZE_DIVISOR));
const ESTATES: Estate[] = [
  { what: "200,000 assets", company: { vaults: scaled(1_000), secrets: 170, keys: 10, certificates: 20 } },
  { what: "5,000 vaults", company: { vaults: scaled(5_000), secrets: 6, keys: 2, certificates: 2 }, small: true },
  {
    what: "one vault of 50,000",
    company: { vaults: 1, secrets: 1, keys: 1, certificates: 1, bigVault: scaled(50_000) },
  },
];

/**
 * Benchmark `memory`: measures the peak memory of the first full scan of large estates, which reads and writes all assets. For
 * the estate of small vaults, also counts TLS handshakes and the bytes that an unchanged delta scan reads from tables.
 */
export async function memory(): Promise<Section> {
  const figures: Figure[] = [];
  for (const estate of ESTATES.filter(({ what }) => what.includes(NAME_FILTER)))
    figures.push(...(await measureEstate(estate)));
  return {
    title: "Memory of a scan",
    how: `The first full scan of three estates${SIZE_DIVISOR === 1 ? "" : `, ${(100 / SIZE_DIVISOR).toFixed(0)} % of each`}, each in its own process, host included, with ten vaults at a time. V8's heap and the memory of the C library are limited as on an instance with 512 MB (\`--max-old-space-size=256\`, \`MALLOC_ARENA_MAX\`). The peak is the system's count since the start of the process (\`VmHWM\`). Bytes read from tables include answers to writes. \`MEMORY_PART=10 npm run bench -- memory\` measures a tenth of each.`,
    figures,
  };
}

async function measureEstate({ what, company, small }: Estate): Promise<Figure[]> {
  const service = await Service.start({
    tableProxy: true,
    company: { ...company, subscriptions: 4 },
    hosts: 0,
    // Uses a storage emulator without other settings. With the data of other benchmarks, the emulator would run out of memory.
    storageEnv: {},
  });
  await service.addHost(smallInstance(service.environment));
  try {
    const bytesAtRest = (await processFigures(service.url)).memory.rss;
    service.cloud.handshakes.clear();
    const { scan } = await runCountedScan(service, { mode: "full" }, TIMEOUT_MS);
    const { memory: memoryAfterScan } = await processFigures(service.url);
    const { vaults, secrets, keys, certificates, bigVault = 0 } = company;
    const assetsFound = scan.progress.assetsFound as number;
    const seconds = (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000;
    const figures: Figure[] = [
      {
        what: `${what}: assets found`,
        value: `${assetsFound}, ${scan.status}, in ${seconds.toFixed(0)} s`,
        comparedWith: "all assets; the time is mostly Azurite's",
        bound: equalTo(assetsFound, vaults * (secrets + keys + certificates) + bigVault),
      },
      peakMemory(`${what}: peak resident memory`, memoryAfterScan.peak),
      {
        what: `${what}: before the scan`,
        value: `${Math.round(bytesAtRest / 1_048_576)} MB`,
        comparedWith: "the process at rest",
      },
    ];
    if (small) {
      const serviceVault = new URL(service.cloud.environment.SERVICE_KEY_VAULT_URL!).hostname;
      const scannedVaults = [...service.cloud.handshakes].filter(
        ([name]) => name.includes(".vault.") && name !== serviceVault,
      );
      const handshakes = scannedVaults.reduce((sum, [, count]) => sum + count, 0);
      figures.push({
        what: `${what}: TLS handshakes`,
        value: `${handshakes}, ${ratio(handshakes, vaults)}`,
        comparedWith: `${vaults} vaults, each a host of its own`,
        bound: atMost(handshakes / vaults, 1.2),
      });
      const delta = await runCountedScan(service, { mode: "delta" }, TIMEOUT_MS);
      const readMb = delta.tables.reduce((sum, { answered }) => sum + answered, 0) / 1e6;
      figures.push({
        what: `${what}: read from tables by an unchanged delta`,
        value: `${readMb.toFixed(1)} MB, ${((1000 * readMb) / vaults).toFixed(1)} kB a vault`,
        comparedWith: `${delta.tables.length} requests; ${delta.scan.status}`,
        bound: atMost(readMb, MAX_READ_MB / SIZE_DIVISOR, " MB"),
      });
    }
    return figures;
  } finally {
    await service.stop();
  }
}
