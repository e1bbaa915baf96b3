import * as z from "zod";
import { Application, ApplicationQuery, applicationView, DiscoveryRun, runView } from "../shared/applications/api.ts";
import { DiscoverMessage, QUEUE } from "../shared/applications/applications.ts";
import { pageOf, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import { endpoint, poison, queue, sendWithJitter, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of the discovery of Entra applications and their client secrets and certificates. They
 * have the tag and path of rotation, because rotation was the first feature that used them.
 */

const tag = "Rotation";

const discoverApplications = endpoint({
  name: "discoverApplications",
  method: "POST",
  route: "api/automation/rotation/discover",
  summary: "Discover applications and their credentials",
  description:
    "Reads all applications and service principals of the tenant with their secrets and certificates from Microsoft Graph. Returns the completed run, or the run with status `running` after 20 seconds. If a full run is already in progress, that run is returned. Requires the Microsoft Graph application permission Application.Read.All; `failures` lists what could not be read.",
  tag,
  access: "operator",
  tier: "pro",
  // 201 for a new run, 200 for the one that was already in progress.
  responds: { 200: DiscoveryRun, 201: DiscoveryRun },
  problems: ["conflict"],
  // A second request with the same Idempotency-Key gets the run that the first one started.
  repeat: {
    idOf: ({ runId }) => runId,
    answer: async ({ id, services }) => runView(await services.applications.run(id)),
  },
  handle: async ({ caller, services }) => {
    const { run, isNew } = await services.applications.discover(caller);
    return isNew ? created(runView(run), `/api/automation/rotation/runs/${run.runId}`) : ok(runView(run));
  },
});

const getApplicationDiscovery = endpoint({
  name: "getApplicationDiscovery",
  method: "GET",
  route: "api/automation/rotation/runs/{run_id}",
  summary: "Get an application discovery run",
  description:
    "Runs are kept for 30 days. Works without a PRO license, so that you can follow runs that started under one.",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ run_id: z.string().meta({ description: "ID of the discovery run." }) }),
  responds: { 200: DiscoveryRun },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(runView(await services.applications.run(params.run_id))),
});

const listApplications = endpoint({
  name: "listApplications",
  method: "GET",
  route: "api/automation/rotation/apps",
  summary: "List applications by name",
  description:
    "Returns the applications of the tenant, and the service principals of other tenants' applications that have their own credentials in this tenant. All filters can be combined. They have no index: each call reads up to 10,000 applications and returns the matches with a nextCursor.",
  tag,
  access: "user",
  tier: "pro",
  query: ApplicationQuery,
  example: { query: { search: "Payments" } },
  responds: { 200: pageOf(Application, "ApplicationList") },
  handle: async ({ query, services }) => {
    const { limit: _limit, offset: _offset, cursor: _cursor, ...filter } = query;
    // The current time and the expiry thresholds, which decide the status of each credential.
    const moment = await services.applications.moment();
    const page = await services.applications.list(filter, pageRequest(query));
    return ok(pageView(page, (application) => applicationView(application, moment)));
  },
});

const getApplication = endpoint({
  name: "getApplication",
  method: "GET",
  route: "api/automation/rotation/apps/{app_id}",
  summary: "Get an application",
  description:
    "Also reads the federated credentials and policies of the application from Microsoft Graph, at most once a day.",
  tag,
  access: "user",
  tier: "pro",
  params: z.object({ app_id: z.string().meta({ description: "Client ID of the application." }) }),
  responds: { 200: Application },
  problems: ["notFound"],
  handle: async ({ params, services }) => {
    const application = await services.applications.get(params.app_id);
    return ok(applicationView(application, await services.applications.moment()));
  },
});

export const endpoints = [discoverApplications, getApplicationDiscovery, listApplications, getApplication];

export const timers = [
  timer({
    name: "discoverAllApplications",
    schedule: { setting: "APPLICATIONS_SCHEDULE" },
    handle: async (invocation) => {
      await sendWithJitter(invocation, QUEUE, { mode: "full" });
    },
  }),
  timer({
    name: "discoverChangedApplications",
    schedule: { setting: "APPLICATION_CHANGES_SCHEDULE" },
    handle: async (invocation) => {
      await sendWithJitter(invocation, QUEUE, { mode: "changes" });
    },
  }),
];

/** The caller that the audit log records for work that no user started. */
const system = (requestId: string) => ({ actor: "system", requestId });

export const queues = [
  queue({
    name: "discoverApplicationsQueue",
    queue: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services, requestId }) => services.applications.handle(message, system(requestId)),
  }),
  poison({
    name: "discoverApplicationsFailed",
    of: QUEUE,
    message: DiscoverMessage,
    handle: (message, { services, requestId }) => services.applications.failed(message, system(requestId)),
  }),
];
