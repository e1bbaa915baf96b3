import { setTimeout as delay } from "node:timers/promises";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, smallInstance, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, processorTime, ratio, type Section } from "./section.ts";

/** Number of sites (web and function apps). `BENCH_SITES=1000` measures fewer; the figures are proportional to it. */
const SITES = Number(process.env.BENCH_SITES ?? 20_000);
const SUBSCRIPTIONS = Math.ceil(SITES / 100);
/**
 * Minimum number of calls of a full run. Each site needs two lists of key vault references (settings and connection strings).
 * Each subscription needs one Resource Graph query, which returns its sites.
 */
const MIN_FULL_CALLS = 2 * SITES + SUBSCRIPTIONS;
/** Pages of the list of subscriptions. The simulated cloud returns 100 per page. */
const LIST_PAGES = Math.ceil(SUBSCRIPTIONS / 100);
/**
 * Minimum number of calls of a run that finds no changes. Each subscription needs two: one lists its vaults, which shows that
 * the subscription is readable, and one queries its changes.
 */
const MIN_UNCHANGED_CALLS = 2 * SUBSCRIPTIONS + LIST_PAGES;

/**
 * Benchmark `dependencies`: discovery of the sites whose settings refer to key vaults. Measures a full run over 20,000 sites,
 * and a run that reads only changes and finds none.
 */
export async function dependencies(): Promise<Section> {
  const service = await Service.start({
    company: { vaults: SUBSCRIPTIONS, secrets: 50, subscriptions: SUBSCRIPTIONS, sites: SITES },
    hosts: 0,
    env: { LICENSE_KEY: await licence(), SCHEDULE_JITTER_SECONDS: "0" },
  });
  await service.addHost(smallInstance(service.environment));
  const { control } = service.cloud;
  const armCalls = () =>
    Object.entries(control.counts()).reduce((sum, [name, count]) => sum + (name.startsWith("arm.") ? count : 0), 0);

  /** Runs a discovery and returns its cost and its result. */
  async function measureDiscovery(startDiscovery: () => Promise<unknown>) {
    control.resetCounts();
    const finishedBefore = (await finishedDiscoveries(service)).length;
    const { ms } = await withProcessorTime(service.url, async () => {
      await startDiscovery();
      while ((await finishedDiscoveries(service)).length === finishedBefore) await delay(500);
    });
    const [{ details }] = await finishedDiscoveries(service);
    return { ms, calls: armCalls(), details };
  }
  const discoverChanges = async () => {
    const headers = { "Content-Type": "application/json" };
    const name = "discoverChangedDependencies";
    const started = await fetch(`${service.url}/admin/functions/${name}`, { method: "POST", headers, body: "{}" });
    if (started.status !== 202) throw new Error(`The timer answered ${started.status}`);
  };

  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    const full = await measureDiscovery(() => service.admin("POST", "/api/assets/dependencies/discover"));
    const unchanged = await measureDiscovery(discoverChanges);
    const { memory } = await processFigures(service.url);
    const callsFigure = (what: string, measured: { calls: number }, minimum: number, limit: number): Figure => ({
      what: `calls of the resource manager, ${what}`,
      value: `${measured.calls}, ${ratio(measured.calls, minimum)}`,
      comparedWith: String(minimum),
      bound: atMost(measured.calls / minimum, limit),
    });
    return {
      title: `Dependencies of ${SITES} sites`,
      how: `${SITES} web and function apps in ${SUBSCRIPTIONS} subscriptions, two in three with a key vault reference. A full discovery, compared with the minimum: two lists of references per site and one query per subscription. Then a discovery of changes that finds none, compared with two calls per subscription and one per page of the list. Processor time is that of the functions process.`,
      figures: [
        {
          what: "status of the readings",
          value: `${full.details.status}, ${unchanged.details.status}`,
          comparedWith: "completed, completed",
          bound: equalTo([full, unchanged].filter(({ details }) => details.status === "completed").length, 2),
        },
        callsFigure("full", full, MIN_FULL_CALLS, 1.05),
        callsFigure("unchanged", unchanged, MIN_UNCHANGED_CALLS, 1),
        processorTime("processor time, full", full.ms, SITES * 20, `${SITES} sites`),
        processorTime("processor time, unchanged", unchanged.ms, SUBSCRIPTIONS * 200, `${SUBSCRIPTIONS} subscriptions`),
        peakMemory("memory of the functions process", memory.peak),
      ],
    };
  } finally {
    await service.stop();
  }
}

/** Returns the audit entries of finished discoveries, newest first. */
async function finishedDiscoveries(service: Service): Promise<[{ details: { status: string } }]> {
  const { body } = await service.admin("GET", "/audit/entries?event_type=dependencies.discovered&limit=100");
  return body.items;
}
