import {
  AssetUsage,
  BlastRadius,
  blastRadiusView,
  CoverageList,
  coverageView,
  DependencyList,
  DependencyQuery,
  DependencyRun,
  dependencyView,
  filterOf,
  notSeenView,
  runParams,
  runView,
  secretParams,
  usageView,
} from "../shared/dependencies/api.ts";
import { DiscoverMessage, QUEUE } from "../shared/dependencies/dependencies.ts";
import { PageQuery, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, sendWithJitter, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of dependencies. A dependency is a resource (the consumer) that uses an asset, for
 * example a web app whose settings reference a secret. The blast radius of an asset is everything that its rotation affects.
 */

const tag = "Dependencies";
const DEPENDENCIES = "api/assets/dependencies";

const listDependencies = endpoint({
  name: "listDependencies",
  method: "GET",
  route: DEPENDENCIES,
  summary: "List consumers of assets",
  description:
    "Ordered by vault, type and name of the asset; consumers of a whole vault come first. `vault` and `assetId` have an index; with any other filter, each call reads up to 10,000 dependencies and returns the matches with a nextCursor. `coverage` lists what could not be read.",
  tag,
  access: "user",
  tier: "pro",
  query: DependencyQuery,
  example: { query: { vault: "kv-payments-prod", limit: "10" } },
  responds: { 200: DependencyList },
  handle: async ({ query, services }) => {
    const { page, coverage } = await services.dependencies.list(filterOf(query), pageRequest(query));
    return ok({ ...pageView(page, dependencyView), coverage: coverageView(coverage) });
  },
});

const listCoverage = endpoint({
  name: "listDependencyCoverage",
  method: "GET",
  route: `${DEPENDENCIES}/coverage`,
  summary: "List resources that dependency discovery could not read",
  description: "Lists the first 1,000 resources of each unit, such as a subscription. Counts include all of them.",
  tag,
  access: "user",
  tier: "pro",
  query: PageQuery,
  responds: { 200: CoverageList },
  handle: async ({ query, services }) => {
    const page = await services.dependencies.coverage(pageRequest(query));
    return ok({ ...pageView(page, notSeenView), lastFullAt: page.lastFullAt ?? null });
  },
});

const getBlastRadius = endpoint({
  name: "getBlastRadius",
  method: "GET",
  route: `${DEPENDENCIES}/blast-radius/{secret_id}`,
  summary: "Get the blast radius of an asset",
  description:
    "Returns a score with its drivers, the consumers of the asset, the effect of a rotation on each, and a graph. An asset without known consumers has the score 0. If `incomplete` is true, consumers may be missing and the score is a lower bound.",
  tag,
  access: "user",
  tier: "pro",
  params: secretParams,
  responds: { 200: BlastRadius },
  problems: ["notFound", "serviceVault"],
  handle: async ({ params, services }) =>
    ok(blastRadiusView(await services.dependencies.blastRadius(params.secret_id))),
});

const getAssetUsage = endpoint({
  name: "getAssetUsage",
  method: "GET",
  route: `${DEPENDENCIES}/usage/{secret_id}`,
  summary: "List observed readers of an asset",
  description:
    "Based on the vaults' audit events in the Log Analytics workspaces named in LOG_ANALYTICS_WORKSPACE_IDS: last read, reader and versions. Each workspace is queried once an hour.",
  tag,
  access: "user",
  tier: "pro",
  params: secretParams,
  responds: { 200: AssetUsage },
  problems: ["notFound", "serviceVault"],
  handle: async ({ params, services }) => ok(usageView(await services.dependencies.usage(params.secret_id))),
});

const discoverDependencies = endpoint({
  name: "discoverDependencies",
  method: "POST",
  route: `${DEPENDENCIES}/discover`,
  summary: "Discover all dependencies now",
  description:
    "Reads the consumers of all vault assets. Returns the completed run, or the run in progress after 20 seconds. If a run is already in progress, that run is returned. Scheduled runs read everything weekly, and possible changes hourly.",
  tag,
  access: "operator",
  tier: "pro",
  responds: { 200: DependencyRun, 201: DependencyRun },
  repeat: {
    idOf: ({ runId }) => runId,
    answer: async ({ id, services }) => runView(await services.dependencies.run(id)),
  },
  handle: async ({ caller, services }) => {
    const { run, isNew } = await services.dependencies.discover(caller);
    return isNew ? created(runView(run), `/${DEPENDENCIES}/runs/${run.runId}`) : ok(runView(run));
  },
});

const getDependencyRun = endpoint({
  name: "getDependencyRun",
  method: "GET",
  route: `${DEPENDENCIES}/runs/{run_id}`,
  summary: "Get a dependency discovery run",
  description:
    "Runs are kept for 30 days. Works without a PRO license, so that you can follow runs that started under one.",
  tag,
  access: "user",
  tier: "core",
  params: runParams,
  responds: { 200: DependencyRun },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(runView(await services.dependencies.run(params.run_id))),
});

export const endpoints = [
  listDependencies,
  listCoverage,
  getBlastRadius,
  getAssetUsage,
  discoverDependencies,
  getDependencyRun,
];

export const timers = [
  timer({
    name: "discoverAllDependencies",
    schedule: { setting: "DEPENDENCIES_SCHEDULE" },
    handle: async (invocation) => {
      await sendWithJitter(invocation, QUEUE, { mode: "full" });
    },
  }),
  timer({
    name: "discoverChangedDependencies",
    schedule: { setting: "DEPENDENCY_CHANGES_SCHEDULE" },
    handle: async (invocation) => {
      await sendWithJitter(invocation, QUEUE, { mode: "changes" });
    },
  }),
];

/** The caller that the audit log records for work that no user started. */
const system = (requestId: string) => ({ actor: "system", requestId });

export const queues = [
  queue({
    name: "discoverDependenciesQueue",
    queue: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services, requestId }) => services.dependencies.handle(message, system(requestId)),
  }),
  poison({
    name: "discoverDependenciesFailed",
    of: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services }) => services.dependencies.failed(message),
  }),
];
