import { withoutKeys } from "../platform/storage/entity.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import { EVALUATION_KEY, EVALUATIONS, type EvaluationRecord, Evaluations, STATE, TABLE } from "./layout.ts";
import type { Overview } from "./overview.ts";
import { isLeft } from "./result-totals.ts";

/** An evaluation of everything, as it stands. */
export interface EvaluationStatus {
  evaluationId: string;
  status: "queued" | "running" | "completed" | "partial";
  requestedAt: string;
  requestedBy: string;
  /** Null until it is planned. */
  vaults: number | null;
  vaultsLeft: number;
  failedVaults: string[];
}

export const isOver = (evaluation: EvaluationStatus | undefined): boolean =>
  evaluation?.status === "completed" || evaluation?.status === "partial";

/**
 * Evaluations of everything that were asked for. Each has a row of its own; the newest stands once more in the overview's
 * range, so that the score tells of it without another request.
 */
export interface EvaluationStore {
  begin(record: EvaluationRecord): Promise<void>;
  /** Undefined as the change leaves it as it is. */
  change(evaluationId: string, change: (record: EvaluationRecord) => EvaluationRecord | undefined): Promise<void>;
  /** Undefined for one there never was, or that was removed since. */
  status(evaluationId: string, overview: Overview): Promise<EvaluationStatus | undefined>;
  /** Removes those that were asked for before this instant. */
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
        // Their ids are in the order of their time.
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
 * How far it is, told by the vaults themselves: each says which evaluation last covered it, this one or a later one.
 *
 * @param left - How many of them it has not covered yet; see `isLeft`.
 */
export function evaluationStatus(record: EvaluationRecord, left: number): EvaluationStatus {
  if (record.vaults === undefined) return queued(record);
  const { evaluationId, requestedAt, requestedBy, failedVaults } = record;
  const status = left > 0 ? "running" : failedVaults.length > 0 ? "partial" : "completed";
  return { evaluationId, status, requestedAt, requestedBy, vaults: record.vaults, vaultsLeft: left, failedVaults };
}
