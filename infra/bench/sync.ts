import { setTimeout as delay } from "node:timers/promises";
import pMap from "p-map";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { caller, type Fixture, openFixture, SOURCE } from "../../test/sync/sync-fixture.ts";
import { processFigures, smallInstance, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, type Section } from "./section.ts";

/** Number of sync records. Each copies a secret of a key vault to a secret in AWS Secrets Manager. */
const RECORDS = Number(process.env.BENCH_SYNC_RECORDS ?? 5000);
/** Number of source secrets. Each of them is copied by several records. */
const SECRETS = 500;
/** The service's own key vault, with the credentials of AWS. */
const SERVICE_VAULT = "kv-lifecycle-service";
const REGION = "eu-west-1";
/**
 * Offset of the clock of the process that creates and changes records: one hour behind. A record is due at the time of its
 * creation or change, so all records are overdue when the timer of the service runs.
 */
const CLOCK_OFFSET_MS = -3_600_000;
const HOUR_SECONDS = 3600;

/**
 * Benchmark `sync`: measures one instance when all sync records of a company are due at the same time. In the first run no copy
 * exists and all are written. In the second run nothing has changed.
 */
export async function sync(): Promise<Section> {
  const secrets = Array.from({ length: SECRETS }, (_, index) => ({ name: `secret-${index}`, value: `value-${index}` }));
  const service = await Service.start({
    tableProxy: true,
    company: { subscriptions: [{ name: "Shop", vaults: [{ name: SOURCE, secrets }] }] },
    hosts: 0,
    // Once a year, so that the timer runs only when the benchmark calls it.
    env: { LICENSE_KEY: await licence(), SYNC_SCHEDULE: "0 0 0 1 1 *" },
  });
  await service.addHost(smallInstance(service.environment));
  try {
    const { cloud, azurite } = service;
    Object.assign(process.env, cloud.environment);
    const fixture = openFixture({
      cloud,
      connectionString: azurite.connectionString(),
      clockOffsetMs: CLOCK_OFFSET_MS,
    });
    await fixture.discover(SOURCE);
    const key = cloud.control.providers.aws.key;
    await fixture.sync.configurations.save("aws", { ...key, region: REGION }, undefined, caller);
    const target = { targetProvider: "aws", targetService: "secretsmanager", targetRegion: REGION };
    const records = await pMap(
      Array.from({ length: RECORDS }, (_, index) => index),
      (index) =>
        fixture.createRecord({ ...target, sourceSecret: `secret-${index % SECRETS}`, targetName: `copies/${index}` }),
      { concurrency: 8 },
    );
    const firstRun = await runAllRecords(service);
    await pMap(records, ({ recordId }) => makeRecordDue(fixture, recordId), { concurrency: 8 });
    const unchangedRun = await runAllRecords(service);
    const { memory } = await processFigures(service.url);
    const written = cloud.control.providers.aws.secretsManager.written();
    return {
      title: `${RECORDS.toLocaleString("en")} sync records due at once`,
      how: "Copies of a vault's secrets in AWS Secrets Manager, all due at the same time, on one instance: first none exists, then nothing changed. Counts version lists, secret reads and Secrets Manager calls, and all requests to tables, including the audit log and status polling. Processor time is that of the functions process.",
      figures: [
        {
          what: "copies written",
          value: String(written),
          comparedWith: `${RECORDS} records`,
          bound: equalTo(written, RECORDS),
        },
        // Calls per record: two of Key Vault and two of AWS for a first copy, one of each where nothing changed.
        ...figuresOf("first copy", firstRun, 4.2),
        ...figuresOf("nothing changed", unchangedRun, 2),
        {
          what: "values read where nothing changed",
          value: String(unchangedRun.valueReads),
          comparedWith: "",
          bound: equalTo(unchangedRun.valueReads, 0),
        },
        {
          what: "reads of the service's own key vault, in both",
          value: String(firstRun.serviceVaultReads + unchangedRun.serviceVaultReads),
          comparedWith: "one per five minutes",
          // Three more than one per five minutes: the runs start and end within an interval.
          bound: atMost(
            firstRun.serviceVaultReads + unchangedRun.serviceVaultReads,
            3 + Math.ceil((firstRun.seconds + unchangedRun.seconds) / 300),
          ),
        },
        peakMemory("peak resident memory of the functions process", memory.peak),
      ],
    };
  } finally {
    await service.stop();
  }
}

/** Cost of one run of all records. */
interface RunCost {
  seconds: number;
  /** Calls of Key Vault and AWS, without those of the service's own key vault. */
  calls: number;
  /** Number of reads of secret values in the source vault. */
  valueReads: number;
  /**
   * Number of reads in the service's own key vault: the credentials of AWS, which are cached for five minutes, and the key that
   * signs stored rows.
   */
  serviceVaultReads: number;
  tableRequests: number;
  processorMs: number;
}

/** Runs the sync timer once, waits until all records are in sync, and returns the cost. */
async function runAllRecords(service: Service): Promise<RunCost> {
  const { control } = service.cloud;
  control.resetCounts();
  service.clearTableRequests();
  const startedAt = Date.now();
  const { ms } = await withProcessorTime(service.url, async () => {
    const response = await fetch(`${service.url}/admin/functions/runDueSyncs`, { method: "POST", body: "{}" });
    if (!response.ok) throw new Error(`The timer answered ${response.status}.`);
    for (;;) {
      await delay(5000);
      const { body } = await service.admin("GET", "/api/automation/sync/records?state=inSync&limit=1");
      if (body.total === RECORDS) return;
      if (Date.now() - startedAt > HOUR_SECONDS * 1000)
        throw new Error(`After an hour only ${body.total} records are in sync.`);
    }
  });
  const counts = control.counts();
  const serviceVaultReads = control.requests({ operation: "keyvault.getSecret", vault: SERVICE_VAULT }).length;
  const valueReads = (counts["keyvault.getSecret"] ?? 0) - serviceVaultReads;
  return {
    seconds: Math.round((Date.now() - startedAt) / 1000),
    calls: (counts["keyvault.listSecretVersions"] ?? 0) + valueReads + sumByPrefix(counts, "secretsmanager."),
    valueReads,
    serviceVaultReads,
    tableRequests: service.tableRequests().length,
    processorMs: ms,
  };
}

const sumByPrefix = (counts: Record<string, number>, prefix: string): number =>
  Object.entries(counts).reduce((sum, [name, count]) => (name.startsWith(prefix) ? sum + count : sum), 0);

/** Changes the schedule of a record, which makes it due at the time of the change. */
async function makeRecordDue(fixture: Fixture, recordId: string): Promise<void> {
  await fixture.sync.records.change(recordId, { scheduleHours: 24 }, caller, undefined);
}

/** Returns the rows of one run. `maxCalls` is the bound of the calls per record. */
function figuresOf(what: string, { seconds, calls, tableRequests, processorMs }: RunCost, maxCalls: number): Figure[] {
  const perRecord = (total: number) => (total / RECORDS).toFixed(2);
  return [
    {
      what: `${what}, seconds`,
      value: `${seconds} s`,
      comparedWith: "an hour",
      bound: atMost(seconds, HOUR_SECONDS, " s"),
    },
    {
      what: `${what}, calls per record`,
      value: perRecord(calls),
      comparedWith: String(calls),
      bound: atMost(calls / RECORDS, maxCalls),
    },
    {
      what: `${what}, table requests per record`,
      value: perRecord(tableRequests),
      comparedWith: String(tableRequests),
      bound: atMost(tableRequests / RECORDS, 30),
    },
    {
      what: `${what}, processor time per record`,
      value: `${perRecord(processorMs)} ms`,
      comparedWith: `${Math.round(processorMs / 1000)} s`,
      bound: atMost(processorMs / RECORDS, 100, " ms"),
    },
  ];
}
