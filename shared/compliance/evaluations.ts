import { withoutKeys } from "../platform/storage/entity.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { EVALUATION_KEY, EVALUATIONS, type EvaluationRecord, Evaluations, STATE, TABLE } from "./compliance-rows.ts";
import type { Overview } from "./overview.ts";
import { isStillToEvaluate } from "./result-totals.ts";

/**
 * The evaluations of all vaults that users requested, and their progress.
 */

/** The progress of a requested evaluation of all vaults. */
export interface EvaluationStatus {
  evaluationId: string;
  status: "queued" | "running" | "completed" | "partial";
  requestedAt: string;
  requestedBy: string;
  /** Number of vaults. Null until a message was sent for each vault. */
  vaults: number | null;
  vaultsLeft: number;
  failedVaults: string[];
}

/** Returns whether no vault is left to evaluate. False for an unknown evaluation. */
export const hasEnded = (evaluation: EvaluationStatus | undefined): boolean =>
  evaluation?.status === "completed" || evaluation?.status === "partial";

/**
 * Stores requested evaluations of all vaults, each in its own row. The newest has a copy next to the totals, so that a reader
 * of the score gets its progress in the same request.
 */
export interface EvaluationStore {
  /** Stores a requested evaluation, and its copy as the newest one. */
  store(record: EvaluationRecord): Promise<void>;
  /** Changes an evaluation's row and its copy. `compute` returns the new record, or undefined to leave it unchanged. */
  change(evaluationId: string, compute: (record: EvaluationRecord) => EvaluationRecord | undefined): Promise<void>;
  /** Returns the progress of an evaluation. Undefined for an unknown or removed evaluation. */
  status(evaluationId: string, overview: Overview): Promise<EvaluationStatus | undefined>;
  /** Removes evaluations that were requested before this time. */
  removeOlderThan(instant: Date): Promise<void>;
}

/** Creates the store of requested evaluations. */
export function createEvaluations({ tables }: { tables: Tables }): EvaluationStore {
  return {
    async store(record) {
      await tables.put(Evaluations, EVALUATIONS, record.evaluationId, record);
      await tables.put(Evaluations, STATE, EVALUATION_KEY, record);
    },

    async change(evaluationId, compute) {
      const rows = [
        [EVALUATIONS, evaluationId],
        [STATE, EVALUATION_KEY],
      ] as const;
      for (const [partitionKey, rowKey] of rows) {
        await tables.modify(Evaluations, partitionKey, rowKey, (row) =>
          row?.evaluationId === evaluationId ? compute(withoutKeys(row)) : undefined,
        );
      }
    },

    async status(evaluationId, overview) {
      if (overview.evaluation?.evaluationId === evaluationId)
        return evaluationStatus(overview.evaluation, overview.vaultsLeft);
      const row = isUlid(evaluationId) ? await tables.get(Evaluations, EVALUATIONS, evaluationId) : undefined;
      return row && evaluationStatus(row, overview.vaults.filter((vault) => isStillToEvaluate(row, vault)).length);
    },

    async removeOlderThan(instant) {
      const oldestKept = instant.toISOString();
      for await (const rows of tables.pages(Evaluations, {
        partitionKey: EVALUATIONS,
        select: ["requestedAt"],
        onCorrupt: "leaveOut",
      })) {
        const expired = rows.filter(({ requestedAt }) => requestedAt < oldestKept);
        await tables.write(
          TABLE,
          EVALUATIONS,
          expired.map(({ rowKey }) => remove(Evaluations, rowKey)),
        );
        // IDs are ULIDs, which sort by time. So all later rows are newer.
        if (expired.length < rows.length) return;
      }
    },
  };
}

/** Returns the progress of an evaluation whose messages were not sent yet. */
export const queuedStatus = ({
  evaluationId,
  requestedAt,
  requestedBy,
  vaults,
}: EvaluationRecord): EvaluationStatus => ({
  evaluationId,
  status: "queued",
  requestedAt,
  requestedBy,
  vaults: vaults ?? null,
  vaultsLeft: vaults ?? 0,
  failedVaults: [],
});

/**
 * Returns the progress. Each vault's row has the ID of the last requested evaluation that evaluated it.
 *
 * @param vaultsLeft - Number of vaults not covered yet; see `isStillToEvaluate`.
 */
export function evaluationStatus(record: EvaluationRecord, vaultsLeft: number): EvaluationStatus {
  if (record.vaults === undefined) return queuedStatus(record);
  const { evaluationId, requestedAt, requestedBy, failedVaults } = record;
  const status = vaultsLeft > 0 ? "running" : failedVaults.length > 0 ? "partial" : "completed";
  return {
    evaluationId,
    status,
    requestedAt,
    requestedBy,
    vaults: record.vaults,
    vaultsLeft: vaultsLeft,
    failedVaults,
  };
}
