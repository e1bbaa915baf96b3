import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Moment } from "../inventory/asset-status.ts";
import { VaultBusy } from "../inventory/write.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { GraphApplication } from "../platform/azure/graph.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import { createDiscoveryRuns, RunBusy } from "../platform/runs/discovery-runs.ts";
import { waitForRun } from "../platform/runs/wait-for-run.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge } from "../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../platform/time.ts";
import {
  APPS,
  type ApplicationRecord,
  Applications,
  credentialsOf,
  type Details,
  idKey,
  nameKey,
  RUNS,
  type RunRecord,
  Runs,
  STATE_KEY,
  States,
  TABLE,
} from "./application.ts";
import { type ApplicationCoverage, readCoverage } from "./coverage.ts";
import type { SignInEvidence } from "./credential-usage.ts";
import { type DiscoverDeps, discover } from "./discover.ts";
import {
  type ApplicationFilter,
  type FoundApplication,
  foundApplication,
  listApplications,
  type PoliciesOf,
  type SignInsOf,
} from "./query.ts";
import { ApplicationRefresh, refreshApplication } from "./refresh.ts";
import { type Reason, reasonsAgainst } from "./rotatable.ts";

/** Name of the queue. */
export const QUEUE = "applications-discover";
/** A message of the queue: starts a scheduled run, continues the run that it names, or reads one application again. */
export const DiscoverMessage = z.object({
  /** Absent for a scheduled run that has not started. */
  runId: z.string().optional(),
  mode: z.enum(["full", "changes"]).optional(),
  /** Requests that this one application is read again, without a run. */
  application: ApplicationRefresh.optional(),
});
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** Time that a request waits for its run to end. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes a run if the request's process crashes. */
const MESSAGE_DELAY_SECONDS = 30;
/** Maximum delay of a message that is requeued because another worker has the run or writes the same rows. */
const MAX_REQUEUE_SECONDS = 60;
/** Time before a changed application is read again if the directory does not show the change yet, or can't be read. */
const REFRESH_PAUSE_MS = 15 * SECOND_MS;
/**
 * Number of further reads of a changed application. With their pauses, they take five minutes, as long as a replica of the
 * directory may be behind.
 */
const MAX_REFRESHES = 20;
/** Time for which details of a single application are cached. */
const DETAILS_CACHE_MS = DAY_MS;
/**
 * Age of the last complete listing after which a run of changes lists all applications instead: an hour more than the interval
 * at which all are listed.
 */
const MAX_LISTING_AGE_MS = 25 * HOUR_MS;

/**
 * Discovers, lists and returns the Entra applications of the service's own tenant, with their credentials. The endpoints under
 * /api/automation/rotation, a timer and a queue call it.
 */
export interface ApplicationsService {
  /**
   * Starts a discovery of all applications. Returns the run when it ends or after 20 seconds. If a run is in progress, returns
   * that run.
   *
   * @throws {Problem} conflict while only changes are being read.
   */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** Returns a discovery run. @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /**
   * Requests that one application is read again, because this service has changed its client secrets. It sends a
   * message, so that a failed read is retried and does not fail the caller.
   */
  requestRefresh(application: Omit<ApplicationRefresh, "attempts">): Promise<void>;
  /** Handles one message of the queue. */
  handle(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Ends the run of a message that failed five times as failed. */
  failed(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Lists applications by name. See `listApplications` for the number of requests. */
  list(filter: ApplicationFilter, request: PageRequest): Promise<Page<FoundApplication>>;
  /**
   * Returns one application by client ID. Reads its federated credentials and policies from Graph if the stored ones are older
   * than a day. If that fails, returns the stored ones.
   *
   * @throws {Problem} notFound
   */
  get(appId: string): Promise<FoundApplication>;
  /**
   * Returns the reasons why no secret of an application can be rotated. Costs one request.
   *
   * @param app - The application as just read
   */
  reasonsAgainst(app: GraphApplication): Promise<Reason[]>;
  /** Returns how many applications the last discovery read. See `readCoverage`. */
  coverage(): Promise<ApplicationCoverage>;
  /** Returns the time and settings by which the status of credentials is computed. */
  moment(): Promise<Moment>;
}

const NO_SIGN_INS: SignInEvidence = {
  workspaces: 0,
  completeSince: undefined,
  completeUntil: undefined,
  lastSignIn: () => undefined,
};

/** Creates the discovery and the lists of applications. */
export function createApplications(
  deps: DiscoverDeps & {
    audit: Pick<Audit, "append">;
    queues: Queues;
    /** Returns whether a PRO license is present. Without one, no run starts. */
    licensed: () => Promise<boolean>;
    /** Returns the rotation policies of applications. Default: none. */
    policiesOf?: PoliciesOf;
    /** Returns the sign-ins in the logs. Default: none, as without logs. */
    signInsOf?: SignInsOf;
    clock: Clock;
    log: Logger;
    /** Milliseconds that a request waits for its run. Tests set it. */
    waitMs?: number;
  },
): ApplicationsService {
  const { tables, queues, graph, audit, clock, log, moment } = deps;
  const { policiesOf = async () => new Map(), signInsOf = async () => NO_SIGN_INS, waitMs = WAIT_MS } = deps;
  const runs = createDiscoveryRuns({ runs: Runs, partitionKey: RUNS }, deps);

  /** Works on a run until it ends, or until another worker or message continues it. */
  async function continueRun(runId: string): Promise<void> {
    let leasedRun: Awaited<ReturnType<typeof runs.lease>>;
    try {
      leasedRun = await runs.lease(runId);
      if (!leasedRun) return;
      await discover(leasedRun, deps);
      if (leasedRun.run.mode === "full") await runs.removeOld();
    } catch (error) {
      await leasedRun?.release();
      throw error;
    }
  }

  async function startRun(mode: RunRecord["mode"], trigger: RunRecord["trigger"], caller: Caller): Promise<RunRecord> {
    const event = { type: "applications.discoveryRequested", caller, details: { mode, trigger } };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs.start({ mode, trigger }, caller);
        // Sends the message even if a run was already in progress, whose own message may be lost. A duplicate message is
        // harmless.
        const delaySeconds = trigger === "api" ? MESSAGE_DELAY_SECONDS : 0;
        await queues.send(QUEUE, { runId: run.runId }, { delaySeconds });
        return run;
      },
      (run) => ({ details: { ...event.details, runId: run.runId } }),
    );
  }

  async function startScheduledRun(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    if (!(await deps.licensed())) return await skipRun(mode, caller);
    const state = await tables.get(States, APPS, STATE_KEY);
    const listedAt = state?.applicationsAt;
    const isListingTooOld = listedAt === undefined || clock.now().getTime() - Date.parse(listedAt) > MAX_LISTING_AGE_MS;
    const run = await startRun(isListingTooOld || state?.deltaLink === undefined ? "full" : mode, "schedule", caller);
    log.info("A discovery of applications starts", { runId: run.runId, mode: run.mode });
  }

  async function skipRun(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    log.info("Application discovery skipped: no PRO license", { mode });
    // Only full runs are recorded, which are scheduled once a day.
    if (mode !== "full") return;
    const details = { mode, reason: "licenseRequired" };
    await audit.append({ type: "applications.discovered", caller, outcome: "refused", details });
  }

  /** Reads one application again. Sends the message again while a run may overwrite the result, and after a failure. */
  async function refresh(message: ApplicationRefresh): Promise<void> {
    const sendAgain = (waitMs: number, attempts = message.attempts) =>
      queues.send(QUEUE, refreshMessage({ ...message, attempts }), {
        delaySeconds: Math.min(MAX_REQUEUE_SECONDS, Math.max(1, Math.ceil(waitMs / SECOND_MS))),
      });
    // A run in progress may have listed the application before the change.
    if (await runs.active()) return await sendAgain(REFRESH_PAUSE_MS);
    try {
      const isShown = await refreshApplication(message, deps);
      if (isShown || message.attempts >= MAX_REFRESHES) return;
      return await sendAgain(REFRESH_PAUSE_MS, message.attempts + 1);
    } catch (error) {
      const waitMs = waitAfter(error);
      if (waitMs !== undefined) return await sendAgain(waitMs);
      if (!(error instanceof CloudFailure) || message.attempts >= MAX_REFRESHES) throw error;
      log.warn("A changed application could not be read. It is read again later.", {
        appId: message.appId,
        code: error.code,
      });
      const pauseMs = error.retryAfterSeconds === undefined ? REFRESH_PAUSE_MS : error.retryAfterSeconds * SECOND_MS;
      await sendAgain(pauseMs, message.attempts + 1);
    }
  }

  async function withDetails(app: Row<ApplicationRecord>): Promise<ApplicationRecord> {
    const readAt = app.details?.readAt;
    // The absolute value, because a time far in the future comes from a wrong clock.
    const isCached = readAt !== undefined && Math.abs(clock.now().getTime() - Date.parse(readAt)) < DETAILS_CACHE_MS;
    // A service principal here belongs to an application of another tenant, whose details can't be read in this one.
    if (isCached || app.kind === "servicePrincipal") return withoutKeys(app);
    let details: Details;
    try {
      const policy = await graph.passwordPolicy(app.objectId);
      details = {
        readAt: clock.now().toISOString(),
        federated: (await graph.federatedCredentials(app.objectId)).map(({ id, name, issuer, subject }) => {
          return { id, name, issuer, subject };
        }),
        ...(policy === "unknown" ? {} : { policy }),
      };
    } catch (error) {
      // If Graph fails, the stored data is returned.
      if (!(error instanceof CloudFailure)) throw error;
      log.warn("An application's details could not be read", { appId: app.appId, code: error.code });
      return withoutKeys(app);
    }
    try {
      // If a discovery writes the application at the same time, the details are not stored, and the next request reads them
      // again.
      await tables.transaction(TABLE, APPS, [
        merge(Applications, idKey(app.appId), { details }, app.etag),
        merge(Applications, nameKey(app), { details }),
      ]);
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
    return { ...withoutKeys(app), details };
  }

  return {
    moment,
    run: (runId) => runs.get(runId),

    async discover(caller) {
      const activeRun = await runs.active();
      if (activeRun?.mode === "changes") {
        const detail = `The discovery ${activeRun.runId} is reading changes. Repeat the request in a minute.`;
        throw new Problem("conflict", detail, { members: { runId: activeRun.runId } });
      }
      const { runId } = activeRun ?? (await startRun("full", "api", caller));
      await waitForRun(continueRun(runId), { runId, timeLimit: AbortSignal.timeout(waitMs), log });
      return { run: await runs.get(runId), isNew: activeRun === undefined };
    },

    requestRefresh: (application) => queues.send(QUEUE, refreshMessage({ ...application, attempts: 0 })),

    async handle({ runId, mode = "full", application }, caller) {
      if (application !== undefined) return await refresh(application);
      if (runId === undefined) return await startScheduledRun(mode, caller);
      try {
        await continueRun(runId);
      } catch (error) {
        // Another worker has the run or writes the same rows. The message is sent again, because throwing would count as a
        // failed delivery.
        const waitMs = waitAfter(error);
        if (waitMs === undefined) throw error;
        const delaySeconds = Math.min(MAX_REQUEUE_SECONDS, Math.max(1, Math.ceil(waitMs / SECOND_MS)));
        await queues.send(QUEUE, { runId }, { delaySeconds });
      }
    },

    async failed({ runId, mode = "full", application }, caller) {
      // GET /system/failed-messages lists the message. The next scheduled run reads the application.
      if (application !== undefined) return;
      log.error("A message of an application discovery failed in all deliveries", { runId, mode });
      const failure = {
        list: "applications",
        code: "internal",
        message: "The applications could not be written in five attempts.",
        remedy: "See GET /system/failed-messages and the log. The next scheduled discovery retries it.",
        at: clock.now().toISOString(),
      };
      const run = runId === undefined ? undefined : await runs.fail(runId, failure);
      await audit.append({
        type: "applications.discovered",
        caller,
        outcome: "failure",
        target: { type: "applicationDiscovery", id: runId ?? mode },
        details: { mode: run?.mode ?? mode, status: "failed", failures: ["applications: internal"] },
      });
    },

    async reasonsAgainst(app) {
      const state = await tables.get(States, APPS, STATE_KEY);
      const { kind, signInAudience, owners } = app;
      const facts = { kind, signInAudience, owners, credentials: credentialsOf(app) };
      return reasonsAgainst(facts, state?.rights, clock.now().getTime());
    },

    coverage: () => readCoverage(tables),

    list: async (filter, request) =>
      listApplications(filter, request, await moment(), { tables, policiesOf, signInsOf }),

    async get(appId) {
      const id = appId.toLowerCase();
      const [row, state] = await Promise.all([
        GUID.test(id) ? tables.get(Applications, APPS, idKey(id)) : undefined,
        tables.get(States, APPS, STATE_KEY),
      ]);
      if (!row) throw notFound(`The application ${appId.slice(0, 64)}`);
      const [app, policies, signIns, statusTime] = await Promise.all([
        withDetails(row),
        policiesOf([id]),
        signInsOf(id),
        moment(),
      ]);
      return foundApplication(app, { state, policies, signIns }, statusTime);
    },
  };
}

/** Returns the milliseconds to wait if the error says that another worker has the run or writes the same rows. */
function waitAfter(error: unknown): number | undefined {
  if (error instanceof RunBusy || error instanceof VaultBusy) return error.waitMs;
  return isConflict(error) ? SECOND_MS : undefined;
}

/**
 * Returns the message that requests one application. Workers of earlier versions ignore `application`: they read all changes,
 * not all applications.
 */
const refreshMessage = (application: ApplicationRefresh): DiscoverMessage => ({ mode: "changes", application });

const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
