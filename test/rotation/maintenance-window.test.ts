import { expect, test } from "vitest";
import { closedUntil, type MaintenanceWindow, WEEKDAYS } from "../../shared/rotation/maintenance-window.ts";

/** Tests of the times at which a maintenance window opens and closes, also when the clocks of its time zone change. */

const MINUTE = 60_000;
const window = (days: string, from: string, to: string, timeZone = "Europe/Berlin") =>
  ({ days: days.split(" "), from, to, timeZone }) as MaintenanceWindow;

/** Returns the times within some days at which the window opens and closes, to the minute, as `day hour:minute` in UTC. */
function changesOf(of: MaintenanceWindow, from: string, days: number): string[] {
  const changes: string[] = [];
  const start = Date.parse(from);
  let wasOpen = false;
  for (let time = start; time < start + days * 1440 * MINUTE; time += MINUTE) {
    const isOpen = closedUntil(of, new Date(time)) === undefined;
    if (isOpen !== wasOpen) changes.push(new Date(time).toISOString().slice(5, 16));
    wasOpen = isOpen;
  }
  return changes;
}

test.each<[what: string, of: MaintenanceWindow, from: string, changes: string[]]>([
  // 2026-11-28 is a Saturday. Berlin is one hour ahead of UTC in winter.
  ["within a day", window("saturday", "12:00", "13:30"), "2026-11-28", ["11-28T11:00", "11-28T12:30"]],
  ["over midnight", window("saturday", "22:00", "04:00"), "2026-11-28", ["11-28T21:00", "11-29T03:00"]],
  ["of a whole day", window("sunday", "00:00", "00:00", "UTC"), "2026-11-28", ["11-29T00:00", "11-30T00:00"]],
  [
    "on two days, in a time zone with a quarter of an hour",
    window("saturday sunday", "01:00", "02:00", "Asia/Kathmandu"),
    "2026-11-28",
    ["11-28T19:15", "11-28T20:15"],
  ],
  [
    "over midnight in the night in which clocks are set forward, with an hour less",
    window("saturday", "22:00", "04:00"),
    "2027-03-27",
    ["03-27T21:00", "03-28T02:00"],
  ],
  [
    "from a time that does not exist, when the clocks pass it",
    window("sunday", "02:30", "05:00"),
    "2027-03-27",
    ["03-28T01:00", "03-28T03:00"],
  ],
  ["in the hour that does not exist", window("sunday", "02:00", "03:00"), "2027-03-27", []],
  [
    "over midnight in the night in which clocks are set back, with an hour more",
    window("saturday", "22:00", "04:00"),
    "2027-10-30",
    ["10-30T20:00", "10-31T03:00"],
  ],
  [
    "in the hour that occurs twice, both times",
    window("sunday", "02:00", "03:00"),
    "2027-10-30",
    ["10-31T00:00", "10-31T02:00"],
  ],
  [
    "in a part of the hour that occurs twice, two times",
    window("sunday", "01:15", "02:15"),
    "2027-10-30",
    ["10-30T23:15", "10-31T00:15", "10-31T01:00", "10-31T01:15"],
  ],
])("a window %s is open at the right times", (_, of, from, changes) => {
  expect(changesOf(of, `${from}T00:00:00Z`, 3)).toEqual(changes);
});

test.each<[what: string, of: MaintenanceWindow, at: string, opens: string | undefined]>([
  ["is open", window("saturday", "12:00", "13:30"), "2026-11-28T11:00:59Z", undefined],
  ["opens today", window("saturday", "12:07", "13:30"), "2026-11-28T03:00:30Z", "2026-11-28T11:07:00Z"],
  ["closed today", window("saturday", "12:00", "13:30"), "2026-11-28T12:30:00Z", "2026-12-05T11:00:00Z"],
  [
    "is skipped in a night without its hour",
    window("sunday", "02:00", "03:00"),
    "2027-03-27T12:00:00Z",
    "2027-04-04T00:00:00Z",
  ],
  [
    "opens when the clocks pass its time",
    window("sunday", "02:30", "05:00"),
    "2027-03-28T00:59:00Z",
    "2027-03-28T01:00:00Z",
  ],
])("the next opening of a window that %s", (_, of, at, opens) => {
  expect(closedUntil(of, new Date(at))?.getTime()).toBe(opens && Date.parse(opens));
});

test("without a window, nothing waits, and a window on all days is closed only between its times", () => {
  expect(closedUntil(undefined, new Date())).toBeUndefined();
  const daily = { days: [...WEEKDAYS], from: "10:00", to: "09:00", timeZone: "UTC" };
  expect(closedUntil(daily, new Date("2026-11-28T09:30:00Z"))).toEqual(new Date("2026-11-28T10:00:00Z"));
  expect(closedUntil(daily, new Date("2026-11-28T08:59:59Z"))).toBeUndefined();
});
