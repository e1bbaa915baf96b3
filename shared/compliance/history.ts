/** Daily scores, for the trend. A timer records the current score once an hour; the last record of a day stays. */
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { EDITION } from "./checks/all.ts";
import { DayScores, type DayTotals, HISTORY } from "./compliance-rows.ts";
import type { FrameworkId } from "./controls.ts";
import type { FrameworkResult } from "./frameworks.ts";
import type { Score } from "./score.ts";

const dateOf = (instant: Date): string => instant.toISOString().slice(0, 10);

/** The score of a day. */
export interface DayScore extends DayTotals {
  date: string;
  /** Version of the checks. If it changes, the score may change without a change of the resources. */
  edition: number | null;
}

const dayTotalsOf = ({ score, passed, failed, total }: DayTotals): DayTotals => ({ score, passed, failed, total });

/** Stores the score of a day and that of each framework. Overwrites an earlier score of the same day. */
export async function recordDayScore(
  tables: Tables,
  instant: Date,
  score: Score,
  frameworks: readonly FrameworkResult[],
): Promise<void> {
  const date = dateOf(instant);
  const frameworkTotals = Object.fromEntries(frameworks.map((framework) => [framework.id, dayTotalsOf(framework)]));
  await tables.put(DayScores, HISTORY, date, {
    date,
    ...dayTotalsOf(score),
    frameworks: frameworkTotals,
    edition: EDITION,
  });
}

/**
 * Returns the scores of the last `days` days, oldest first. Today's entry is `today`, the current score. Days without a stored
 * score are left out. One request.
 *
 * @param framework - If given, the scores of this framework are returned. Earlier versions did not store them.
 */
export async function readHistory(
  tables: Tables,
  days: number,
  now: Date,
  today: DayTotals,
  framework?: FrameworkId,
): Promise<DayScore[]> {
  const from = dateOf(new Date(now.getTime() - (days - 1) * DAY_MS));
  const date = dateOf(now);
  const history: DayScore[] = [];
  if (from < date) {
    for await (const rows of tables.pages(DayScores, { partitionKey: HISTORY, from, before: date })) {
      for (const row of rows) {
        const totals = framework === undefined ? row : row.frameworks?.[framework];
        if (totals) history.push({ date: row.date, ...dayTotalsOf(totals), edition: row.edition ?? null });
      }
    }
  }
  return [...history, { date, ...dayTotalsOf(today), edition: EDITION }];
}
