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
import { type DiscoverDeps, discover } from "./discover.ts";
import {
  type ApplicationFilter,
  type FoundApplication,
  foundApplication,
  listApplications,
  type PoliciesOf,
} from "./query.ts";
import { type Reason, reasonsAgainst } from "./rotatable.ts";

export const QUEUE = "applications-discover";
export const DiscoverMessage = z.object({
  /** Absent for a scheduled run that has not started. */
  runId: z.string().optional(),
  mode: z.enum(["full", "changes"]).optional(),
});
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** Longest time that a request waits for its run to end. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes a run if the request's process crashes. */
const MESSAGE_DELAY_SECONDS = 30;
const LONGEST_BUSY_SECONDS = 60;
/** How long data of a single application is cached. */
const DETAILS_MS = DAY_MS;
/** Longest time between two complete listings. After a failed listing, the next reading of changes does one. */
const FULL_AFTER_MS = 25 * HOUR_MS;

/** Discovers, lists and finds the tenant's applications with their credentials. */
export interface ApplicationsService {
  /**
   * Reads all applications. Returns the run once it is over, or after 20 seconds. If one is in progress, returns that one.
   *
   * @throws {Problem} conflict while only changes are being read.
   */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /** Handles one message of the queue. */
  handle(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Ends the run of a message that failed five times as failed. */
  failed(message: DiscoverMessage, caller: Caller): Promise<void>;
  /** Lists applications by name. At most one request per 1,000 applications read, and three. */
  list(filter: ApplicationFilter, request: PageRequest): Promise<Page<FoundApplication>>;
  /**
   * Returns one application by client ID. Reads its federated credentials and policies unless that was done within a day. If
   * reading fails, returns the stored ones.
   *
   * @throws {Problem} notFound
   */
  get(appId: string): Promise<FoundApplication>;
  /** Returns why none of an application's secrets can be rotated, from its current description in Graph. One request. */
  reasonsAgainst(app: GraphApplication): Promise<Reason[]>;
  moment(): Promise<Moment>;
}

export function createApplications(
  deps: DiscoverDeps & {
    audit: Pick<Audit, "append">;
    queues: Queues;
    /** Returns whether a PRO license is present. Without one, no run starts. */
    licensed: () => Promise<boolean>;
    policiesOf?: PoliciesOf;
    clock: Clock;
    log: Logger;
    /** Milliseconds a request waits for its run; for tests. */
    waitMs?: number;
  },
): ApplicationsService {
  const { tables, queues, graph, audit, clock, log, moment } = deps;
  const { policiesOf = async () => new Map(), waitMs = WAIT_MS } = deps;
  const runs = createDiscoveryRuns({ runs: Runs, partitionKey: RUNS }, deps);

  /** Works on a run until it ends or another worker or message continues it. */
  async function work(runId: string): Promise<void> {
    let held: Awaited<ReturnType<typeof runs.lease>>;
    try {
      held = await runs.lease(runId);
      if (!held) return;
      await discover(held, deps);
      if (held.run.mode === "full") await runs.removeOld();
    } catch (error) {
      await held?.release();
      throw error;
    }
  }

  async function begin(mode: RunRecord["mode"], trigger: RunRecord["trigger"], caller: Caller): Promise<RunRecord> {
    const event = { type: "applications.discoveryRequested", caller, details: { mode, trigger } };
    return await audited(
      audit,
      event,
      async () => {
        const { run } = await runs.start({ mode, trigger }, caller);
        // The message of a run in progress may be lost. A duplicate does no harm.
        const delaySeconds = trigger === "api" ? MESSAGE_DELAY_SECONDS : 0;
        await queues.send(QUEUE, { runId: run.runId }, { delaySeconds });
        return run;
      },
      (run) => ({ details: { ...event.details, runId: run.runId } }),
    );
  }

  async function beginScheduled(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    if (!(await deps.licensed())) return await skip(mode, caller);
    const state = await tables.get(States, APPS, STATE_KEY);
    const listedAt = state?.applicationsAt;
    const overdue = listedAt === undefined || clock.now().getTime() - Date.parse(listedAt) > FULL_AFTER_MS;
    const run = await begin(overdue || state?.deltaLink === undefined ? "full" : mode, "schedule", caller);
    log.info("Applications will be discovered", { runId: run.runId, mode: run.mode });
  }

  async function skip(mode: RunRecord["mode"], caller: Caller): Promise<void> {
    log.info("Application discovery skipped: no PRO license", { mode });
    // Report it at most once a day.
    if (mode !== "full") return;
    const details = { mode, reason: "licenseRequired" };
    await audit.append({ type: "applications.discovered", caller, outcome: "refused", details });
  }

  async function withDetails(app: Row<ApplicationRecord>): Promise<ApplicationRecord> {
    const readAt = app.details?.readAt;
    const fresh = readAt !== undefined && Math.abs(clock.now().getTime() - Date.parse(readAt)) < DETAILS_MS;
    if (fresh || app.kind === "servicePrincipal") return withoutKeys(app);
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
      // If Graph fails now, the stored data is returned.
      if (!(error instanceof CloudFailure)) throw error;
      log.warn("An application's details could not be read", { appId: app.appId, code: error.code });
      return withoutKeys(app);
    }
    try {
      // Only a cache: if a discovery writes the application at the same time, the data is read again another day.
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
      const under = await runs.active();
      if (under?.mode === "changes") {
        const detail = `The discovery ${under.runId} is reading what changed. Repeat the request in a minute.`;
        throw new Problem("conflict", detail, { members: { runId: under.runId } });
      }
      const { runId } = under ?? (await begin("full", "api", caller));
      await waitForRun(work(runId), { runId, late: AbortSignal.timeout(waitMs), log });
      return { run: await runs.get(runId), isNew: under === undefined };
    },

    async handle({ runId, mode = "full" }, caller) {
      if (runId === undefined) return await beginScheduled(mode, caller);
      try {
        await work(runId);
      } catch (error) {
        // Another worker has the run or writes the same rows. Throwing would count as a failed delivery.
        const waitMs =
          error instanceof RunBusy || error instanceof VaultBusy
            ? error.waitMs
            : isConflict(error)
              ? SECOND_MS
              : undefined;
        if (waitMs === undefined) throw error;
        const delaySeconds = Math.min(LONGEST_BUSY_SECONDS, Math.max(1, Math.ceil(waitMs / SECOND_MS)));
        await queues.send(QUEUE, { runId }, { delaySeconds });
      }
    },

    async failed({ runId, mode = "full" }, caller) {
      log.error("A discovery of applications failed for good", { runId, mode });
      const failure = {
        list: "applications",
        code: "internal",
        message: "The applications could not be written, in five tries.",
        remedy: "Look at GET /system/failed-messages and at the log; the next scheduled discovery tries it again.",
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

    list: async (filter, request) => listApplications(filter, request, await moment(), { tables, policiesOf }),

    async get(appId) {
      const id = appId.toLowerCase();
      const [row, state] = await Promise.all([
        GUID.test(id) ? tables.get(Applications, APPS, idKey(id)) : undefined,
        tables.get(States, APPS, STATE_KEY),
      ]);
      if (!row) throw notFound(`The application ${appId.slice(0, 64)}`);
      const [app, policies, at] = await Promise.all([withDetails(row), policiesOf([id]), moment()]);
      return foundApplication(app, state, policies, at);
    },
  };
}

const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
