import { CONTENT_BOTTOM, HEADING, MARGIN, MUTED, PAGE, type Sheet, STRIPE } from "../../platform/pdf/sheet.ts";
import type { DayScore } from "../history.ts";
import { TEXT_SIZE } from "./tables.ts";

const HEIGHT = 90;
const LEFT = MARGIN + 24;
const RIGHT = PAGE.width - MARGIN - 30;

/** Draws the daily scores as a line from 0 to 100. */
export function drawTrend(sheet: Sheet, history: readonly DayScore[]): void {
  const [first, last] = [history[0], history.at(-1)];
  if (!first || !last || first === last) {
    const text = "There is one day's score only: it is kept once an hour from now on.";
    sheet.text(text, { size: TEXT_SIZE, color: MUTED });
    return;
  }
  if (sheet.y - HEIGHT - 24 < CONTENT_BOTTOM) sheet.nextPage();
  const { page } = sheet;
  const bottom = sheet.y - HEIGHT - 4;
  const [from, to] = [Date.parse(first.date), Date.parse(last.date)];
  const x = ({ date }: DayScore) => LEFT + ((Date.parse(date) - from) / (to - from)) * (RIGHT - LEFT);
  const y = ({ score }: Pick<DayScore, "score">) => bottom + (score / 100) * HEIGHT;
  page.drawRectangle({ x: LEFT, y: bottom, width: RIGHT - LEFT, height: HEIGHT, color: STRIPE });
  for (const score of [0, 50, 100]) {
    const at = y({ score });
    page.drawLine({ start: { x: LEFT, y: at }, end: { x: RIGHT, y: at }, thickness: 0.4, color: MUTED, opacity: 0.4 });
    sheet.label(String(score), { x: LEFT - 20, y: at - 2.5 });
  }
  for (const [at, day] of history.entries()) {
    const before = history[at - 1];
    if (before)
      page.drawLine({
        start: { x: x(before), y: y(before) },
        end: { x: x(day), y: y(day) },
        thickness: 1.4,
        color: HEADING,
      });
  }
  sheet.label(first.date, { x: LEFT, y: bottom - 11 });
  sheet.label(last.date, { x: RIGHT - 40, y: bottom - 11 });
  sheet.label(last.score.toFixed(1), { x: RIGHT + 4, y: y(last) - 2.5 });
  sheet.y = bottom - 16;
  const scores = history.map(({ score }) => score);
  const lowest = Math.min(...scores).toFixed(1);
  const highest = Math.max(...scores).toFixed(1);
  const text = `${history.length} days: ${first.score.toFixed(1)} at first, ${last.score.toFixed(1)} at last, between ${lowest} and ${highest}.`;
  sheet.text(text, { size: TEXT_SIZE, color: MUTED });
}
