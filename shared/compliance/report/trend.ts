import {
  CONTENT_BOTTOM,
  HEADING_COLOR,
  MARGIN,
  MUTED_COLOR,
  PAGE,
  type Sheet,
  STRIPE_COLOR,
} from "../../platform/pdf/sheet.ts";
import type { DayScore } from "../history.ts";
import { TEXT_SIZE } from "./tables.ts";

/**
 * The chart of daily scores in the assessor's report (assessment-pdf.ts).
 */

/** Height of the chart in points. */
const CHART_HEIGHT = 90;
/** Bounds of the chart on the page, in points. */
const LEFT = MARGIN + 24;
const RIGHT = PAGE.width - MARGIN - 30;

/** Draws the daily scores as a line from 0 to 100. */
export function drawTrend(sheet: Sheet, history: readonly DayScore[]): void {
  const [first, last] = [history[0], history.at(-1)];
  if (!first || !last || first === last) {
    const text = "There is one day's score only. The service records the score every hour.";
    sheet.text(text, { size: TEXT_SIZE, color: MUTED_COLOR });
    return;
  }
  if (sheet.y - CHART_HEIGHT - 24 < CONTENT_BOTTOM) sheet.nextPage();
  const { page } = sheet;
  const bottom = sheet.y - CHART_HEIGHT - 4;
  const [from, to] = [Date.parse(first.date), Date.parse(last.date)];
  const x = ({ date }: DayScore) => LEFT + ((Date.parse(date) - from) / (to - from)) * (RIGHT - LEFT);
  const y = ({ score }: Pick<DayScore, "score">) => bottom + (score / 100) * CHART_HEIGHT;
  page.drawRectangle({ x: LEFT, y: bottom, width: RIGHT - LEFT, height: CHART_HEIGHT, color: STRIPE_COLOR });
  for (const score of [0, 50, 100]) {
    const lineY = y({ score });
    page.drawLine({
      start: { x: LEFT, y: lineY },
      end: { x: RIGHT, y: lineY },
      thickness: 0.4,
      color: MUTED_COLOR,
      opacity: 0.4,
    });
    sheet.label(String(score), { x: LEFT - 20, y: lineY - 2.5 });
  }
  for (const [index, day] of history.entries()) {
    const previousDay = history[index - 1];
    if (previousDay)
      page.drawLine({
        start: { x: x(previousDay), y: y(previousDay) },
        end: { x: x(day), y: y(day) },
        thickness: 1.4,
        color: HEADING_COLOR,
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
  sheet.text(text, { size: TEXT_SIZE, color: MUTED_COLOR });
}
