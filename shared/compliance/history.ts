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

const totalsOf = ({ score, passed, failed, total }: DayTotals): DayTotals => ({ score, passed, failed, total });

/** Stores a day's score and that of each framework. The last one of a day is kept. */
export async function recordDay(
  tables: Tables,
  at: Date,
  score: Score,
  frameworks: readonly FrameworkResult[],
): Promise<void> {
  const date = dateOf(at);
  const ofFrameworks = Object.fromEntries(frameworks.map((framework) => [framework.id, totalsOf(framework)]));
  await tables.put(DayScores, HISTORY, date, {
    date,
    ...totalsOf(score),
    frameworks: ofFrameworks,
    edition: EDITION,
  });
}

/**
 * Returns the scores of the last `days` days, oldest first, with the current score of today. Days without a score are left out.
 * One request.
 *
 * @param framework - Returns the scores of this framework, since they are recorded.
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
        if (totals) history.push({ date: row.date, ...totalsOf(totals), edition: row.edition ?? null });
      }
    }
  }
  return [...history, { date, ...totalsOf(today), edition: EDITION }];
}
