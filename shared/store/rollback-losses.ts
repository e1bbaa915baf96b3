import type { TypedRow } from "../platform/storage/whole-tables.ts";
import { isOver, type RotationStatus } from "../rotation/rotation.ts";

/** The landed builds for which a store can be prepared, by their commits, newest first. */
export const EARLIER_BUILDS = ["3fd3c8ae", "8bbd57d7"] as const;
export type EarlierBuild = (typeof EARLIER_BUILDS)[number];

/**
 * Rows that an earlier build can read, but whose new content it ignores, and drops when it writes the row. To add one, name the
 * newest build that lacks the content in `upTo`; all builds before it lack it too.
 */
interface Loss {
  table: string;
  upTo: EarlierBuild;
  isIn: (columns: TypedRow["columns"]) => boolean;
  line: (count: number) => string;
}

const has =
  (...names: string[]) =>
  (columns: TypedRow["columns"]): boolean =>
    names.some((name) => columns[name] !== undefined);

const contains = (name: string, text: string) => (columns: TypedRow["columns"]) =>
  String(columns[name] ?? "").includes(text);

const LOSSES: readonly Loss[] = [
  {
    table: "AlertStates",
    upTo: "8bbd57d7",
    isIn: (columns) => has("restoredAt")(columns) && !has("caughtUpAt")(columns),
    line: () =>
      "The store was restored, and no full scan has ended since: alerts that were sent after the copy are sent again.",
  },
  {
    table: "UnreadableRows",
    upTo: "8bbd57d7",
    isIn: has("auditId"),
    line: (count) => `Unreadable rows: ${count}. Lists that contain one fail.`,
  },
  {
    table: "Users",
    upTo: "8bbd57d7",
    isIn: has("unusedPasswordSince"),
    line: (count) => `Passwords that were never used: ${count}. They do not expire.`,
  },
  {
    table: "Users",
    upTo: "8bbd57d7",
    isIn: contains("sessions_json", '"provider"'),
    line: (count) => `Users who signed in with SSO: ${count}. A sign-out does not end their session at the provider.`,
  },
  {
    table: "Users",
    upTo: "3fd3c8ae",
    isIn: has("secondFactor_json"),
    line: (count) => `Users who enrolled a second factor: ${count}. They sign in with the password alone.`,
  },
  {
    table: "Sso",
    upTo: "8bbd57d7",
    isIn: has("samlLogoutUrl"),
    line: () => "The SAML logout URL is dropped when the SSO configuration is next saved.",
  },
  ...["requirePasswordChange", "unusedPasswordDays"].map(
    (key): Loss => ({
      table: "Settings",
      upTo: "8bbd57d7",
      isIn: contains("overrides_json", `"${key}"`),
      line: () => `The override of ${key} has no effect.`,
    }),
  ),
  {
    table: "Settings",
    upTo: "3fd3c8ae",
    isIn: contains("overrides_json", '"requireSecondFactor"'),
    line: () => "The override of requireSecondFactor has no effect.",
  },
  ...["requireStepUp", "requireApproval"].map(
    (key): Loss => ({
      table: "Settings",
      upTo: "3fd3c8ae",
      isIn: contains("overrides_json", `"${key}":{"value":true`),
      line: () => `The override of ${key} has no effect: no request needs a confirmation.`,
    }),
  ),
  {
    table: "Rotations",
    upTo: "3fd3c8ae",
    isIn: (columns) =>
      typeof columns.status === "string" &&
      !isOver(columns.status as RotationStatus) &&
      contains("consumers_json", '"unclearBefore":true')(columns),
    line: (count) =>
      `Rotations in progress with consumers that may not have worked before: ${count}. They roll back if such a consumer does not take the new value. Complete or cancel them first.`,
  },
  {
    table: "RotationMatches",
    upTo: "8bbd57d7",
    isIn: has("rejected_json"),
    line: (count) => `Places that users rejected: ${count}. They count as possible places of the secret again.`,
  },
];

/** Returns what a build loses or does differently. */
export const lossesOf = (build: EarlierBuild): readonly Loss[] =>
  LOSSES.filter(({ upTo }) => EARLIER_BUILDS.indexOf(build) >= EARLIER_BUILDS.indexOf(upTo));
