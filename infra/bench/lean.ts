import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { TableClient, type TableEntity } from "@azure/data-tables";
import type { Fault } from "simulated-cloud/faults.ts";
import { MEASURED_COMPANY, minimumListChain, PER_VAULT, VAULTS } from "../../test/support/measured-company.ts";
import { Service } from "../../test/support/service.ts";
import type { BareDone, BareWork } from "./lean-bare.ts";
import { measureProwler, prowlerFigures } from "./lean-prowler.ts";
import { atMost, type Figure, median, ratio, type Section } from "./section.ts";

/** Added to every call of the simulated cloud, as a typical round trip to Azure. */
const LATENCY_MS = 40;
const LATENCY_FAULT: Fault = { action: { kind: "latency", milliseconds: LATENCY_MS } };
const WORKERS = 10;
const MEASURED_SUBSCRIPTIONS = MEASURED_COMPANY.subscriptions;
const WARM_UP_PREFIX = "before-";
/**
 * A copy of the measured subscriptions that both processes read first, as a warm-up: a process compiles its code during its
 * first work, and that cost is reported separately.
 */
const WARM_UP_SUBSCRIPTIONS = MEASURED_SUBSCRIPTIONS.map(({ name, vaults = [] }) => ({
  name: `${name} before`,
  vaults: vaults.map((vault) => ({ ...vault, name: `${WARM_UP_PREFIX}${vault.name}` })),
}));
/** Number of new services that are measured, each with its own storage. Figures are medians. */
const ROUNDS = Number(process.env.LEAN_ROUNDS ?? 5);
/** Linux counts processor time in units of 10 ms: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html */
const TICK_MS = 10;
/** Delta scans per round. A single one is so short that the resolution of the processor time would distort its figure. */
const DELTA_SCANS = 3;
const ASSETS = VAULTS * PER_VAULT;
/** Period over which the processor time of the idle host is measured. */
const IDLE_MS = 2_000;
/** Interval of polls for the end of a scan. The duration of a scan is taken from the host's log, so it is more exact. */
const POLL_MS = 250;
/**
 * Python with Azure's SDK, for the comparison with lean-loop.py. Install it with
 * `python3 -m venv .local/bench-python && .local/bench-python/bin/pip install
 * azure-keyvault-keys azure-keyvault-secrets azure-keyvault-certificates`
 */
const PYTHON = path.resolve(import.meta.dirname, "../../.local/bench-python/bin/python");

/**
 * `delta`: delta scan without changes. `full`: full scan without changes. `first`: first full scan, which writes all assets.
 */
type Kind = "delta" | "full" | "first";

/** Cost of one scan by the service, or of the same requests by the bare client. */
interface Sample {
  /** Duration. */
  seconds: number;
  /** Processor time in milliseconds. */
  ms: number;
  /** Requests to the cloud. */
  calls: number;
}

/**
 * Benchmark `lean`: compares scans with a bare client (lean-bare.ts), which sends the same requests and does nothing else. Both
 * are measured alternately, so that they run under the same load of the machine. If they are installed, a script with Azure's
 * Python SDK (lean-loop.py) and the security scanner Prowler (lean-prowler.py) read the same vaults for comparison.
 */
export async function lean(): Promise<Section> {
  const { bare, ours, writes, coldStart, receiptSeconds, handshakes, pythonLoop, prowler } = await measureRounds();
  // The limits of the figures are the largest accepted ratios to the baseline.
  const medianSeconds = (samples: Sample[]) => median(samples.map(({ seconds }) => seconds));
  const msPer1000Calls = (samples: Sample[]) => (1000 * sum(samples, "ms")) / sum(samples, "calls");
  const idealSeconds = (Math.ceil(VAULTS / WORKERS) * minimumListChain() * LATENCY_MS) / 1000;
  const durationFigure = (
    what: string,
    kind: Kind,
    limit: number,
    baselineSeconds: number,
    baseline: string,
  ): Figure => ({
    what,
    value: `${medianSeconds(ours[kind]).toFixed(2)} s, ${ratio(medianSeconds(ours[kind]), baselineSeconds)}`,
    comparedWith: `${baselineSeconds.toFixed(2)} s, ${baseline}`,
    bound: atMost(medianSeconds(ours[kind]) / baselineSeconds, limit),
  });
  const processorFigure = (what: string, kind: Kind, limit: number): Figure => ({
    what,
    value: `${msPer1000Calls(ours[kind]).toFixed(0)} ms, ${ratio(msPer1000Calls(ours[kind]), msPer1000Calls(bare[kind]))}`,
    comparedWith: `${msPer1000Calls(bare[kind]).toFixed(0)} ms, bare: sockets, TLS and JSON; the service also evaluates and stores`,
    bound: atMost(msPer1000Calls(ours[kind]) / msPer1000Calls(bare[kind]), limit),
  });
  const writeMsOurs = median(writes.map((write) => write.ours));
  const writeMsBare = median(writes.map((write) => write.bare));
  return {
    title: "A scan compared with a bare client",
    how: `${VAULTS} vaults of ${ASSETS / VAULTS} assets, ${WORKERS} at a time, ${LATENCY_MS} ms added to every cloud call, after a warm-up with other vaults in a new process. "Bare" is a process that sends the same GETs with \`node:https\` over as many connections and calls \`JSON.parse\`. It runs right before each of our ${ROUNDS} runs; medians. Both write to Azurite. Time is from the receipt of the scan's message until its invocation ends with everything written. Processor time is the system's count per process (\`/proc/<pid>/stat\`), minus what the host spends on idle queues. Prowler reads the vaults in subscriptions of three, because it never ends if one has ten vaults with keys.`,
    figures: [
      durationFigure(
        "unchanged delta",
        "delta",
        2.2,
        idealSeconds,
        "the ideal: a vault's longest list, times the rounds of workers",
      ),
      durationFigure(
        "unchanged full scan",
        "full",
        1.6,
        medianSeconds(bare.full),
        "bare: the same requests without evaluation and storage",
      ),
      durationFigure(
        "first full scan",
        "first",
        3.8,
        medianSeconds(bare.first),
        "bare: the requests alone; ours also writes six rows per asset",
      ),
      processorFigure("processor time per 1,000 calls, unchanged full scan", "full", 2.8),
      processorFigure("processor time per 1,000 calls, unchanged delta", "delta", 2.5),
      {
        what: "processor time per 1,000 assets written",
        value: `${writeMsOurs.toFixed(0)} ms, ${ratio(writeMsOurs, writeMsBare)}`,
        comparedWith: `${writeMsBare.toFixed(0)} ms, bare: the same rows in the same transactions by \`node:http\`; ours: a first full scan minus an unchanged one`,
        bound: atMost(writeMsOurs / writeMsBare, 4.2),
      },
      {
        what: "the first full scan of a new process",
        value: `${medianSeconds(coldStart.ours).toFixed(2)} s, ${msPer1000Calls(coldStart.ours).toFixed(0)} ms of processor time per 1,000 calls`,
        comparedWith: `${medianSeconds(coldStart.bare).toFixed(2)} s and ${msPer1000Calls(coldStart.bare).toFixed(0)} ms, a new bare process; ours also compiles more code, and writes`,
      },
      {
        what: "TLS handshakes of a vault, the most in one scan",
        value: String(handshakes),
        // A vault has at most 8 connections: `MAX_PER_HOST` of the functions.
        comparedWith: "8 connections",
        bound: atMost(handshakes, 8),
      },
      {
        what: "from the request to the message's receipt",
        value: `${median(receiptSeconds).toFixed(2)} s, at the worst ${Math.max(...receiptSeconds).toFixed(2)} s`,
        comparedWith: "the wait for the next poll: `maxPollingInterval`",
      },
      ...pythonLoopFigures(pythonLoop, medianSeconds(ours.full), medianSeconds(ours.first)),
      ...prowlerFigures(prowler, { full: medianSeconds(ours.full), first: medianSeconds(ours.first) }),
    ],
  };
}

/**
 * Measures all rounds. Returns for each kind of scan the samples of both processes (`bare` and `ours`), the milliseconds per
 * 1,000 written assets, and the first scans of new processes. Also returns the results of the Python programs, which run only
 * in the first round.
 */
async function measureRounds() {
  const bare: Record<Kind, Sample[]> = { delta: [], full: [], first: [] };
  const ours: Record<Kind, Sample[]> = { delta: [], full: [], first: [] };
  const writes: { bare: number; ours: number }[] = [];
  const coldStart: Record<"bare" | "ours", Sample[]> = { bare: [], ours: [] };
  const receiptSeconds: number[] = [];
  let handshakes = 0;
  let pythonLoop: { seconds: number; processorMs: number } | undefined;
  let prowler: Awaited<ReturnType<typeof measureProwler>>;
  for (let round = 0; round < ROUNDS; round++) {
    const service = await Service.start({
      company: { subscriptions: [...MEASURED_SUBSCRIPTIONS, ...WARM_UP_SUBSCRIPTIONS] },
      env: { DISCOVERY_MAX_WORKERS: String(WORKERS) },
      hosts: 0,
    });
    // Both connect to the tables directly, because the tests' proxy uses processor time on the same two cores.
    await service.addHost({ AzureWebJobsStorage: service.azurite.connectionString() });
    const bareClient = startBareClient(service);
    try {
      await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
      const idleLoad = await measureIdleLoad(service);
      service.cloud.control.addFault(LATENCY_FAULT);
      const warmUpVaults = vaultUrls(service, WARM_UP_SUBSCRIPTIONS);
      coldStart.bare.push(await bareClient.run({ kind: "full", vaults: warmUpVaults }));
      coldStart.ours.push(...(await runScans(service, "full", 1, idleLoad, WARM_UP_SUBSCRIPTIONS)).samples);
      const vaults = vaultUrls(service);

      bare.first.push(await bareClient.run({ kind: "full", vaults }));
      ours.first.push(...(await runScans(service, "full", 1, idleLoad)).samples);
      const rows = await readAssetRows(service);
      // This scan parses all responses like the first one, because their stored hashes are removed, but it writes no assets.
      // The difference of both is the cost of writing.
      await removeResponseHashes(service);
      const [withoutWrites] = (await runScans(service, "full", 1, idleLoad)).samples;
      for (const kind of ["full", "delta"] as const) {
        const count = kind === "delta" ? DELTA_SCANS : 1;
        for (let run = 0; run < count; run++) bare[kind].push(await bareClient.run({ kind, vaults }));
        const measured = await runScans(service, kind, count, idleLoad);
        ours[kind].push(...measured.samples);
        receiptSeconds.push(...measured.receiptSeconds);
        handshakes = Math.max(handshakes, measured.handshakes);
      }
      const bareWrite = await bareClient.run({
        kind: "write",
        connectionString: service.azurite.connectionString(),
        rows,
      });
      const writeMs = ours.first.at(-1)!.ms - withoutWrites!.ms;
      writes.push({ bare: (1000 * bareWrite.ms) / ASSETS, ours: (1000 * writeMs) / ASSETS });
      if (round === 0) {
        pythonLoop = await runPythonLoop(service, vaults);
        prowler = await measureProwler(service, LATENCY_FAULT, () => runScans(service, "full", 1, idleLoad));
      }
    } finally {
      bareClient.stop();
      await service.stop();
    }
  }
  return { bare, ours, writes, coldStart, receiptSeconds, handshakes, pythonLoop, prowler };
}

const sum = (samples: Sample[], member: keyof Sample): number =>
  samples.reduce((total, sample) => total + sample[member], 0);

/** Returns the processor time of a process since its start, including its threads. */
function processorMs(pid: number): number {
  // Fields 14 and 15 of the line are the user and the system time. The second field is the name in parentheses, which can
  // contain spaces, so the line is split after the name. There, the two fields have index 11 and 12.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

/** Starts the child process of lean-bare.ts. */
function startBareClient(service: Service) {
  const file = path.resolve(import.meta.dirname, "lean-bare.ts");
  const child = fork(file, [], { env: { ...process.env, ...service.cloud.environment } });
  return {
    async run(work: BareWork): Promise<Sample> {
      const msBefore = processorMs(child.pid!);
      child.send(work);
      const [done] = (await Promise.race([
        once(child, "message"),
        once(child, "exit").then(([code]) => Promise.reject(new Error(`The bare client ended with ${code}.`))),
      ])) as [BareDone];
      return { seconds: done.seconds, calls: done.calls, ms: processorMs(child.pid!) - msBefore };
    },
    stop: () => child.kill(),
  };
}

/** Matches a host log line such as `[2026-11-26T10:00:00.000Z] Executed 'Functions.scanVault' (Succeeded, …)`. */
const INVOCATION_LINE = /^\[([^\]]+)\].*(Executing|Executed) 'Functions\.(planScan|scanVault)'/;

/**
 * Runs `count` scans of the subscriptions, one after the other. Returns a sample of each, the seconds from each request to the
 * receipt of its message, and the largest number of TLS handshakes with one vault in one scan.
 *
 * @param idleLoad - Processor time that the host uses without work. It is subtracted from each sample.
 */
async function runScans(
  service: Service,
  mode: "full" | "delta",
  count: number,
  idleLoad: number,
  scanned = MEASURED_SUBSCRIPTIONS,
) {
  const [host] = service.hosts;
  const names = scanned.map(({ name }) => name);
  const allSubscriptions = service.cloud.control.subscriptions();
  const subscriptions = allSubscriptions.filter(({ name }) => names.includes(name)).map(({ id }) => id);
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Scans", {
    allowInsecureConnection: true,
  });
  const samples: Sample[] = [];
  const receiptSeconds: number[] = [];
  let handshakes = 0;
  for (let run = 0; run < count; run++) {
    const linesBefore = host!.lines.length;
    service.cloud.control.resetCounts();
    service.cloud.handshakes.clear();
    const requestedAt = Date.now();
    const msBefore = processorMs(host!.pid);
    const { body } = await service.admin("POST", "/api/assets/discovery/scan", { mode, subscriptions });
    const { scanId } = body as { scanId: string };
    // Reads the storage directly and rarely, so that polling costs the service nothing. The storage runs on the same two cores.
    for (let status = "queued"; status === "queued" || status === "running"; await delay(POLL_MS)) {
      // The row of a scan has the partition key `scan:` and its ID, and the row key `0`.
      ({ status } = await client.getEntity<{ status: string }>(`scan:${scanId}`, "0"));
    }
    const ms = processorMs(host!.pid) - msBefore - idleLoad * (Date.now() - requestedAt);
    await host!.waitForLine(
      (line) => host!.lines.indexOf(line, linesBefore) >= 0 && line.includes("Executed 'Functions.planScan'"),
    );
    const { total = 0 } = service.cloud.control.counts();
    const invocations = host!.lines.slice(linesBefore).flatMap((line) => {
      const [, timestamp, event, name] = INVOCATION_LINE.exec(line) ?? [];
      return timestamp ? [{ at: Date.parse(timestamp), event, name }] : [];
    });
    const receivedAt = invocations.find(({ event, name }) => event === "Executing" && name === "planScan")?.at;
    const endedAt = invocations.filter(({ event }) => event === "Executed").at(-1)?.at;
    if (!receivedAt || !endedAt) throw new Error(`The scan ${scanId} left no lines in the host's log.`);
    samples.push({ seconds: (endedAt - receivedAt) / 1000, ms, calls: total });
    receiptSeconds.push((receivedAt - requestedAt) / 1000);
    for (const [name, count] of service.cloud.handshakes) {
      if (name.includes(".vault.")) handshakes = Math.max(handshakes, count);
    }
  }
  return { samples, receiptSeconds, handshakes };
}

/**
 * Returns the processor milliseconds that the idle host uses per millisecond. It polls fifty queues, which the platform does in
 * production.
 */
async function measureIdleLoad(service: Service): Promise<number> {
  const { pid } = service.hosts[0]!;
  await delay(2 * IDLE_MS);
  const msBefore = processorMs(pid);
  await delay(IDLE_MS);
  return (processorMs(pid) - msBefore) / IDLE_MS;
}

function vaultUrls(service: Service, subscriptions = MEASURED_SUBSCRIPTIONS): string[] {
  const serviceVault = new URL(service.cloud.environment.SERVICE_KEY_VAULT_URL!);
  const domain = serviceVault.hostname.slice(serviceVault.hostname.indexOf("."));
  const vaults = subscriptions.flatMap((subscription) => subscription.vaults ?? []);
  return vaults.map(({ name }) => `https://${name}${domain}:${serviceVault.port}`);
}

/** Returns the rows of the measured assets as the service wrote them, without their keys. */
async function readAssetRows(service: Service): Promise<object[]> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Assets", {
    allowInsecureConnection: true,
  });
  // Row keys that start with `n!` are those of the partition's list by name: each asset has one such row in it. `~` sorts after
  // all characters of vault names, so the last condition excludes the vaults of the warm-up.
  const filter = `PartitionKey eq 'all' and RowKey ge 'n!' and RowKey lt 'n~' and not (vaultName ge '${WARM_UP_PREFIX}' and vaultName lt '${WARM_UP_PREFIX}~')`;
  const rows: object[] = [];
  for await (const { partitionKey, rowKey, etag, timestamp, ...row } of client.listEntities({
    queryOptions: { filter },
  }))
    rows.push(row);
  return rows;
}

/** Removes the hashes of the last responses from both rows of each vault. Without them, the next scan parses every response. */
async function removeResponseHashes(service: Service): Promise<void> {
  const client = TableClient.fromConnectionString(service.azurite.connectionString(), "Vaults", {
    allowInsecureConnection: true,
  });
  let updatedRows = 0;
  for await (const { answers_json: hashes, ...row } of client.listEntities<{ answers_json?: string }>()) {
    if (hashes === undefined) continue;
    await client.updateEntity(row as TableEntity, "Replace");
    updatedRows++;
  }
  if (updatedRows < 2 * VAULTS) throw new Error(`Only ${updatedRows} rows have hashes of responses.`);
}

/** Runs lean-loop.py over the vaults. Returns undefined if Azure's Python SDK is not installed. */
async function runPythonLoop(service: Service, vaults: string[]) {
  if (!existsSync(PYTHON)) return undefined;
  const file = path.resolve(import.meta.dirname, "lean-loop.py");
  const env = { ...process.env, ...service.cloud.environment, NODE_OPTIONS: "" };
  const { stdout } = await promisify(execFile)(PYTHON, [file, ...vaults], { env });
  return JSON.parse(stdout) as { seconds: number; processorMs: number };
}

/** Returns the rows of the table that compare the Python script with the service's unchanged and first full scan. */
function pythonLoopFigures(
  loop: { seconds: number; processorMs: number } | undefined,
  fullScanSeconds: number,
  firstScanSeconds: number,
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
      value: `${value}; an unchanged full scan is ${(loop.seconds / fullScanSeconds).toFixed(1)} times faster`,
      comparedWith: "sequential round trips",
      bound: atLeast(loop.seconds / fullScanSeconds, 35),
    },
    {
      what,
      value: `a first full scan is ${(loop.seconds / firstScanSeconds).toFixed(1)} times faster`,
      comparedWith: "the same",
      bound: atLeast(loop.seconds / firstScanSeconds, 14.8),
    },
  ];
}
