import { withoutKeys } from "../platform/storage/entity.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { EVALUATION_KEY, EVALUATIONS, type EvaluationRecord, Evaluations, STATE, TABLE } from "./compliance-rows.ts";
import type { Overview } from "./overview.ts";
import { isLeft } from "./result-totals.ts";

/** The progress of an evaluation of everything. */
export interface EvaluationStatus {
  evaluationId: string;
  status: "queued" | "running" | "completed" | "partial";
  requestedAt: string;
  requestedBy: string;
  /** Null until the evaluation is planned. */
  vaults: number | null;
  vaultsLeft: number;
  failedVaults: string[];
}

export const isOver = (evaluation: EvaluationStatus | undefined): boolean =>
  evaluation?.status === "completed" || evaluation?.status === "partial";

/**
 * Stores requested evaluations of everything, each in its own row. The newest has a copy in the overview's range, so that the
 * score includes its progress without another request.
 */
export interface EvaluationStore {
  begin(record: EvaluationRecord): Promise<void>;
  /** Changes an evaluation. The change returns undefined to leave it unchanged. */
  change(evaluationId: string, change: (record: EvaluationRecord) => EvaluationRecord | undefined): Promise<void>;
  /** Returns undefined for an unknown or removed evaluation. */
  status(evaluationId: string, overview: Overview): Promise<EvaluationStatus | undefined>;
  /** Removes evaluations that were requested before this time. */
  removeOlder(than: Date): Promise<void>;
}

export function createEvaluations({ tables }: { tables: Tables }): EvaluationStore {
  return {
    async begin(record) {
      await tables.put(Evaluations, EVALUATIONS, record.evaluationId, record);
      await tables.put(Evaluations, STATE, EVALUATION_KEY, record);
    },

    async change(evaluationId, change) {
      const rows = [
        [EVALUATIONS, evaluationId],
        [STATE, EVALUATION_KEY],
      ] as const;
      for (const [partitionKey, rowKey] of rows) {
        await tables.modify(Evaluations, partitionKey, rowKey, (row) =>
          row?.evaluationId === evaluationId ? change(withoutKeys(row)) : undefined,
        );
      }
    },

    async status(evaluationId, overview) {
      if (overview.evaluation?.evaluationId === evaluationId)
        return evaluationStatus(overview.evaluation, overview.left);
      const row = isUlid(evaluationId) ? await tables.get(Evaluations, EVALUATIONS, evaluationId) : undefined;
      return row && evaluationStatus(row, overview.vaults.filter((vault) => isLeft(row, vault)).length);
    },

    async removeOlder(than) {
      const before = than.toISOString();
      for await (const rows of tables.pages(Evaluations, { partitionKey: EVALUATIONS, select: ["requestedAt"] })) {
        const old = rows.filter(({ requestedAt }) => requestedAt < before);
        await tables.write(
          TABLE,
          EVALUATIONS,
          old.map(({ rowKey }) => remove(Evaluations, rowKey)),
        );
        // IDs are in the order of their time.
        if (old.length < rows.length) return;
      }
    },
  };
}

export const queued = ({ evaluationId, requestedAt, requestedBy, vaults }: EvaluationRecord): EvaluationStatus => ({
  evaluationId,
  status: "queued",
  requestedAt,
  requestedBy,
  vaults: vaults ?? null,
  vaultsLeft: vaults ?? 0,
  failedVaults: [],
});

/**
 * Returns the progress. Each vault's row contains the evaluation that last covered it, this one or a later one.
 *
 * @param left - Number of vaults not covered yet; see `isLeft`.
 */
export function evaluationStatus(record: EvaluationRecord, left: number): EvaluationStatus {
  if (record.vaults === undefined) return queued(record);
  const { evaluationId, requestedAt, requestedBy, failedVaults } = record;
  const status = left > 0 ? "running" : failedVaults.length > 0 ? "partial" : "completed";
  return { evaluationId, status, requestedAt, requestedBy, vaults: record.vaults, vaultsLeft: left, failedVaults };
}
