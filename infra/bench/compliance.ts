import { TableClient } from "@azure/data-tables";
import type { AssetKind } from "simulated-cloud/company/company.ts";
import { Service } from "../../test/support/service.ts";
import { withProcessorTime } from "./process.ts";
import { atMost, equalTo, processorTime, type Section } from "./section.ts";

const VAULTS = 250;
const PER_VAULT = { secrets: 100, keys: 15, certificates: 25 };
const ASSETS = VAULTS * (PER_VAULT.secrets + PER_VAULT.keys + PER_VAULT.certificates);

/** The 100 assets that change are of all types, in 40 vaults. */
const CHANGED_VAULTS = 40;
const CHANGED: readonly (readonly [kind: AssetKind, count: number])[] = [
  ["secrets", 50],
  ["keys", 25],
  ["certificates", 25],
];

const SEVERITIES = ["critical", "high", "medium", "low"];

/**
 * Measures the compliance evaluation of a delta scan with 100 changed assets, and the compliance endpoints, for a large
 * company.
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
    const before = await rows(service);
    const firstLines = evaluations(service);
    const changed = change(service);
    service.forgetTables();
    const { result: scan, ms: deltaMs } = await withProcessorTime(service.url, () =>
      service.scan({ mode: "delta" }, 600_000),
    );
    const writes = service.tableRequests().filter(({ method }) => method !== "GET");
    const lines = evaluations(service).slice(firstLines.length);
    const after = await rows(service);
    const written = [...after].filter(([key, etag]) => before.get(key) !== etag).map(([key]) => key);
    const states = written.filter((key) => key.startsWith("5!")).map((key) => key.slice(2));
    const evaluatedVaults = lines.map(({ vault }) => vault);
    const gone = [...before.keys()].filter((key) => !after.has(key)).length;

    const figures: Section["figures"] = [
      {
        what: "assets, first full scan",
        value: `${first.progress.assetsFound}, ${first.status}`,
        comparedWith: `${ASSETS}`,
        bound: equalTo(first.progress.assetsFound, ASSETS),
      },
      {
        what: "assets evaluated by the first full scan",
        value: `${sum(firstLines)}`,
        comparedWith: `${firstLines.length} evaluations of ${VAULTS} vaults`,
        bound: equalTo(sum(firstLines), ASSETS),
      },
      {
        what: "assets a delta scan found changed",
        value: `${scan.progress.assetsUpdated}, ${scan.status}`,
        comparedWith: `${changed.assets} changed`,
        bound: equalTo(scan.progress.assetsUpdated, changed.assets),
      },
      {
        what: "assets that delta scan evaluated",
        value: `${sum(lines)}`,
        comparedWith: `${changed.assets} changed`,
        bound: equalTo(sum(lines), changed.assets),
      },
      {
        what: "vaults it evaluated assets of",
        value: `${new Set(evaluatedVaults).size}, ${same(evaluatedVaults, changed.vaults) ? "those changed and no others" : "not those that changed"}`,
        comparedWith: `${changed.vaults.length} with a changed asset`,
        bound: {
          text: "those changed and no others",
          holds: same(evaluatedVaults, changed.vaults),
        },
      },
      {
        what: "vaults' results it wrote",
        value: `${states.length}, ${states.every((vault) => changed.vaults.includes(vault)) ? "none but those changed" : "others too"}`,
        comparedWith: `${changed.vaults.length}`,
        bound: { text: "none but those changed", holds: states.every((vault) => changed.vaults.includes(vault)) },
      },
      {
        what: "rows of compliance it wrote or removed",
        value: `${written.length + gone}`,
        comparedWith: `${before.size} that were there`,
        bound: atMost(written.length + gone, 6 * changed.assets),
      },
      {
        what: "writing requests of that scan in all",
        value: `${writes.length}`,
        comparedWith: `${VAULTS} vaults; every table, single writes included`,
        bound: atMost(writes.length, 5 * VAULTS),
      },
    ];

    figures.push(
      processorTime("processor time per 1,000 assets, first full scan", (1000 * firstMs) / ASSETS, 1000, ""),
      processorTime("processor time, that delta scan", deltaMs, 15_000, `${VAULTS} vaults`),
    );

    const frameworks = (await service.admin("GET", "/compliance/frameworks")).body.items.map(
      ({ id }: { id: string }) => id,
    );
    const queries = filters(frameworks);
    for (const [what, paths] of [
      ["score", ["/compliance/score", "/compliance/score?history=30"]],
      [
        `violations, first page, every filter (${queries.length})`,
        queries.map((query) => `/compliance/violations${query}`),
      ],
    ] as const) {
      const counts: number[] = [];
      for (const path of paths) {
        // The first of two calls can include reads that the host caches for 30 seconds, such as settings.
        const two: number[] = [];
        for (const _ of [1, 2]) {
          const { status, tableRequests } = await service.admin("GET", path);
          if (status !== 200) throw new Error(`${path} answered ${status}`);
          two.push(tableRequests().filter(({ path: asked }) => !isAuthentication(asked)).length);
        }
        counts.push(Math.min(...two));
      }
      figures.push({
        what: `table requests: ${what}`,
        value: `${Math.min(...counts)} to ${Math.max(...counts)}`,
        comparedWith: "without authentication and host caches",
        bound: atMost(Math.max(...counts), 6),
      });
    }
    return {
      title: "Compliance of a large company",
      how: `${VAULTS} vaults of ${ASSETS / VAULTS} assets, ${ASSETS} in total. Then ${changed.assets} assets in ${changed.vaults.length} vaults get another expiry or other tags, and a delta scan runs. Evaluated assets are counted in the DEBUG log. Written rows are those with a different ETag afterwards.`,
      figures,
    };
  } finally {
    await service.stop();
  }
}

/** Gives 100 assets another expiry, every third other tags. */
function change({ cloud: { control } }: Service): { assets: number; vaults: string[] } {
  const all = control.vaults().filter(({ secrets }) => secrets > 0);
  const step = Math.floor(all.length / CHANGED_VAULTS);
  const vaults = Array.from({ length: CHANGED_VAULTS }, (_, index) => all[index * step]!.name);
  const names = new Map<string, string[]>();
  let assets = 0;
  for (const [kind, count] of CHANGED) {
    for (let index = 0; index < count; index++, assets++) {
      const vault = vaults[assets % vaults.length]!;
      const key = `${vault} ${kind}`;
      if (!names.has(key))
        names.set(
          key,
          control.items(vault, kind).map(({ name }) => name),
        );
      const name = names.get(key)!.shift()!;
      const made = assets % 3 === 0 ? { tags: { owner: "another@acme.example" } } : { expiresInDays: 3 + (assets % 9) };
      if (!control.change(vault, kind, name, made)) throw new Error(`There is no ${name} in ${vault}`);
    }
  }
  return { assets, vaults: vaults.map((name) => name.toLowerCase()) };
}

/** Returns the row keys of the compliance partition with their ETags. Reads past the counting proxy. */
async function rows(service: Service): Promise<Map<string, string>> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Compliance", {
    allowInsecureConnection: true,
  });
  const found = new Map<string, string>();
  const query = { filter: "PartitionKey eq 'state'", select: ["RowKey"] };
  for await (const { rowKey, etag } of client.listEntities<object>({ queryOptions: query })) found.set(rowKey!, etag);
  return found;
}

interface Evaluation {
  vault: string;
  evaluated: number;
}

/** Returns the evaluations of scans from the log, oldest first. Vaults without changed assets are not included. */
const evaluations = (service: Service): Evaluation[] =>
  service.hosts[0]!.lines.filter((line) => line.includes("A vault was evaluated {"))
    .map((line) => JSON.parse(line.slice(line.indexOf("{", line.indexOf("A vault was evaluated")))) as Evaluation)
    .filter(({ evaluated }) => evaluated > 0);

const sum = (all: readonly Evaluation[]): number => all.reduce((total, { evaluated }) => total + evaluated, 0);

const same = (one: readonly string[], other: readonly string[]): boolean => {
  const wanted = new Set(other);
  return (
    one.every((name) => wanted.delete(name.toLowerCase()) || other.includes(name.toLowerCase())) && wanted.size === 0
  );
};

/** Lists each severity and framework alone, and every pair of them. */
function filters(frameworks: readonly string[]): string[] {
  const severities = ["", ...SEVERITIES.map((severity) => `severity=${severity}`)];
  const of = ["", ...frameworks.map((framework) => `framework=${framework}`)];
  return severities.flatMap((severity) => of.map((framework) => `?${[severity, framework].filter(Boolean).join("&")}`));
}

const isAuthentication = (path: string): boolean => path.startsWith("Users(");
