import { ADMIN, type Answer, Service } from "../../test/support/service.ts";
import { processFigures, smallInstance } from "./process.ts";
import { atMost, equalTo, type Figure, megabytes, type Section } from "./section.ts";

// Measures the memory of the exports of algorithms: the bill of materials and the post-quantum list of 200,000 assets.

/** Divisor of the size. `CBOM_PART=10` measures a tenth of the assets, for a quick run. */
const SIZE_DIVISOR = Number(process.env.CBOM_PART ?? 1);
const VAULTS = 1_000 / SIZE_DIVISOR;
const PER_VAULT = { keys: 150, certificates: 50 };
const ASSETS = VAULTS * (PER_VAULT.keys + PER_VAULT.certificates);
const MAX_MEGABYTES = 300;
/** Timeout of the scan: 50 minutes. */
const TIMEOUT_MS = 3_000_000;
const MEBIBYTE = 1_048_576;

/** Benchmark `cbom`: the peak memory of a process that exports all parts of the bill, and of one that lists the first page. */
export async function cbom(): Promise<Section> {
  const service = await Service.start({
    company: { vaults: VAULTS, secrets: 0, ...PER_VAULT, subscriptions: 4 },
    // Uses a storage emulator without other settings. With the data of other benchmarks, the emulator would run out of memory.
    storageEnv: {},
  });
  try {
    await service.scan({ mode: "full" }, TIMEOUT_MS);
    const figures: Figure[] = [];
    for (const measure of [exportParts, firstPage]) {
      // A process of its own, because the peak counts from the start of the process.
      await service.hosts.splice(0)[0]!.stop();
      await service.addHost(smallInstance(service.environment));
      figures.push(...(await measure(service)));
      const { peak } = (await processFigures(service.url)).memory;
      figures.push({
        what: `${measure === exportParts ? "bill of materials" : "post-quantum list"}: peak resident memory`,
        value: megabytes(peak),
        comparedWith: "peak counted by the system",
        bound: atMost(Math.round(peak / MEBIBYTE), MAX_MEGABYTES, " MB"),
      });
    }
    return {
      title: "Bill of materials and post-quantum list",
      how: `${ASSETS.toLocaleString("en-GB")} keys and certificates in ${VAULTS} vaults. Each of the two is read by one functions process with the limits of an instance with 512 MB. \`CBOM_PART=10 npm run bench -- cbom\` measures a tenth.`,
      figures,
    };
  } finally {
    await service.stop();
  }
}

/** Downloads all parts of the bill and checks that each asset is in them once. */
async function exportParts(service: Service): Promise<Figure[]> {
  const token = await service.signIn(ADMIN);
  const refs = new Set<string>();
  let [parts, largest, count] = [0, 0, 0];
  for (let next: string | undefined = "/compliance/cbom"; next !== undefined; parts++) {
    const answer: Answer = await service.call("GET", next, { token });
    if (answer.status !== 200) throw new Error(`${next} answered ${answer.status}: ${answer.text.slice(0, 500)}`);
    largest = Math.max(largest, answer.text.length);
    for (const { "bom-ref": ref } of JSON.parse(answer.text).components)
      if (/^asset:[^#]*$/.test(ref)) {
        refs.add(ref);
        count++;
      }
    next = /<([^>]+)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  if (count !== refs.size) throw new Error(`${count - refs.size} assets are in the bill twice.`);
  return [
    {
      what: "bill of materials: assets",
      value: `${refs.size}, in ${parts} parts, the largest ${megabytes(largest)}`,
      comparedWith: "each key and certificate once",
      bound: equalTo(refs.size, ASSETS),
    },
  ];
}

async function firstPage(service: Service): Promise<Figure[]> {
  const { body } = await service.admin("GET", "/compliance/post-quantum?limit=1000");
  return [
    {
      what: "post-quantum list: assets",
      value: String(body.summary.assets),
      comparedWith: `first page of ${body.items.length}`,
      bound: equalTo(body.summary.assets, ASSETS),
    },
  ];
}
