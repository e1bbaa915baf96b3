// Durations. A day is 24 hours; calendars are not considered.

export const SECOND_MS = 1000;
export const MINUTE_MS = 60 * SECOND_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
export const MINUTE_SECONDS = MINUTE_MS / SECOND_MS;
export const HOUR_SECONDS = HOUR_MS / SECOND_MS;
export const DAY_SECONDS = DAY_MS / SECOND_MS;

/** The last second of the year 9999, in Unix seconds. Later times have no ISO 8601 form with a year of four digits. */
export const LATEST_TIME = 253_402_300_799;
