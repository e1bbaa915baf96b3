import { SIGNATURE } from "../platform/storage/signing.ts";
import type { TypedRow } from "../platform/storage/whole-tables.ts";
import { isOver, type RotationStatus } from "../rotation/rotation.ts";

/** The landed builds for which a store can be prepared, by their commits, newest first. */
export const EARLIER_BUILDS = ["f8ec7568", "3fd3c8ae"] as const;
export type EarlierBuild = (typeof EARLIER_BUILDS)[number];

/**
 * Rows that an earlier build can read, but whose new content it ignores, and drops when it writes the row. To add one, name the
 * newest build that lacks the content in `upTo`; all builds before it lack it too.
 */
interface Loss {
  /** Table whose rows are searched. */
  table: string;
  upTo: EarlierBuild;
  /** Returns whether a row has such content. */
  isIn: (columns: TypedRow["columns"]) => boolean;
  /** Returns the line of the report, if `count` rows have such content. */
  line: (count: number) => string;
}

/** Tests of a row's stored columns. A column whose name ends with `_json` has a member as JSON text. */
const has =
  (name: string) =>
  (columns: TypedRow["columns"]): boolean =>
    columns[name] !== undefined;

const contains = (name: string, text: string) => (columns: TypedRow["columns"]) =>
  String(columns[name] ?? "").includes(text);

const LOSSES: readonly Loss[] = [
  {
    table: "Users",
    upTo: "f8ec7568",
    isIn: has(SIGNATURE),
    line: (count) =>
      `Signed rows of users: ${count}. Rows of users, single sign-on, settings, alerts and subscriptions take effect without a valid signature. The next start of this version signs them as they are then.`,
  },
  {
    table: "Users",
    upTo: "3fd3c8ae",
    isIn: has("secondFactor_json"),
    line: (count) => `Users who enrolled a second factor: ${count}. They sign in with the password alone.`,
  },
  {
    table: "Settings",
    upTo: "3fd3c8ae",
    isIn: contains("overrides_json", '"requireSecondFactor"'),
    line: () => "The override of requireSecondFactor has no effect.",
  },
  ...["requireStepUp", "requireApproval"].map(
    (key): Loss => ({
      table: "Settings",
      upTo: "f8ec7568",
      isIn: ({ overrides_json: overrides }) => new RegExp(`"${key}":{[^}]*"value":true`).test(String(overrides)),
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
];

/** Returns what a build loses or does differently: the entries of this build and of newer ones. */
export const lossesOf = (build: EarlierBuild): readonly Loss[] =>
  LOSSES.filter(({ upTo }) => EARLIER_BUILDS.indexOf(build) >= EARLIER_BUILDS.indexOf(upTo));
