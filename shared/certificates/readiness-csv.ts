import { type Column, createCsv } from "../platform/csv.ts";
import type { ReadinessView } from "./api.ts";

/** The CSV file of the readiness report: one line per certificate. */

type Plain = Exclude<keyof ReadinessView, "authorityCheck" | "renewalsPerYear" | "problems">;
/** A column named like the member it shows. */
const member = (name: Plain): Column<ReadinessView> => ({ label: name, value: (item) => item[name] });

/** Add new columns at the end, because users read columns by position. */
const csv = createCsv<ReadinessView>([
  member("id"),
  member("state"),
  { label: "problems", value: ({ problems }) => problems.map(({ code }) => code).join("; ") },
  member("renewedBy"),
  member("renewalLate"),
  { label: "renewalsPerYearToday", value: ({ renewalsPerYear }) => renewalsPerYear?.today },
  { label: "renewalsPerYearAt100Days", value: ({ renewalsPerYear }) => renewalsPerYear?.at100Days },
  { label: "renewalsPerYearAt47Days", value: ({ renewalsPerYear }) => renewalsPerYear?.at47Days },
  member("publiclyTrusted"),
  member("validityDays"),
  member("orderedMonths"),
  member("expiresOn"),
  member("windowStart"),
  member("windowEnd"),
  member("windowSource"),
  { label: "authorityFailure", value: ({ authorityCheck }) => authorityCheck?.failure },
  member("owner"),
  member("issuer"),
  member("name"),
  member("vaultName"),
  member("subscriptionId"),
  { label: "details", value: ({ problems }) => problems.map(({ detail }) => detail).join(" ") },
]);

export const readinessCsv = (items: readonly ReadinessView[]): string => `${csv.header()}${csv.rows(items)}\r\n`;

/** The header line, for the API description. */
export const READINESS_CSV_EXAMPLE = csv.header();
