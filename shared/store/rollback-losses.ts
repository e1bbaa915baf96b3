import type { TypedRow } from "../platform/storage/whole-tables.ts";

/** The landed builds for which a store can be prepared, by their commits. */
export type EarlierBuild = "8bbd57d7" | "6c262fe";

/** Rows that an earlier build can read, but whose new content it ignores, and drops when it writes the row. */
interface Loss {
  table: string;
  /** Absent: both builds. */
  build?: EarlierBuild;
  isIn: (columns: TypedRow["columns"]) => boolean;
  line: (count: number) => string;
}

const has =
  (...names: string[]) =>
  (columns: TypedRow["columns"]): boolean =>
    names.some((name) => columns[name] !== undefined);

const contains = (name: string, text: string) => (columns: TypedRow["columns"]) =>
  String(columns[name] ?? "").includes(text);

/** What an earlier build loses or does differently. */
export const LOSSES: readonly Loss[] = [
  {
    table: "AlertStates",
    isIn: (columns) => has("restoredAt")(columns) && !has("caughtUpAt")(columns),
    line: () =>
      "The store was restored, and no full scan has ended since: alerts that were sent after the copy are sent again.",
  },
  {
    table: "UnreadableRows",
    isIn: has("auditId"),
    line: (count) => `Unreadable rows: ${count}. Lists that contain one fail.`,
  },
  {
    table: "Users",
    isIn: has("unusedPasswordSince"),
    line: (count) => `Passwords that were never used: ${count}. They do not expire.`,
  },
  {
    table: "Users",
    isIn: contains("sessions_json", '"provider"'),
    line: (count) => `Users who signed in with SSO: ${count}. A sign-out does not end their session at the provider.`,
  },
  {
    table: "Users",
    isIn: has("secondFactor_json"),
    line: (count) => `Users who enrolled a second factor: ${count}. They sign in with the password alone.`,
  },
  {
    table: "Sso",
    isIn: has("samlLogoutUrl"),
    line: () => "The SAML logout URL is dropped when the SSO configuration is next saved.",
  },
  ...["requirePasswordChange", "unusedPasswordDays", "requireSecondFactor"].map((key) => ({
    table: "Settings",
    isIn: contains("overrides_json", `"${key}"`),
    line: () => `The override of ${key} has no effect.`,
  })),
  {
    table: "RotationMatches",
    isIn: has("rejected_json"),
    line: (count) => `Places that users rejected: ${count}. They count as possible places of the secret again.`,
  },
  {
    table: "RotationMatches",
    build: "6c262fe",
    isIn: has("confirmed_json", "rotated_json", "verified_json"),
    line: (count) =>
      `Places of client secrets: ${count}. Rotations write each one whose value signs in, without confirmation.`,
  },
  {
    table: "RotationPolicies",
    build: "6c262fe",
    isIn: has("vaultIds_json"),
    line: (count) => `Policies that name key vaults: ${count}. They forget the vaults' resource ids.`,
  },
  {
    table: "Sync",
    build: "6c262fe",
    isIn: has("sourceIdentity_json", "targetIdentity_json"),
    line: (count) => `Sync records that remember their key vaults: ${count}. They forget the vaults' resource ids.`,
  },
];
