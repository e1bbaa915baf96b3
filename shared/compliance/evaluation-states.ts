import type { EvaluationRecord } from "./compliance-rows.ts";
import type { OpenedState } from "./vault-state.ts";

/**
 * States of compliance evaluations: pure functions, for evaluator.ts, write-state.ts and evaluation-queue.ts.
 *
 * States of a vault's stored results (`resultsState`). An evaluation reads the results, applies its event, and writes what the
 * event decides. Each write requires that the vault's fence, a row that every write replaces, is unchanged since the results were
 * read. So if another worker has written results in between, the write fails and the evaluation starts again. A late or duplicate
 * evaluation never replaces newer results.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `none`, `removed`, `partial` | evaluated | `complete` | the results of all assets |
 * | `complete` | evaluated, all assets; or the vault's access model has changed | `complete` | the results of all assets |
 * | `complete` | evaluated, some assets, or those that are due; or the vault itself | `complete` | the results of these assets and of the vault |
 * | `complete` | evaluated, but no asset is due and the vault itself is not affected | rejected | |
 * | any, with exemptions of assets | vaultRemoved | `removed` | the vault's row with the exemptions; the results are removed |
 * | `none`, `complete`, `partial`, without exemptions | vaultRemoved | `none` | the results and the row are removed |
 * | `removed`, without exemptions | vaultRemoved | `removed` | |
 *
 * `partial`: a worker crashed between two transactions of a large write, or rows are damaged, lost, or being repaired.
 *
 * States of a requested evaluation of all vaults (`evaluationStatus` in evaluations.ts). `queued` until messages were sent for
 * all vaults, then `running`, and `completed` or `partial` when no vault is left. The end is computed from the vaults' rows when
 * it is read, and a finished evaluation sends no messages again.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `queued`, `running` | sent | `running`; the end if no vault is left | number of vaults |
 * | `queued` | vaultFailed | `queued` | the vault |
 * | `running`, `completed`, `partial` | vaultFailed | `running`; `partial` if no vault is left | the vault |
 * | any, with this vault among the failed ones | vaultFailed | rejected | |
 */
type ResultsState = "none" | "complete" | "partial" | "removed";

export type ResultsEvent =
  | {
      type: "evaluated";
      /** Keys of assets (`assetKey`). `due`: those whose age has changed a result. */
      assets: "all" | "due" | readonly string[];
      /** Whether the vault itself is evaluated even if there are no such assets. */
      vaultItself: boolean;
      /** The vault's access model, on which checks of assets depend. */
      rbac: boolean;
      /** Time of the evaluation, unix milliseconds. */
      now: number;
    }
  | { type: "vaultRemoved" };

/** The next state, and the keys of the assets to evaluate and write. Nothing is evaluated for a removed vault. */
type NextResults =
  | { state: "complete"; evaluate: "all" | readonly string[] }
  | { state: "none" | "removed"; evaluate?: undefined };

type Results = Pick<OpenedState, "row" | "assets" | "isComplete" | "exemptions">;

export function resultsState({ row, isComplete }: Pick<Results, "row" | "isComplete">): ResultsState {
  if (!isComplete) return "partial";
  if (!row) return "none";
  return row.gone ? "removed" : "complete";
}

/** Returns the next state of a vault's results; undefined if the event is rejected. */
export function nextResults(previous: Results, event: ResultsEvent): NextResults | undefined {
  const { row, assets, exemptions } = previous;
  if (event.type === "vaultRemoved") return { state: exemptions.length > 0 || row?.gone ? "removed" : "none" };
  const canUpdate = resultsState(previous) === "complete" && row!.rbac === event.rbac;
  if (event.assets === "all" || !canUpdate) return { state: "complete", evaluate: "all" };
  const evaluate = event.assets === "due" ? assetsDueByAge(assets, event.now) : event.assets;
  return evaluate.length > 0 || event.vaultItself ? { state: "complete", evaluate } : undefined;
}

/** Returns the keys of assets whose age has changed a result. */
const assetsDueByAge = (assets: Results["assets"], now: number): string[] =>
  [...assets].filter(([, { dueAt }]) => dueAt !== undefined && dueAt * 1000 <= now).map(([key]) => key);

type EvaluationEvent = { type: "sent"; vaults: number } | { type: "vaultFailed"; vault: string };

/** Returns a requested evaluation after an event; undefined if the event is rejected. */
export function nextEvaluation(record: EvaluationRecord, event: EvaluationEvent): EvaluationRecord | undefined {
  if (event.type === "sent") return { ...record, vaults: event.vaults };
  const { failedVaults } = record;
  return failedVaults.includes(event.vault) ? undefined : { ...record, failedVaults: [...failedVaults, event.vault] };
}
