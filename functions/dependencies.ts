import * as z from "zod";
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
import { pageParameters, pageRequest } from "../shared/http/paging.ts";
import { created, ok } from "../shared/http/reply.ts";
import { endpoint, type Invocation, poison, queue, timer } from "./kit.ts";

const tag = "Dependencies";
const DEPENDENCIES = "api/assets/dependencies";

const listDependencies = endpoint({
  name: "listDependencies",
  method: "GET",
  route: DEPENDENCIES,
  summary: "Who uses which asset",
  description:
    "By vault, type and name of the asset; those of a whole vault come first. `vault` and `assetId` have an index; with any other filter one call looks through up to 10,000 dependencies and then answers what it found with a nextCursor. `coverage` says what could not be looked into.",
  tag,
  access: "user",
  tier: "pro",
  query: DependencyQuery,
  example: { query: { vault: "kv-payments-prod", limit: "10" } },
  responds: { 200: DependencyList },
  handle: async ({ query, services }) => {
    const { page, coverage } = await services.dependencies.list(filterOf(query), pageRequest(query));
    return ok({ ...page, items: page.items.map(dependencyView), coverage: coverageView(coverage) });
  },
});

const listCoverage = endpoint({
  name: "listDependencyCoverage",
  method: "GET",
  route: `${DEPENDENCIES}/coverage`,
  summary: "What could not be looked into for dependencies",
  description: "Of each unit, such as a subscription, the first 1,000 are listed; all are counted.",
  tag,
  access: "user",
  tier: "pro",
  query: z.strictObject(pageParameters),
  responds: { 200: CoverageList },
  handle: async ({ query, services }) => {
    const page = await services.dependencies.coverage(pageRequest(query));
    return ok({ ...page, items: page.items.map(notSeenView), lastFullAt: page.lastFullAt ?? null });
  },
});

const getBlastRadius = endpoint({
  name: "getBlastRadius",
  method: "GET",
  route: `${DEPENDENCIES}/blast-radius/{secret_id}`,
  summary: "What a rotation of an asset would touch",
  description:
    "A score with what makes it so, who uses the asset and what a rotation does to each, and the same as a graph. An asset that nobody is known to use has the score 0: see what could not be looked into before you believe it.",
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
  summary: "Who was seen to read an asset",
  description:
    "By the vaults' audit events in the Log Analytics workspaces that LOG_ANALYTICS_WORKSPACE_IDS names: when it was last read, by whom, and which versions. A workspace is asked once an hour.",
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
  summary: "Read all dependencies now",
  description:
    "Reads who uses the assets of the vaults, in full. Answers the run when it is over, or after 20 seconds as it stands. While a run is under way, that one is answered. By itself all is read weekly, and hourly what may have changed.",
  tag,
  access: "operator",
  tier: "pro",
  responds: { 200: DependencyRun, 201: DependencyRun },
  handle: async ({ caller, services }) => {
    const { run, isNew } = await services.dependencies.discover(caller);
    return isNew ? created(runView(run), `/${DEPENDENCIES}/runs/${run.runId}`) : ok(runView(run));
  },
});

const getDependencyRun = endpoint({
  name: "getDependencyRun",
  method: "GET",
  route: `${DEPENDENCIES}/runs/{run_id}`,
  summary: "A reading of dependencies",
  description: "Runs are kept for 30 days. Answers without a PRO licence, too: what began under one is told of.",
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

/** By way of a queue: a moment of its own for each deployment, and retries. */
const schedule = async (mode: "full" | "changes", { services }: Invocation) => {
  const delaySeconds = Math.floor(services.randomness.number() * services.config.SCHEDULE_JITTER_SECONDS);
  await services.queues.send(QUEUE, { mode }, { delaySeconds });
};

export const timers = [
  timer({
    name: "discoverAllDependencies",
    schedule: { setting: "DEPENDENCIES_SCHEDULE" },
    handle: (invocation) => schedule("full", invocation),
  }),
  timer({
    name: "discoverChangedDependencies",
    schedule: { setting: "DEPENDENCY_CHANGES_SCHEDULE" },
    handle: (invocation) => schedule("changes", invocation),
  }),
];

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
