import type { Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { type DayScore, DayScores, HISTORY } from "./layout.ts";
import type { Score } from "./score.ts";

const dateOf = (instant: Date): string => instant.toISOString().slice(0, 10);

/** Keeps a day's score; the last of a day stands. */
export async function recordDay(tables: Tables, at: Date, { score, passed, failed, total }: Score): Promise<void> {
  const date = dateOf(at);
  await tables.put(DayScores, HISTORY, date, { date, score, passed, failed, total });
}

/** The scores of the last `days` days, oldest first, today's as it is now; days without one are left out. */
export async function readHistory(tables: Tables, days: number, now: Date, today: Score): Promise<DayScore[]> {
  const from = dateOf(new Date(now.getTime() - (days - 1) * DAY_MS));
  const date = dateOf(now);
  const history: DayScore[] = [];
  if (from < date) {
    for await (const rows of tables.pages(DayScores, { partitionKey: HISTORY, from, before: date })) {
      history.push(...rows.map(({ date, score, passed, failed, total }) => ({ date, score, passed, failed, total })));
    }
  }
  const { score, passed, failed, total } = today;
  return [...history, { date, score, passed, failed, total }];
}
