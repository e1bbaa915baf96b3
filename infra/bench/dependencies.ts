import { setTimeout as delay } from "node:timers/promises";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, processorTime, ratio, type Section } from "./section.ts";

/** Number of sites. Use fewer for a quick run; the figures are proportional to it. */
const SITES = Number(process.env.BENCH_SITES ?? 20_000);
const SUBSCRIPTIONS = Math.ceil(SITES / 100);
/**
 * Calls for the configuration references of both lists of each site, and Resource Graph pages with the sites of each
 * subscription.
 */
const LEAST = 2 * SITES + SUBSCRIPTIONS;
/** Page size of the simulated cloud's list of subscriptions. */
const LIST_PAGES = Math.ceil(SUBSCRIPTIONS / 100);
/** Calls for each subscription: one for its vaults, which shows that it is readable, and one for changes. */
const LEAST_UNCHANGED = 2 * SUBSCRIPTIONS + LIST_PAGES;

/** Measures dependency discovery of many sites: a full run, and a run of changes without any change. */
export async function dependencies(): Promise<Section> {
  const service = await Service.start({
    company: { vaults: SUBSCRIPTIONS, secrets: 50, subscriptions: SUBSCRIPTIONS, sites: SITES },
    env: { LICENSE_KEY: await licence(), SCHEDULE_JITTER_SECONDS: "0" },
  });
  const { control } = service.cloud;
  const armCalls = () =>
    Object.entries(control.counts()).reduce((sum, [name, count]) => sum + (name.startsWith("arm.") ? count : 0), 0);

  async function measured(begin: () => Promise<unknown>) {
    control.resetCounts();
    const before = (await runs(service)).length;
    const { ms } = await withProcessorTime(service.url, async () => {
      await begin();
      while ((await runs(service)).length === before) await delay(500);
    });
    const [{ details }] = await runs(service);
    return { ms, calls: armCalls(), details };
  }
  const changes = async () => {
    const headers = { "Content-Type": "application/json" };
    const name = "discoverChangedDependencies";
    const started = await fetch(`${service.url}/admin/functions/${name}`, { method: "POST", headers, body: "{}" });
    if (started.status !== 202) throw new Error(`The timer answered ${started.status}`);
  };

  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    const full = await measured(() => service.admin("POST", "/api/assets/dependencies/discover"));
    const unchanged = await measured(changes);
    const { memory } = await processFigures(service.url);
    const calls = (what: string, of: { calls: number }, possible: number, limit: number): Figure => ({
      what: `calls of the resource manager, ${what}`,
      value: `${of.calls}, ${ratio(of.calls, possible)}`,
      comparedWith: String(possible),
      bound: atMost(of.calls / possible, limit),
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
        calls("full", full, LEAST, 1.05),
        calls("unchanged", unchanged, LEAST_UNCHANGED, 1),
        processorTime("processor time, full", full.ms, SITES * 20, `${SITES} sites`),
        processorTime("processor time, unchanged", unchanged.ms, SUBSCRIPTIONS * 200, `${SUBSCRIPTIONS} subscriptions`),
        peakMemory("memory of the functions process", memory.peak),
      ],
    };
  } finally {
    await service.stop();
  }
}

async function runs(service: Service): Promise<[{ details: { status: string } }]> {
  const { body } = await service.admin("GET", "/audit/entries?event_type=dependencies.discovered&limit=100");
  return body.items;
}
