import * as z from "zod";
import type { Audit } from "../../audit/audit.ts";
import { audited } from "../../audit/audited.ts";
import type { Caller } from "../../platform/http/endpoint.ts";
import { createDiscoveryRuns, RunBusy } from "../../platform/runs/discovery-runs.ts";
import { waitForRun } from "../../platform/runs/wait-for-run.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import type { Queues } from "../../platform/storage/queues.ts";
import { SECOND_MS } from "../../platform/time.ts";
import type { LoginRegistrations } from "../database-logins/registrations.ts";
import { noServiceVault } from "../matches.ts";
import { type CredentialList, createCredentialList } from "./credential-list.ts";
import type { ReadsOf } from "./credential-usage.ts";
import { discoverLinks, type LinkDiscoveryDependencies } from "./discovery.ts";
import { RUNS, type RunRecord, Runs } from "./discovery-run.ts";

/** Name of the queue. A message continues a run. */
export const QUEUE = "credentials-discover";
export const DiscoverMessage = z.object({ runId: z.string() });
export type DiscoverMessage = z.infer<typeof DiscoverMessage>;

/** Time that a request waits for its run to end. */
const WAIT_MS = 20 * SECOND_MS;
/** Delay of the message that completes a run if the request's process crashes. */
const MESSAGE_DELAY_SECONDS = 30;
/** Maximum delay of a message that is requeued because another worker has the run. */
const MAX_REQUEUE_SECONDS = 60;

/** Credentials of Azure resources that vault secrets store, and the discovery that finds them. */
export interface Credentials extends CredentialList {
  /**
   * Starts a discovery. Returns the run when it ends or after 20 seconds. If a run is in progress, returns that run.
   *
   * @throws {Problem} conflict if the service has no own key vault.
   */
  discover(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }>;
  /** Returns a discovery run. @throws {Problem} notFound */
  run(runId: string): Promise<RunRecord>;
  /** Continues a run. Handler of the queue. */
  handle(message: DiscoverMessage): Promise<void>;
  /** Handler of the poison queue: gives a run the status `failed` after its message failed five times. */
  failed(message: DiscoverMessage, caller: Caller): Promise<void>;
}

export function createCredentials(
  deps: LinkDiscoveryDependencies & {
    logins: Pick<LoginRegistrations, "all" | "get">;
    audit: Pick<Audit, "append">;
    queues: Queues;
    readsOf?: ReadsOf;
    /** Milliseconds that a request waits for its run. Tests set it. */
    waitMs?: number;
  },
): Credentials {
  const { queues, audit, clock, log, waitMs = WAIT_MS } = deps;
  const runs = createDiscoveryRuns({ runs: Runs, partitionKey: RUNS }, deps);

  /** Works on a run until it ends, or until another message continues it. */
  async function continueRun(runId: string): Promise<"ended" | "more"> {
    const leasedRun = await runs.lease(runId);
    if (!leasedRun) return "ended";
    try {
      const result = await discoverLinks(leasedRun, deps);
      if (result === "more") await leasedRun.release();
      else await runs.removeOld();
      return result;
    } catch (error) {
      await leasedRun.release();
      throw error;
    }
  }

  async function startRun(caller: Caller): Promise<{ run: RunRecord; isNew: boolean }> {
    return await audited(
      audit,
      { type: "rotation.credentialDiscoveryRequested", caller },
      async () => {
        const counts = { resources: 0, resourcesDenied: 0, secrets: 0, secretsDenied: 0, links: 0, removed: 0 };
        const started = await runs.start({ trigger: "api", ...counts }, caller);
        // Sends the message even if a run was already in progress, whose own message may be lost. A duplicate is harmless.
        await queues.send(QUEUE, { runId: started.run.runId }, { delaySeconds: MESSAGE_DELAY_SECONDS });
        return started;
      },
      ({ run }) => ({ details: { runId: run.runId } }),
    );
  }

  return {
    ...createCredentialList(deps),
    run: (runId) => runs.get(runId),

    async discover(caller) {
      // Links are signed with a key from the service's own key vault.
      if (deps.config.SERVICE_KEY_VAULT_URL === undefined) throw noServiceVault();
      const { run, isNew } = await startRun(caller);
      const { runId } = run;
      await waitForRun(continueRun(runId), { runId, timeLimit: AbortSignal.timeout(waitMs), log });
      return { run: await runs.get(runId), isNew };
    },

    async handle({ runId }) {
      let waitMs = 0;
      try {
        if ((await continueRun(runId)) === "ended") return;
      } catch (error) {
        // Another worker has the run. The message is sent again, because throwing would count as a failed delivery.
        if (error instanceof RunBusy) waitMs = error.waitMs;
        else if (isConflict(error)) waitMs = SECOND_MS;
        else throw error;
      }
      const delaySeconds = Math.min(MAX_REQUEUE_SECONDS, Math.ceil(waitMs / SECOND_MS));
      await queues.send(QUEUE, { runId }, { delaySeconds });
    },

    async failed({ runId }, caller) {
      log.error("A message of a credential discovery failed in all deliveries", { runId });
      const failure = {
        list: "resources",
        code: "internal",
        message: "The keys and secrets could not be compared in five attempts.",
        remedy: "See GET /system/failed-messages and the log. Then start another discovery.",
        at: clock.now().toISOString(),
      };
      await runs.fail(runId, failure);
      await audit.append({
        type: "rotation.credentialsDiscovered",
        caller,
        outcome: "failure",
        target: { type: "credentialDiscovery", id: runId },
        details: { status: "failed", failures: ["resources: internal"] },
      });
    },
  };
}
