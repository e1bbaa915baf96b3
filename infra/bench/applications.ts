import { setTimeout as delay } from "node:timers/promises";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, processorTime, type Section } from "./section.ts";

const APPS = 10_000;
const CREDENTIALS = 15_000;
const PER_PAGE = 999;
/**
 * Number of pages in the lists of applications and of service principals: each application has a service principal. The list of
 * federated applications is empty.
 */
const PAGES = 2 * Math.ceil(APPS / PER_PAGE) + 1;
const CHANGED = 10;
/** Time after which follow-up work of a run, such as alerts, is done. */
const BEHIND_MS = 10_000;

/** Measures the discovery of a large tenant's applications: the first one, an unchanged one, and one of changes only. */
export async function applications(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: { vaults: 1, secrets: 10, applications: APPS, credentials: CREDENTIALS },
    env: { LICENSE_KEY: await licence() },
  });
  const { control } = service.cloud;
  const graphCalls = () =>
    Object.entries(control.counts()).reduce((sum, [name, count]) => sum + (name.startsWith("graph.") ? count : 0), 0);

  /** Runs a discovery and returns its cost and its result. */
  async function measured(begin: () => Promise<unknown>) {
    const before = (await entries(service)).length;
    control.resetCounts();
    service.forgetTables();
    const { ms } = await withProcessorTime(service.url, async () => {
      await begin();
      while ((await entries(service)).length === before) await delay(500);
    });
    const requests = service.tableRequests().filter(({ path }) => !isOther(path));
    const [{ details }] = await entries(service);
    return {
      ms,
      calls: graphCalls(),
      reads: requests.filter(({ method }) => method === "GET").length,
      writes: requests.filter(({ method }) => method !== "GET").length,
      details,
    };
  }
  const discover = () => service.admin("POST", "/api/automation/rotation/discover");
  const changes = async () => {
    const started = await fetch(`${service.url}/admin/functions/discoverChangedApplications`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: "{}",
    });
    if (started.status !== 202) throw new Error(`The timer answered ${started.status}`);
  };

  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    const first = await measured(discover);
    const unchanged = await measured(discover);
    const delta = await measured(changes);
    for (let index = 0; index < CHANGED; index++)
      control.directory.addSecret(appIdOf(`app-0${String(index * 777).padStart(4, "0")}`), {
        name: "another",
        expiresInDays: 90,
      });
    const changed = await measured(changes);
    const { memory } = await processFigures(service.url);
    const list = async (query: string) => {
      service.forgetTables();
      const { status, body } = await service.admin("GET", `/api/automation/rotation/apps?${query}`);
      if (status !== 200) throw new Error(`${query} answered ${status}`);
      return { requests: service.tableRequests().filter(({ path }) => !isOther(path)).length, total: body.total };
    };
    await delay(BEHIND_MS);
    const page = await list("limit=100");
    const filtered = await list("rotatable=true&limit=100");

    const calls = (what: string, { calls: count }: { calls: number }, limit: number, comparedWith: string): Figure => ({
      what: `calls of Microsoft Graph, ${what}`,
      value: String(count),
      comparedWith,
      bound: atMost(count, limit),
    });
    const requests = (what: string, { reads, writes }: typeof first, limit: number): Figure => ({
      what: `table requests, ${what}`,
      value: `${reads + writes}`,
      comparedWith: `${reads} reads, ${writes} writes; compliance and the audit log included`,
      bound: atMost(reads + writes, limit),
    });
    return {
      title: "Applications of a large tenant",
      how: `${APPS} applications with ${CREDENTIALS} credentials and a service principal each: a first discovery, an unchanged one, a discovery of changes that finds none, and one with ${CHANGED} changed applications. Requests for authentication and by readers of the audit log are excluded.`,
      figures: [
        {
          what: "applications and credentials found",
          value: `${first.details.apps}, ${first.details.credentials}`,
          comparedWith: `${APPS}, ${CREDENTIALS}`,
          bound: equalTo(first.details.apps + first.details.credentials, APPS + CREDENTIALS),
        },
        calls("first", first, Math.floor(1.05 * PAGES), `${PAGES} pages, and one for the start of changes`),
        calls("unchanged", unchanged, PAGES, `${PAGES} pages`),
        calls("changes, none", delta, 3, ""),
        calls(`changes, ${CHANGED} applications`, changed, 3, ""),
        requests("first", first, 3000),
        requests("unchanged", unchanged, 100),
        requests("changes, none", delta, 40),
        requests(`changes, ${CHANGED} applications`, changed, 500),
        processorTime(
          "processor time, first",
          first.ms,
          60_000,
          `${APPS + CREDENTIALS} applications and credentials written`,
        ),
        processorTime("processor time, unchanged", unchanged.ms, 20_000, ""),
        processorTime("processor time, changes, none", delta.ms, 3000, ""),
        peakMemory("memory of the functions process", memory.peak),
        {
          what: "table requests, a page of applications",
          value: String(page.requests),
          comparedWith: `${page.total} in all`,
          bound: atMost(page.requests, 6),
        },
        {
          what: "table requests, a page of the rotatable ones",
          value: String(filtered.requests),
          comparedWith: "no index: reads up to 10,000 applications",
          bound: atMost(filtered.requests, 16),
        },
      ],
    };
  } finally {
    await service.stop();
  }
}

const isOther = (path: string): boolean => /^(Users\(|RateLimits|Audit)/.test(path);

async function entries(service: Service): Promise<[{ details: { apps: number; credentials: number } }]> {
  const { body } = await service.admin("GET", "/audit/entries?event_type=applications.discovered&limit=100");
  return body.items;
}
