import { failure } from "../../platform/azure/failure.ts";
import { Problem } from "../../platform/http/problem.ts";
import { isRetried } from "../../sync/run-failure.ts";
import type { Sync } from "../../sync/sync.ts";
import { recordIdOf } from "../sync-source.ts";
import { type KindOfConsumer, NOTHING_OVERWRITTEN } from "./consumer-kind.ts";

/**
 * Treats sync records, which copy a secret to a target, as consumers of a rotated secret. A refresh runs the
 * record, and a check compares the version that the record copied last.
 */
export function syncConsumers(sync: Pick<Sync, "get" | "trigger">): KindOfConsumer {
  // The sync module answers 404 for a deleted record, and 403 without a license.
  const undefinedIfUnavailable = async <T>(work: Promise<T>): Promise<T | undefined> =>
    await work.catch((error: unknown) => {
      if (error instanceof Problem && (error.status === 403 || error.status === 404)) return undefined;
      throw error;
    });

  return {
    canCheck: () => true,

    async currentProblem(consumer) {
      const record = await undefinedIfUnavailable(sync.get(recordIdOf(consumer.id)));
      // After these failures the record runs again soon, so they do not show that it can't use the secret.
      const runsAgainSoon =
        record?.failure !== undefined && (isRetried(record.failure) || record.failure.code === "internal");
      return record?.state === "failing" && !runsAgainSoon
        ? { text: failureText(record), isTemporary: false }
        : undefined;
    },

    async refresh(consumer) {
      const triggered = sync.trigger(recordIdOf(consumer.id), { actor: "system", requestId: "rotation" });
      await undefinedIfUnavailable(triggered).catch((error: unknown) => {
        if (!(error instanceof Problem)) throw error;
        const target = { operation: "run the sync record", resource: consumer.name };
        throw failure("refused", target, error.message, {
          remedy: "See GET /api/automation/sync/records/{record_id}.",
        });
      });
      return NOTHING_OVERWRITTEN;
    },

    async check(consumer, version) {
      const record = await undefinedIfUnavailable(sync.get(recordIdOf(consumer.id)));
      if (record === undefined) return { holds: "gone" };
      if (record.lastSourceVersion === version && record.state === "inSync") return { holds: "new" };
      return { holds: "old", ...(record.failure && { problem: failureText(record) }) };
    },
  };
}

const failureText = ({ failure }: { failure?: { message: string; remedy: string } | undefined }): string =>
  failure === undefined ? "Its last run failed." : `${failure.message} ${failure.remedy}`;
