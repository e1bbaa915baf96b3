import { TableClient } from "@azure/data-tables";
import type { AssetKind } from "simulated-cloud/company/company.ts";
import { Service } from "../../test/support/service.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, equalTo, processorTime, type Section } from "./section.ts";

// Measures the compliance evaluation of a full scan, and of a delta scan after 100 of 35,000 assets changed.

const VAULTS = 250;
const PER_VAULT = { secrets: 100, keys: 15, certificates: 25 };
const ASSETS = VAULTS * (PER_VAULT.secrets + PER_VAULT.keys + PER_VAULT.certificates);

/** Before the delta scan, 100 assets of all types are changed in 40 vaults. */
const CHANGED_VAULTS = 40;
const CHANGED_ASSETS: readonly (readonly [kind: AssetKind, count: number])[] = [
  ["secrets", 50],
  ["keys", 25],
  ["certificates", 25],
];

const SEVERITIES = ["critical", "high", "medium", "low"];

/**
 * Benchmark `compliance`: checks that a delta scan evaluates only changed assets and writes only their vaults' results, and
 * measures the compliance endpoints, for a large company. An evaluation checks an asset or a vault against the security rules.
 */
export async function compliance(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: { vaults: VAULTS, ...PER_VAULT, subscriptions: 4 },
    env: { LOG_LEVEL: "DEBUG" },
  });
  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    const { result: first, ms: firstMs } = await withProcessorTime(service.url, () =>
      service.scan({ mode: "full" }, 1_500_000),
    );
    const etagsBefore = await readRowEtags(service);
    const firstEvaluations = readEvaluations(service);
    const changed = changeAssets(service);
    service.clearTableRequests();
    const { result: scan, ms: deltaMs } = await withProcessorTime(service.url, () =>
      service.scan({ mode: "delta" }, 600_000),
    );
    const writes = service.tableRequests().filter(({ method }) => method !== "GET");
    const deltaEvaluations = readEvaluations(service).slice(firstEvaluations.length);
    const etagsAfter = await readRowEtags(service);
    const writtenKeys = [...etagsAfter].filter(([key, etag]) => etagsBefore.get(key) !== etag).map(([key]) => key);
    // The row with a vault's results has the key `5!{vault}`.
    const writtenVaults = writtenKeys.filter((key) => key.startsWith("5!")).map((key) => key.slice(2));
    const evaluatedVaults = deltaEvaluations.map(({ vault }) => vault);
    const removedRows = [...etagsBefore.keys()].filter((key) => !etagsAfter.has(key)).length;

    const figures: Section["figures"] = [
      {
        what: "assets, first full scan",
        value: `${first.progress.assetsFound}, ${first.status}`,
        comparedWith: `${ASSETS}`,
        bound: equalTo(first.progress.assetsFound, ASSETS),
      },
      {
        what: "assets evaluated by the first full scan",
        value: `${countEvaluated(firstEvaluations)}`,
        comparedWith: `${firstEvaluations.length} evaluations of ${VAULTS} vaults`,
        bound: equalTo(countEvaluated(firstEvaluations), ASSETS),
      },
      {
        what: "changed assets that the delta scan found",
        value: `${scan.progress.assetsUpdated}, ${scan.status}`,
        comparedWith: `${changed.assets} changed`,
        bound: equalTo(scan.progress.assetsUpdated, changed.assets),
      },
      {
        what: "assets that the delta scan evaluated",
        value: `${countEvaluated(deltaEvaluations)}`,
        comparedWith: `${changed.assets} changed`,
        bound: equalTo(countEvaluated(deltaEvaluations), changed.assets),
      },
      {
        what: "vaults whose assets the delta scan evaluated",
        value: `${new Set(evaluatedVaults).size}, ${haveSameNames(evaluatedVaults, changed.vaults) ? "exactly the vaults with a changed asset" : "other vaults"}`,
        comparedWith: `${changed.vaults.length} with a changed asset`,
        bound: {
          text: "exactly the vaults with a changed asset",
          holds: haveSameNames(evaluatedVaults, changed.vaults),
        },
      },
      {
        what: "vaults whose results the delta scan wrote",
        value: `${writtenVaults.length}, ${writtenVaults.every((vault) => changed.vaults.includes(vault)) ? "only vaults with a changed asset" : "also other vaults"}`,
        comparedWith: `${changed.vaults.length}`,
        bound: {
          text: "only vaults with a changed asset",
          holds: writtenVaults.every((vault) => changed.vaults.includes(vault)),
        },
      },
      {
        what: "rows of compliance results that the delta scan wrote or removed",
        value: `${writtenKeys.length + removedRows}`,
        comparedWith: `${etagsBefore.size} rows before the scan`,
        bound: atMost(writtenKeys.length + removedRows, 6 * changed.assets),
      },
      {
        what: "all writing requests of the delta scan",
        value: `${writes.length}`,
        comparedWith: `${VAULTS} vaults; every table, single writes included`,
        bound: atMost(writes.length, 5 * VAULTS),
      },
    ];

    figures.push(
      processorTime("processor time per 1,000 assets, first full scan", (1000 * firstMs) / ASSETS, 1000, ""),
      processorTime("processor time of the delta scan", deltaMs, 15_000, `${VAULTS} vaults`),
    );

    figures.push(...(await countTableRequests(service)));
    return {
      title: "Compliance of a large company",
      how: `${VAULTS} vaults of ${ASSETS / VAULTS} assets, ${ASSETS} in total. Then ${changed.assets} assets in ${changed.vaults.length} vaults get another expiry or other tags, and a delta scan runs. Evaluated assets are counted in the DEBUG log. Written rows are those with a different ETag afterwards.`,
      figures,
    };
  } finally {
    await service.stop();
  }
}

/** Counts the requests to the tables that reading the score and the violations costs. */
async function countTableRequests(service: Service): Promise<Section["figures"]> {
  const figures: Section["figures"] = [];
  const frameworks = (await service.admin("GET", "/compliance/frameworks")).body.items.map(
    ({ id }: { id: string }) => id,
  );
  const queries = violationQueries(frameworks);
  for (const [what, paths] of [
    ["score", ["/compliance/score", "/compliance/score?history=30"]],
    [
      `violations, first page, every filter (${queries.length})`,
      queries.map((query) => `/compliance/violations${query}`),
    ],
  ] as const) {
    const counts: number[] = [];
    for (const path of paths) {
      // Sends each request twice and takes the smaller count: the first can include reads that the host caches for 30
      // seconds.
      const countsOfPath: number[] = [];
      for (const _ of [1, 2]) {
        const { status, tableRequests } = await service.admin("GET", path);
        if (status !== 200) throw new Error(`${path} answered ${status}`);
        countsOfPath.push(tableRequests().filter((request) => !isAuthentication(request.path)).length);
      }
      counts.push(Math.min(...countsOfPath));
    }
    figures.push({
      what: `table requests: ${what}`,
      value: `${Math.min(...counts)} to ${Math.max(...counts)}`,
      comparedWith: "without authentication and host caches",
      bound: atMost(Math.max(...counts), 6),
    });
  }
  return figures;
}

/**
 * Changes 100 assets in the simulated cloud: every third one gets another owner tag, all others another expiry. Returns the
 * number of changed assets and the lower-case names of their vaults.
 */
function changeAssets({ cloud: { control } }: Service): { assets: number; vaults: string[] } {
  const filledVaults = control.vaults().filter(({ secrets }) => secrets > 0);
  const step = Math.floor(filledVaults.length / CHANGED_VAULTS);
  const vaults = Array.from({ length: CHANGED_VAULTS }, (_, index) => filledVaults[index * step]!.name);
  /** Names of the assets that are not changed yet, by vault and kind. */
  const unchangedNames = new Map<string, string[]>();
  let assets = 0;
  for (const [kind, count] of CHANGED_ASSETS) {
    for (let index = 0; index < count; index++, assets++) {
      const vault = vaults[assets % vaults.length]!;
      const key = `${vault} ${kind}`;
      if (!unchangedNames.has(key))
        unchangedNames.set(
          key,
          control.items(vault, kind).map(({ name }) => name),
        );
      const name = unchangedNames.get(key)!.shift()!;
      const change =
        assets % 3 === 0 ? { tags: { owner: "another@acme.example" } } : { expiresInDays: 3 + (assets % 9) };
      if (!control.change(vault, kind, name, change)) throw new Error(`There is no ${name} in ${vault}`);
    }
  }
  return { assets, vaults: vaults.map((name) => name.toLowerCase()) };
}

/**
 * Returns the row keys of the compliance results with their ETags. Reads the storage directly, so that the proxy does not count
 * these requests.
 */
async function readRowEtags(service: Service): Promise<Map<string, string>> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Compliance", {
    allowInsecureConnection: true,
  });
  const etags = new Map<string, string>();
  const query = { filter: "PartitionKey eq 'state'", select: ["RowKey"] };
  for await (const { rowKey, etag } of client.listEntities<object>({ queryOptions: query })) etags.set(rowKey!, etag);
  return etags;
}

/** A log line about the evaluation of a vault. */
interface Evaluation {
  vault: string;
  /** Number of assets that were evaluated. */
  evaluated: number;
}

/** Returns the evaluations from the host's DEBUG log, oldest first, without those that evaluated no asset. */
const readEvaluations = (service: Service): Evaluation[] =>
  service.hosts[0]!.lines.filter((line) => line.includes("A vault was evaluated {"))
    .map((line) => JSON.parse(line.slice(line.indexOf("{", line.indexOf("A vault was evaluated")))) as Evaluation)
    .filter(({ evaluated }) => evaluated > 0);

const countEvaluated = (evaluations: readonly Evaluation[]): number =>
  evaluations.reduce((total, { evaluated }) => total + evaluated, 0);

/** Returns whether both lists have the same names, ignoring duplicates and the case of `names`. */
const haveSameNames = (names: readonly string[], expected: readonly string[]): boolean => {
  const missing = new Set(expected);
  return (
    names.every((name) => missing.delete(name.toLowerCase()) || expected.includes(name.toLowerCase())) &&
    missing.size === 0
  );
};

/** Returns the query strings without a filter, with each severity, with each framework, and with every pair of both. */
function violationQueries(frameworks: readonly string[]): string[] {
  const bySeverity = ["", ...SEVERITIES.map((severity) => `severity=${severity}`)];
  const byFramework = ["", ...frameworks.map((framework) => `framework=${framework}`)];
  return bySeverity.flatMap((severity) =>
    byFramework.map((framework) => `?${[severity, framework].filter(Boolean).join("&")}`),
  );
}

const isAuthentication = (path: string): boolean => path.startsWith("Users(");
