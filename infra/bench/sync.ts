import { setTimeout as delay } from "node:timers/promises";
import pMap from "p-map";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { trust } from "../../test/support/trust.ts";
import { caller, type Fixture, openFixture, SOURCE } from "../../test/sync/sync-fixture.ts";
import "../simulated-cloud/loopback-names.mjs";
import { processFigures, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, type Section } from "./section.ts";

const RECORDS = Number(process.env.BENCH_SYNC_RECORDS ?? 5000);
const SECRETS = 500;
const SERVICE_VAULT = "kv-lifecycle-service";
const REGION = "eu-west-1";
/** The benchmark creates records with a clock that is this much behind, so that all of them are due. */
const HOURS_AGO = -3_600_000;
const HOUR_SECONDS = 3600;

/**
 * Measures a run in which all records of a company are due at the same time on one instance. The first run writes all of them,
 * the second finds no changes.
 */
export async function sync(): Promise<Section> {
  const secrets = Array.from({ length: SECRETS }, (_, index) => ({ name: `secret-${index}`, value: `value-${index}` }));
  const service = await Service.start({
    tableProxy: true,
    company: { subscriptions: [{ name: "Shop", vaults: [{ name: SOURCE, secrets }] }] },
    env: { LICENSE_KEY: await licence(), SYNC_SCHEDULE: "0 0 0 1 1 *" },
  });
  try {
    const { cloud, azurite } = service;
    trust(cloud.environment.NODE_EXTRA_CA_CERTS!);
    Object.assign(process.env, cloud.environment);
    const fixture = openFixture({ cloud, connectionString: azurite.connectionString(), ahead: HOURS_AGO });
    await fixture.discover(SOURCE);
    const key = cloud.control.providers.aws.key;
    await fixture.sync.configurations.save("aws", { ...key, region: REGION }, undefined, caller);
    const target = { targetProvider: "aws", targetService: "secretsmanager", targetRegion: REGION };
    const made = await pMap(
      Array.from({ length: RECORDS }, (_, index) => index),
      (index) =>
        fixture.record({ ...target, sourceSecret: `secret-${index % SECRETS}`, targetName: `copies/${index}` }),
      { concurrency: 8 },
    );
    const first = await round(service);
    await pMap(made, ({ recordId }) => dueAgain(fixture, recordId), { concurrency: 8 });
    const idle = await round(service);
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
        ...figuresOf("first copy", first, 4.2),
        ...figuresOf("nothing changed", idle, 2),
        {
          what: "values read where nothing changed",
          value: String(idle.reads),
          comparedWith: "",
          bound: equalTo(idle.reads, 0),
        },
        {
          what: "reads of the service's own key vault, in both",
          value: String(first.ownReads + idle.ownReads),
          comparedWith: "one per five minutes",
          bound: atMost(first.ownReads + idle.ownReads, 3 + Math.ceil((first.seconds + idle.seconds) / 300)),
        },
        peakMemory("peak resident memory of the functions process", memory.peak),
      ],
    };
  } finally {
    await service.stop();
  }
}

interface Round {
  seconds: number;
  calls: number;
  /** Number of reads of secret values in the source vault. */
  reads: number;
  /**
   * Number of reads in the service's own key vault: the provider's credentials, cached for five minutes, and the key of signed
   * rows.
   */
  ownReads: number;
  tableRequests: number;
  processorMs: number;
}

/** Runs the timer once and waits until all records are in sync. */
async function round(service: Service): Promise<Round> {
  const { control } = service.cloud;
  control.resetCounts();
  service.forgetTables();
  const began = Date.now();
  const { ms } = await withProcessorTime(service.url, async () => {
    const answer = await fetch(`${service.url}/admin/functions/runDueSyncs`, { method: "POST", body: "{}" });
    if (!answer.ok) throw new Error(`The timer answered ${answer.status}.`);
    for (;;) {
      await delay(5000);
      const { body } = await service.admin("GET", "/api/automation/sync/records?state=inSync&limit=1");
      if (body.total === RECORDS) return;
      if (Date.now() - began > HOUR_SECONDS * 1000) throw new Error(`After an hour ${body.total} are in sync.`);
    }
  });
  const counts = control.counts();
  const ownReads = control.requests({ operation: "keyvault.getSecret", vault: SERVICE_VAULT }).length;
  const reads = (counts["keyvault.getSecret"] ?? 0) - ownReads;
  return {
    seconds: Math.round((Date.now() - began) / 1000),
    calls: (counts["keyvault.listSecretVersions"] ?? 0) + reads + sumOf(counts, "secretsmanager."),
    reads,
    ownReads,
    tableRequests: service.tableRequests().length,
    processorMs: ms,
  };
}

const sumOf = (counts: Record<string, number>, prefix: string): number =>
  Object.entries(counts).reduce((sum, [name, count]) => (name.startsWith(prefix) ? sum + count : sum), 0);

async function dueAgain(fixture: Fixture, recordId: string): Promise<void> {
  await fixture.sync.records.change(recordId, { scheduleHours: 24 }, caller, undefined);
}

function figuresOf(what: string, { seconds, calls, tableRequests, processorMs }: Round, mostCalls: number): Figure[] {
  const per = (total: number) => (total / RECORDS).toFixed(2);
  return [
    {
      what: `${what}, seconds`,
      value: `${seconds} s`,
      comparedWith: "an hour",
      bound: atMost(seconds, HOUR_SECONDS, " s"),
    },
    {
      what: `${what}, calls per record`,
      value: per(calls),
      comparedWith: String(calls),
      bound: atMost(calls / RECORDS, mostCalls),
    },
    {
      what: `${what}, table requests per record`,
      value: per(tableRequests),
      comparedWith: String(tableRequests),
      bound: atMost(tableRequests / RECORDS, 30),
    },
    {
      what: `${what}, processor time per record`,
      value: `${per(processorMs)} ms`,
      comparedWith: `${Math.round(processorMs / 1000)} s`,
      bound: atMost(processorMs / RECORDS, 100, " ms"),
    },
  ];
}
