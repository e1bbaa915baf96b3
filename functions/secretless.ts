import type * as z from "zod";
import type { Repeat } from "../shared/platform/http/endpoint.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { created, ok } from "../shared/platform/http/reply.ts";
import { AppParams } from "../shared/rotation/matches-api.ts";
import { throwAsProblem } from "../shared/rotation/problems.ts";
import { SECRETLESS_QUEUE, SecretlessMessage } from "../shared/rotation/secretless-run.ts";
import { Secretless, secretlessView } from "../shared/secretless/api.ts";
import {
  ConfirmRequest,
  draftView,
  ProofRequest,
  ReplaceSecretRequest,
  RollbackRequest,
  RunList,
  RunParams,
  RunsQuery,
  RunView,
  runView,
} from "../shared/secretless/runs-api.ts";
import { SharedKeysList, SharedKeysQuery, sharedKeysView } from "../shared/secretless/shared-keys-api.ts";
import { endpoint, poison, queue, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints, timers and queue handlers of the replacement of client secrets by federated credentials: the report, and the runs that
 * carry it out for one secret.
 */

const tag = "Rotation";
const base = "api/automation/rotation";
/** Default period of the report on shared keys. */
const DEFAULT_DAYS = 30;
const EXAMPLE_KEY = "116f5804-91fd-429e-a627-7912a2486d82";

/** A repeat with the same Idempotency-Key returns the current state of the first request's run. */
const repeat: Repeat<Services, unknown, z.input<typeof RunView>> = {
  idOf: ({ runId }) => runId,
  answer: async ({ id, services }) => runView(await services.secretlessRuns.get(id)),
};

const getSecretless = endpoint({
  name: "getSecretless",
  method: "GET",
  route: `${base}/apps/{app_id}/secretless`,
  summary: "Report whether an application can work without its client secrets",
  description:
    "Returns for each client secret the known consumers, what can replace it for each, and a plan with commands. Reads no value and changes nothing. Consumers come from matches, dependencies and sync records as they are stored, and the federated credentials from Microsoft Graph, at most once a day. A placeholder in <…> stands for each part that the service can't know. `unknown` lists the sources that were not searched: a consumer that is not listed can still exist.",
  tag,
  access: "user",
  tier: "pro",
  params: AppParams,
  responds: { 200: Secretless },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(secretlessView(await services.secretless.report(params.app_id))),
});

const replaceSecret = endpoint({
  name: "replaceSecret",
  method: "POST",
  route: `${base}/apps/{app_id}/secretless`,
  summary: "Replace a client secret by federated credentials",
  description:
    "Starts a run in the background: checks the plan, adds the federated credentials, converts service connections of Azure DevOps, watches the sign-ins until the secret was unused for `idleDays`, and then removes it. Blind spots of the logs must be confirmed first (POST …/confirm). Follow the run with GET. Returns 409 for a secret without the verdict `possible`, 400 for a value that does not match the report, and 409 for a value that the workload does not present, as far as Azure shows it. With dryRun: true the answer is the plan.",
  tag,
  access: "admin",
  tier: "pro",
  params: AppParams,
  body: ReplaceSecretRequest,
  // A federated credential lets its subject sign in as the application.
  guarded: ({ body }) => !body.dryRun,
  example: { body: { keyId: EXAMPLE_KEY, idleDays: 35, dryRun: true } },
  responds: { 200: RunView, 201: RunView },
  problems: ["notFound", "conflict", "rotationUnfinished", "valueRequired", "unavailable"],
  repeat,
  handle: async ({ params, body, caller, services }) => {
    const { dryRun, ...request } = body;
    if (dryRun) return ok(draftView(await services.secretlessRuns.plan(params.app_id, request)));
    const run = await services.secretlessRuns.start(params.app_id, request, caller);
    return created(runView(run), `/${base}/secretless/${run.runId}`);
  },
});

const listSecretlessRuns = endpoint({
  name: "listSecretlessRuns",
  method: "GET",
  route: `${base}/secretless`,
  summary: "List replacements of client secrets, newest first",
  description: "Returns at most 100 runs.",
  tag,
  access: "user",
  tier: "pro",
  query: RunsQuery,
  responds: { 200: RunList },
  handle: async ({ query, services }) => ok({ items: (await services.secretlessRuns.list(query.appId)).map(runView) }),
});

const getSecretlessRun = endpoint({
  name: "getSecretlessRun",
  method: "GET",
  route: `${base}/secretless/{run_id}`,
  summary: "Get a replacement of a client secret with its steps",
  tag,
  access: "user",
  tier: "pro",
  params: RunParams,
  responds: { 200: RunView },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(runView(await services.secretlessRuns.get(params.run_id))),
});

/** Members that the declarations of the actions share. */
const action = {
  method: "POST",
  tag,
  tier: "core",
  params: RunParams,
  responds: { 200: RunView },
  repeat,
} as const;

const proveSecretlessRun = endpoint({
  ...action,
  name: "proveSecretlessRun",
  route: `${base}/secretless/{run_id}/proof`,
  summary: "Prove a federated credential with a token of the workload",
  description:
    "Compares issuer, subject and audience of the token with the federated credentials of the run, and exchanges it at Microsoft Entra for a token of the application, which is discarded. A token with other values is rejected (409), and nothing is changed. The token is neither stored nor logged. Returns 503 with Retry-After while Microsoft Entra does not know the credential yet.",
  access: "operator",
  body: ProofRequest,
  example: { body: { assertion: "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl" } },
  problems: ["notFound", "conflict", "unavailable"],
  handle: async ({ params, body, caller, services }) =>
    ok(runView(await services.secretlessRuns.prove(params.run_id, body.assertion, caller))),
});

const confirmSecretlessRun = endpoint({
  ...action,
  name: "confirmSecretlessRun",
  route: `${base}/secretless/{run_id}/confirm`,
  summary: "Accept what no log shows, so that the secret is removed",
  description:
    "The secret is removed once it is idle for the requested days. Microsoft Entra can't restore it. Returns 409 with `blindSpots` if the run has others than those that you accept.",
  access: "admin",
  body: ConfirmRequest,
  guarded: () => true,
  problems: ["notFound", "conflict"],
  handle: async ({ params, body, caller, services }) =>
    ok(runView(await services.secretlessRuns.confirm(params.run_id, body.blindSpots, caller))),
});

const retrySecretlessRun = endpoint({
  ...action,
  name: "retrySecretlessRun",
  route: `${base}/secretless/{run_id}/retry`,
  summary: "Retry a replacement that needs attention",
  description: "Continues with the step that failed. Before the secret is removed, everything is checked again.",
  access: "operator",
  problems: ["notFound", "conflict"],
  handle: async ({ params, caller, services }) =>
    ok(runView(await services.secretlessRuns.retry(params.run_id, caller))),
});

const rollBackSecretlessRun = endpoint({
  ...action,
  name: "rollBackSecretlessRun",
  route: `${base}/secretless/{run_id}/rollback`,
  summary: "Roll back a replacement",
  description:
    "Reverts the converted service connections and removes the federated credentials that the run added. Not possible while the secret is being removed (409). Once a federated credential was added or a connection converted, only with force: true.",
  access: "operator",
  body: RollbackRequest,
  bodyOptional: true,
  example: { body: { force: false } },
  problems: ["notFound", "conflict"],
  handle: async ({ params, body, caller, services }) =>
    ok(runView(await services.secretlessRuns.rollback(params.run_id, body.force, caller))),
});

const listSharedKeys = endpoint({
  name: "listSharedKeys",
  method: "GET",
  route: `${base}/shared-keys`,
  summary: "List resources that could turn their shared keys off",
  description:
    "Returns the storage accounts and other resources with two keys of the monitored subscriptions, and whether anything used a key for `days` days. For storage accounts the metric Transactions shows it by kind of authentication. No metric of the other kinds does, so the logged reads of the vault secrets that store the keys decide. Changes nothing. Lists only resources that the service's identity may read. Azure Resource Graph can be some minutes old. Returns 503 with Retry-After if it can't be read.",
  tag,
  access: "user",
  tier: "pro",
  query: SharedKeysQuery,
  responds: { 200: SharedKeysList },
  problems: ["unavailable"],
  handle: async ({ query, services }) => {
    const list = services.sharedKeys({ days: query.days ?? DEFAULT_DAYS }, pageRequest(query));
    return ok(pageView(await list.catch(throwAsProblem), sharedKeysView));
  },
});

export const endpoints = [
  listSharedKeys,
  getSecretless,
  replaceSecret,
  listSecretlessRuns,
  getSecretlessRun,
  proveSecretlessRun,
  confirmSecretlessRun,
  retrySecretlessRun,
  rollBackSecretlessRun,
];

export const timers = [
  timer({
    name: "wakeSecretlessRuns",
    schedule: { setting: "ROTATION_SCHEDULE" },
    handle: ({ services }) => services.secretlessRuns.continueDue(),
  }),
];

export const queues = [
  queue({
    name: "workSecretlessRun",
    queue: SECRETLESS_QUEUE,
    message: SecretlessMessage,
    handle: ({ runId }, { services, requestId }) => services.secretlessRuns.work(runId, requestId),
  }),
  poison({
    name: "workSecretlessRunFailed",
    of: SECRETLESS_QUEUE,
    message: SecretlessMessage,
    handle: ({ runId }, { services }) => services.secretlessRuns.giveUp(runId),
  }),
];
