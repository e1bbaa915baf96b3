import { setTimeout as delay } from "node:timers/promises";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";
import { processFigures, smallInstance, withProcessorTime } from "./process.ts";
import { atMost, equalTo, type Figure, peakMemory, processorTime, type Section } from "./section.ts";

// Measures the discovery of 10,000 applications and their credentials: the requests to Microsoft Graph and to storage,
// first for everything and then for 10 changed applications.

const APPS = 10_000;
const CREDENTIALS = 15_000;
/** Page size that the service requests, the maximum of Microsoft Graph. */
const PER_PAGE = 999;
/**
 * Number of pages in the lists of applications and of service principals: each application has a service principal. The list of
 * federated applications is empty.
 */
const PAGES = 2 * Math.ceil(APPS / PER_PAGE) + 1;
const CHANGED_APPS = 10;
/** Wait after the last discovery, until the messages that it sent (compliance, alerts) are processed. */
const FOLLOW_UP_MS = 10_000;

/**
 * Benchmark `applications`: discovery of the Entra applications of a large tenant. Measures a first full discovery, a second
 * full discovery without changes, and delta discoveries, which ask Microsoft Graph only for changes.
 */
export async function applications(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: { vaults: 1, secrets: 10, applications: APPS, credentials: CREDENTIALS },
    hosts: 0,
    env: { LICENSE_KEY: await licence() },
  });
  await service.addHost(smallInstance(service.environment));
  const discoverAll = () => service.admin("POST", "/api/automation/rotation/discover");
  const discoverChanges = () => startDiscoveryOfChanges(service);

  try {
    await service.admin("GET", "/auth/me"); // Signs in once, before the measurement.
    const first = await measureDiscovery(service, discoverAll);
    const unchanged = await measureDiscovery(service, discoverAll);
    const deltaUnchanged = await measureDiscovery(service, discoverChanges);
    for (let index = 0; index < CHANGED_APPS; index++)
      // Spreads the changed applications over the whole list, `app-00000` to `app-09999`.
      service.cloud.control.directory.addSecret(appIdOf(`app-0${String(index * 777).padStart(4, "0")}`), {
        name: "another",
        expiresInDays: 90,
      });
    const deltaChanged = await measureDiscovery(service, discoverChanges);
    const { memory } = await processFigures(service.url);
    const listApps = async (query: string) => {
      service.clearTableRequests();
      const { status, body } = await service.admin("GET", `/api/automation/rotation/apps?${query}`);
      if (status !== 200) throw new Error(`${query} answered ${status}`);
      return { requests: service.tableRequests().filter(({ path }) => !isExcluded(path)).length, total: body.total };
    };
    await delay(FOLLOW_UP_MS);
    const page = await listApps("limit=100");
    const filteredPage = await listApps("rotatable=true&limit=100");

    const graphCallsFigure = (
      what: string,
      { calls: count }: { calls: number },
      limit: number,
      comparedWith: string,
    ): Figure => ({
      what: `calls of Microsoft Graph, ${what}`,
      value: String(count),
      comparedWith,
      bound: atMost(count, limit),
    });
    const tableRequestsFigure = (
      what: string,
      { reads, writes }: { reads: number; writes: number },
      limit: number,
    ): Figure => ({
      what: `table requests, ${what}`,
      value: `${reads + writes}`,
      comparedWith: `${reads} reads, ${writes} writes; compliance and the audit log included`,
      bound: atMost(reads + writes, limit),
    });
    return {
      title: "Applications of a large tenant",
      how: `${APPS} applications with ${CREDENTIALS} credentials and a service principal each: a first discovery, an unchanged one, a discovery of changes that finds none, and one with ${CHANGED_APPS} changed applications. Requests for authentication and by readers of the audit log are excluded.`,
      figures: [
        {
          what: "applications and credentials found",
          value: `${first.details.apps}, ${first.details.credentials}`,
          comparedWith: `${APPS}, ${CREDENTIALS}`,
          bound: equalTo(first.details.apps + first.details.credentials, APPS + CREDENTIALS),
        },
        graphCallsFigure(
          "first",
          first,
          Math.floor(1.05 * PAGES),
          `${PAGES} pages, and one call that starts the delta query`,
        ),
        graphCallsFigure("unchanged", unchanged, PAGES, `${PAGES} pages`),
        graphCallsFigure("changes, none", deltaUnchanged, 3, ""),
        graphCallsFigure(`changes, ${CHANGED_APPS} applications`, deltaChanged, 3, ""),
        tableRequestsFigure("first", first, 3000),
        tableRequestsFigure("unchanged", unchanged, 100),
        tableRequestsFigure("changes, none", deltaUnchanged, 40),
        tableRequestsFigure(`changes, ${CHANGED_APPS} applications`, deltaChanged, 500),
        processorTime(
          "processor time, first",
          first.ms,
          60_000,
          `${APPS + CREDENTIALS} applications and credentials written`,
        ),
        processorTime("processor time, unchanged", unchanged.ms, 20_000, ""),
        processorTime("processor time, changes, none", deltaUnchanged.ms, 3000, ""),
        peakMemory("memory of the functions process", memory.peak),
        {
          what: "table requests, a page of applications",
          value: String(page.requests),
          comparedWith: `${page.total} in all`,
          bound: atMost(page.requests, 6),
        },
        {
          what: "table requests, a page of the rotatable ones",
          value: String(filteredPage.requests),
          comparedWith: "no index: reads up to 10,000 applications",
          bound: atMost(filteredPage.requests, 16),
        },
      ],
    };
  } finally {
    await service.stop();
  }
}

/** Runs a discovery and returns its cost and its result. `calls` are those of Microsoft Graph. */
async function measureDiscovery(service: Service, startDiscovery: () => Promise<unknown>) {
  const finishedBefore = (await finishedDiscoveries(service)).length;
  service.cloud.control.resetCounts();
  service.clearTableRequests();
  const { ms } = await withProcessorTime(service.url, async () => {
    await startDiscovery();
    while ((await finishedDiscoveries(service)).length === finishedBefore) await delay(500);
  });
  const requests = service.tableRequests().filter(({ path }) => !isExcluded(path));
  const [{ details }] = await finishedDiscoveries(service);
  return {
    ms,
    calls: countGraphCalls(service),
    reads: requests.filter(({ method }) => method === "GET").length,
    writes: requests.filter(({ method }) => method !== "GET").length,
    details,
  };
}

const countGraphCalls = ({ cloud }: Service): number =>
  Object.entries(cloud.control.counts()).reduce(
    (sum, [name, count]) => sum + (name.startsWith("graph.") ? count : 0),
    0,
  );

/** Runs the timer that discovers changed applications. */
async function startDiscoveryOfChanges({ url }: Service): Promise<void> {
  const started = await fetch(`${url}/admin/functions/discoverChangedApplications`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: "{}",
  });
  if (started.status !== 202) throw new Error(`The timer answered ${started.status}`);
}

/** Matches table requests for authentication, rate limits and the audit log, such as `Users(PartitionKey=…)`. */
const isExcluded = (path: string): boolean => /^(Users\(|RateLimits|Audit)/.test(path);

/** Returns the audit entries of finished discoveries, newest first. */
async function finishedDiscoveries(service: Service): Promise<[{ details: { apps: number; credentials: number } }]> {
  const { body } = await service.admin("GET", "/audit/entries?event_type=applications.discovered&limit=100");
  return body.items;
}
