import pMap from "p-map";
import type { Caller } from "../platform/http/endpoint.ts";
import { SECOND_MS } from "../platform/time.ts";
import { CALLS } from "./calls.ts";
import { type DoctorDeps, isStoreFailure } from "./clients.ts";
import { createContext } from "./context.ts";
import type { OutgoingCall } from "./outgoing-call.ts";
import { CHECK_TIMED_OUT, CHECK_TIMEOUT_MS } from "./report.ts";
import { notProven, type Outcome, type Result, worstOf } from "./result.ts";

// The doctor: makes each outgoing call of the service once, and reports which permissions are missing. Used by the API, the
// page Permissions and `npm run doctor`.

/** What was found for one call: its worst result, and the results that need attention. */
export interface CheckedCall {
  call: OutgoingCall;
  outcome: Outcome;
  /** Number of resources for which the call works. */
  works: number;
  /** Number of resources for which the call was checked. */
  checked: number;
  /** The results that are not `works`, and those with a `detail`. */
  findings: Result[];
}

/** The result of a check of all calls. */
export interface PermissionsCheck {
  /** False if a required call has an outcome in `NOT_OK`. Calls that are `optional` don't count. */
  ok: boolean;
  /** Time of the check, ISO 8601. */
  checkedAt: string;
  /** The sampled part of what the service watches. `total` of vaults counts those of the sampled subscriptions. */
  sample: { subscriptions: { checked: number; total: number }; vaults: { checked: number; total: number } };
  calls: CheckedCall[];
}

export interface Doctor {
  /**
   * Makes each outgoing call of the service once, reading only, with the identity that the service uses for it. Requests at the
   * same time share one check. Takes at most two minutes.
   */
  check(caller: Caller): Promise<PermissionsCheck>;
}

/** Outcomes that make a check fail, unless the call is optional. */
const NOT_OK: ReadonlySet<Outcome> = new Set(["answeredWithBlanks", "permissionMissing", "unreachable", "failed"]);

/** Number of calls that are checked at the same time. Each sends a few requests, and the check must end within two minutes. */
const CONCURRENT_CALLS = 6;

/** Time after which a check no longer waits for calls that have not ended although its time limit has passed. */
const MAX_WAIT_MS = CHECK_TIMEOUT_MS + 10 * SECOND_MS;

/** Creates the doctor. @param calls - Default: all calls. Tests check some of them, and set a shorter wait. */
export function createDoctor(
  deps: DoctorDeps,
  calls: readonly OutgoingCall[] = CALLS,
  maxWaitMs = MAX_WAIT_MS,
): Doctor {
  let running: Promise<PermissionsCheck> | undefined;
  return {
    check(caller) {
      running ??= run(deps, { calls, maxWaitMs }, caller).finally(() => {
        running = undefined;
      });
      return running;
    },
  };
}

async function run(
  deps: DoctorDeps,
  { calls: outgoing, maxWaitMs }: { calls: readonly OutgoingCall[]; maxWaitMs: number },
  caller: Caller,
): Promise<PermissionsCheck> {
  const checkedAt = deps.clock.now().toISOString();
  const context = createContext(deps, caller);
  const end = AbortSignal.timeout(maxWaitMs);
  // Some of the modules have time limits of their own, whose sum is more than the platform waits for a response.
  const late = new Promise<Result[]>((resolve) => {
    end.addEventListener("abort", () => resolve([notProven("the service", CHECK_TIMED_OUT)]), { once: true });
  });
  const calls = await pMap(
    outgoing,
    async (call): Promise<CheckedCall> => {
      const results = await Promise.race([call.check(context), late]).catch((error: unknown): Result[] => {
        // Without its own tables the service can't know how the call is configured. The calls to the tables report the cause.
        if (!isStoreFailure(error)) throw error;
        return [{ outcome: "failed", resource: "the service's tables", detail: error.message }];
      });
      return {
        call,
        outcome: worstOf(results),
        works: results.filter(({ outcome }) => outcome === "works").length,
        checked: results.length,
        findings: results.filter(({ outcome, detail }) => outcome !== "works" || detail !== undefined),
      };
    },
    { concurrency: CONCURRENT_CALLS },
  );
  const [subscriptions, vaults] = await Promise.all([context.subscriptions(), context.vaults()]);
  return {
    ok: calls.every(({ call, outcome }) => call.optional || !NOT_OK.has(outcome)),
    checkedAt,
    sample: {
      subscriptions: { checked: subscriptions.checked.length, total: subscriptions.total },
      vaults: { checked: vaults.checked.length, total: vaults.total },
    },
    calls,
  };
}
