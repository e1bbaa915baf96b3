import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { TableClient, type TableEntity } from "@azure/data-tables";
import type { Fault } from "simulated-cloud/faults.ts";
import { leastListing, MEASURED_COMPANY, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import type { BareDone, BareWork } from "./lean-bare.ts";
import { prowlerFigures, withProwler } from "./lean-prowler.ts";
import { atMost, type Figure, median, ratio, type Section } from "./section.ts";

const LATENCY_MS = 40;
const SLOW: Fault = { action: { kind: "latency", milliseconds: LATENCY_MS } };
const WORKERS = 10;
const MEASURED = MEASURED_COMPANY.subscriptions;
const PREFIX_BEFORE = "before-";
/**
 * Number of additional vaults that both read first. A process compiles its code during its first work, and that cost is
 * reported separately.
 */
const BEFORE = MEASURED.map(({ name, vaults = [] }) => ({
  name: `${name} before`,
  vaults: vaults.map((vault) => ({ ...vault, name: `${PREFIX_BEFORE}${vault.name}` })),
}));
const ROUNDS = Number(process.env.LEAN_ROUNDS ?? 5);
/** The system counts processor time in hundredths of a second: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
const TICK_MS = 10;
/** Minimum processor time of a sample, so that the clock's resolution does not matter. */
const DELTAS = 3;
const ASSETS = VAULTS * PER_VAULT;
const IDLE_MS = 2_000;
/** Interval of polls for the end of a scan. Durations are taken from the host's log. */
const LOOK_MS = 250;
/** `python3 -m venv .local/bench-python && .local/bench-python/bin/pip install azure-keyvault-keys azure-keyvault-secrets azure-keyvault-certificates` */
const PYTHON = path.resolve(import.meta.dirname, "../../.local/bench-python/bin/python");

type Kind = "delta" | "full" | "first";

/** Figures in seconds, milliseconds of processor time, and calls. */
interface Sample {
  seconds: number;
  ms: number;
  calls: number;
}

/** Measures scans and the same requests by a bare client, alternately, so that both run under the same load. */
export async function lean(): Promise<Section> {
  const bare: Record<Kind, Sample[]> = { delta: [], full: [], first: [] };
  const ours: Record<Kind, Sample[]> = { delta: [], full: [], first: [] };
  const writes: { bare: number; ours: number }[] = [];
  const cold: Record<"bare" | "ours", Sample[]> = { bare: [], ours: [] };
  const receipts: number[] = [];
  let handshakes = 0;
  let loop: { seconds: number; processorMs: number } | undefined;
  let prowler: Awaited<ReturnType<typeof withProwler>>;
  for (let round = 0; round < ROUNDS; round++) {
    const service = await Service.start({
      company: { subscriptions: [...MEASURED, ...BEFORE] },
      env: { DISCOVERY_MAX_WORKERS: String(WORKERS) },
      hosts: 0,
    });
    // Both connect to the tables directly, because the tests' proxy uses processor time on the same two cores.
    await service.addHost({ AzureWebJobsStorage: service.azurite.connectionString() });
    const client = startBare(service);
    try {
      await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
      const idle = await idleRate(service);
      service.cloud.control.addFault(SLOW);
      cold.bare.push(await client.does({ kind: "full", vaults: vaultAddresses(service, BEFORE) }));
      cold.ours.push(...(await scans(service, "full", 1, idle, BEFORE)).samples);
      const vaults = vaultAddresses(service);

      bare.first.push(await client.does({ kind: "full", vaults }));
      ours.first.push(...(await scans(service, "full", 1, idle)).samples);
      const rows = await assetRows(service);
      // Like the first scan, but without writing: all responses are parsed, because their stored hashes were removed.
      await forgetAnswers(service);
      const [current] = (await scans(service, "full", 1, idle)).samples;
      for (const kind of ["full", "delta"] as const) {
        const times = kind === "delta" ? DELTAS : 1;
        for (let time = 0; time < times; time++) bare[kind].push(await client.does({ kind, vaults }));
        const measured = await scans(service, kind, times, idle);
        ours[kind].push(...measured.samples);
        receipts.push(...measured.receipts);
        handshakes = Math.max(handshakes, measured.handshakes);
      }
      const written = await client.does({
        kind: "write",
        connectionString: service.azurite.connectionString(),
        rows,
      });
      const own = ours.first.at(-1)!.ms - current!.ms;
      writes.push({ bare: (1000 * written.ms) / ASSETS, ours: (1000 * own) / ASSETS });
      if (round === 0) {
        loop = await pythonLoop(service, vaults);
        prowler = await withProwler(service, SLOW, () => scans(service, "full", 1, idle));
      }
    } finally {
      client.stop();
      await service.stop();
    }
  }

  const seconds = (samples: Sample[]) => median(samples.map((one) => one.seconds));
  const perCall = (samples: Sample[]) => (1000 * sum(samples, "ms")) / sum(samples, "calls");
  const ideal = (Math.ceil(VAULTS / WORKERS) * leastListing() * LATENCY_MS) / 1000;
  const time = (what: string, kind: Kind, limit: number, against: number, decides: string): Figure => ({
    what,
    value: `${seconds(ours[kind]).toFixed(2)} s, ${ratio(seconds(ours[kind]), against)}`,
    comparedWith: `${against.toFixed(2)} s, ${decides}`,
    bound: atMost(seconds(ours[kind]) / against, limit),
  });
  const processor = (what: string, kind: Kind, limit: number): Figure => ({
    what,
    value: `${perCall(ours[kind]).toFixed(0)} ms, ${ratio(perCall(ours[kind]), perCall(bare[kind]))}`,
    comparedWith: `${perCall(bare[kind]).toFixed(0)} ms, bare: sockets, TLS and JSON; the service also evaluates and stores`,
    bound: atMost(perCall(ours[kind]) / perCall(bare[kind]), limit),
  });
  const own = median(writes.map((one) => one.ours));
  const plain = median(writes.map((one) => one.bare));
  return {
    title: "A scan compared with a bare client",
    how: `${VAULTS} vaults of ${ASSETS / VAULTS} assets, ${WORKERS} at a time, ${LATENCY_MS} ms added to every cloud call, after a warm-up with other vaults in a new process. "Bare" is a process that sends the same GETs with \`node:https\` over as many connections and calls \`JSON.parse\`. It runs right before each of our ${ROUNDS} runs; medians. Both write to Azurite. Time is from the receipt of the scan's message until its invocation ends with everything written. Processor time is the system's count per process (\`/proc/<pid>/stat\`), minus what the host spends on idle queues. Prowler reads the vaults in subscriptions of three, because it never ends if one has ten vaults with keys.`,
    figures: [
      time("unchanged delta", "delta", 2, ideal, "the ideal: a vault's longest list, times the rounds of workers"),
      time("unchanged full scan", "full", 1.6, seconds(bare.full), "bare: the round trips of one vault's details"),
      time("first full scan", "first", 2.2, seconds(bare.first), "bare; the rest writes six rows per asset"),
      processor("processor time per 1,000 calls, unchanged full scan", "full", 1.5),
      processor("processor time per 1,000 calls, unchanged delta", "delta", 2),
      {
        what: "processor time per 1,000 assets written",
        value: `${own.toFixed(0)} ms, ${ratio(own, plain)}`,
        comparedWith: `${plain.toFixed(0)} ms, bare: the same rows in the same transactions by \`node:http\`; ours: a first full scan minus an unchanged one`,
        bound: atMost(own / plain, 2.5),
      },
      {
        what: "the first full scan of a new process",
        value: `${seconds(cold.ours).toFixed(2)} s, ${perCall(cold.ours).toFixed(0)} ms of processor time per 1,000 calls`,
        comparedWith: `${seconds(cold.bare).toFixed(2)} s and ${perCall(cold.bare).toFixed(0)} ms, a new bare process; ours also compiles more code, and writes`,
      },
      {
        what: "TLS handshakes of a vault, the most in one scan",
        value: String(handshakes),
        comparedWith: "8 connections",
        bound: atMost(handshakes, 8),
      },
      {
        what: "from the request to the message's receipt",
        value: `${median(receipts).toFixed(2)} s, at the worst ${Math.max(...receipts).toFixed(2)} s`,
        comparedWith: "the wait for the next poll: `maxPollingInterval`",
      },
      ...loopFigures(loop, seconds(ours.full), seconds(ours.first)),
      ...prowlerFigures(prowler, { full: seconds(ours.full), first: seconds(ours.first) }),
    ],
  };
}

const sum = (samples: Sample[], member: keyof Sample): number =>
  samples.reduce((total, sample) => total + sample[member], 0);

/** Returns the processor time of a process so far, including its threads. */
function processorMs(pid: number): number {
  // The name in parentheses can contain spaces. Fields 14 and 15 are user and system time.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function startBare(service: Service) {
  const file = path.resolve(import.meta.dirname, "lean-bare.ts");
  const child = fork(file, [], { env: { ...process.env, ...service.cloud.environment } });
  return {
    async does(work: BareWork): Promise<Sample> {
      const before = processorMs(child.pid!);
      child.send(work);
      const [done] = (await Promise.race([
        once(child, "message"),
        once(child, "exit").then(([code]) => Promise.reject(new Error(`The bare client ended with ${code}.`))),
      ])) as [BareDone];
      return { seconds: done.seconds, calls: done.calls, ms: processorMs(child.pid!) - before };
    },
    stop: () => child.kill(),
  };
}

const LINE = /^\[([^\]]+)\].*(Executing|Executed) 'Functions\.(planScan|scanVault)'/;

/** Runs this many scans one after the other. */
async function scans(service: Service, mode: "full" | "delta", times: number, idle: number, of = MEASURED) {
  const [host] = service.hosts;
  const names = of.map(({ name }) => name);
  const known = service.cloud.control.subscriptions();
  const subscriptions = known.filter(({ name }) => names.includes(name)).map(({ id }) => id);
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
    allowInsecureConnection: true,
  });
  const samples: Sample[] = [];
  const receipts: number[] = [];
  let handshakes = 0;
  for (let time = 0; time < times; time++) {
    const seen = host!.lines.length;
    service.cloud.control.resetCounts();
    service.cloud.handshakes.clear();
    const asked = Date.now();
    const before = processorMs(host!.pid);
    const { body } = await service.admin("POST", "/api/assets/discovery/scan", { mode, subscriptions });
    const { scanId } = body as { scanId: string };
    // Reads the storage directly and rarely, so that polling costs the service nothing. The storage runs on the same two cores.
    for (let status = "queued"; status === "queued" || status === "running"; await delay(LOOK_MS)) {
      ({ status } = await client.getEntity<{ status: string }>(`scan:${scanId}`, "0"));
    }
    const spent = processorMs(host!.pid) - before - idle * (Date.now() - asked);
    await host!.line((line) => host!.lines.indexOf(line, seen) >= 0 && line.includes("Executed 'Functions.planScan'"));
    const { total = 0 } = service.cloud.control.counts();
    const events = host!.lines.slice(seen).flatMap((line) => {
      const [, at, what, name] = LINE.exec(line) ?? [];
      return at ? [{ at: Date.parse(at), what, name }] : [];
    });
    const received = events.find(({ what, name }) => what === "Executing" && name === "planScan")?.at;
    const ended = events.filter(({ what }) => what === "Executed").at(-1)?.at;
    if (!received || !ended) throw new Error(`The scan ${scanId} left no lines in the host's log.`);
    samples.push({ seconds: (ended - received) / 1000, ms: spent, calls: total });
    receipts.push((received - asked) / 1000);
    for (const [name, count] of service.cloud.handshakes) {
      if (name.includes(".vault.")) handshakes = Math.max(handshakes, count);
    }
  }
  return { samples, receipts, handshakes };
}

/** Processor time of the idle host. It polls fifty queues, which the platform does in production. */
async function idleRate(service: Service): Promise<number> {
  const { pid } = service.hosts[0]!;
  await delay(2 * IDLE_MS);
  const before = processorMs(pid);
  await delay(IDLE_MS);
  return (processorMs(pid) - before) / IDLE_MS;
}

function vaultAddresses(service: Service, of = MEASURED): string[] {
  const own = new URL(service.cloud.environment.SERVICE_KEY_VAULT_URL!);
  const suffix = own.hostname.slice(own.hostname.indexOf("."));
  const vaults = of.flatMap((subscription) => subscription.vaults ?? []);
  return vaults.map(({ name }) => `https://${name}${suffix}:${own.port}`);
}

/** Returns the rows of the measured assets as the service wrote them, without their keys. */
async function assetRows(service: Service): Promise<object[]> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Assets", {
    allowInsecureConnection: true,
  });
  const filter = `PartitionKey eq 'all' and RowKey ge 'n!' and RowKey lt 'n~' and not (vaultName ge '${PREFIX_BEFORE}' and vaultName lt '${PREFIX_BEFORE}~')`;
  const rows: object[] = [];
  for await (const { partitionKey, rowKey, etag, timestamp, ...row } of client.listEntities({
    queryOptions: { filter },
  }))
    rows.push(row);
  return rows;
}

/** Removes the hashes of the last responses from the row of every vault and from its copy. */
async function forgetAnswers(service: Service): Promise<void> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Vaults", {
    allowInsecureConnection: true,
  });
  let forgotten = 0;
  for await (const { answers_json: answers, ...row } of client.listEntities<{ answers_json?: string }>()) {
    if (answers === undefined) continue;
    await client.updateEntity(row as TableEntity, "Replace");
    forgotten++;
  }
  if (forgotten < 2 * VAULTS) throw new Error(`The hashes of answers stand in ${forgotten} rows.`);
}

async function pythonLoop(service: Service, vaults: string[]) {
  if (!existsSync(PYTHON)) return undefined;
  const file = path.resolve(import.meta.dirname, "lean-loop.py");
  const env = { ...process.env, ...service.cloud.environment, NODE_OPTIONS: "" };
  const { stdout } = await promisify(execFile)(PYTHON, [file, ...vaults], { env });
  return JSON.parse(stdout) as { seconds: number; processorMs: number };
}

function loopFigures(
  loop: { seconds: number; processorMs: number } | undefined,
  full: number,
  first: number,
): Figure[] {
  const what = "Azure's Python SDK, one call after the other";
  if (!loop)
    return [
      { what, value: "not measured", comparedWith: "there is no `.local/bench-python`, see `infra/bench/lean.ts`" },
    ];
  const atLeast = (times: number, limit: number) => ({ text: `≥ ${limit}`, holds: times >= limit });
  const value = `${loop.seconds.toFixed(1)} s, ${(loop.processorMs / 1000).toFixed(1)} s of processor time`;
  return [
    {
      what,
      value: `${value}; an unchanged full scan is ${(loop.seconds / full).toFixed(1)} times faster`,
      comparedWith: "sequential round trips",
      bound: atLeast(loop.seconds / full, 40),
    },
    {
      what,
      value: `a first full scan is ${(loop.seconds / first).toFixed(1)} times faster`,
      comparedWith: "the same",
      bound: atLeast(loop.seconds / first, 30),
    },
  ];
}
