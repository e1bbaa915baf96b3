import { SIGNATURE } from "../platform/storage/signing.ts";
import type { TypedRow } from "../platform/storage/whole-tables.ts";

/** The earlier builds for which a store can be prepared, by their commits, newest first. */
export const EARLIER_BUILDS = ["b545d8e2", "7af1c37d", "fc16f64b", "6da79ba2", "f8ec7568"] as const;
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

const LOSSES: readonly Loss[] = [
  {
    table: "KeyRotations",
    upTo: "b545d8e2",
    isIn: ({ status, endedAt }) => status !== undefined && endedAt === undefined,
    line: (count) =>
      `Rotations of vault keys that have not ended: ${count}. This build doesn't continue them. Keys keep their versions.`,
  },
  {
    table: "CertificateRenewals",
    upTo: "b545d8e2",
    isIn: ({ runId, assetId, endedAt }) => runId !== undefined && assetId !== undefined && endedAt === undefined,
    line: (count) =>
      `Renewals of certificates that have not ended: ${count}. This build can't continue them, and leaves their DNS records and pending operations. Wait until they have ended first.`,
  },
  {
    table: "Rotations",
    upTo: "b545d8e2",
    isIn: ({ loginId, endedAt }) => loginId !== undefined && endedAt === undefined,
    line: (count) =>
      `Rotations of logins of databases that have not ended: ${count}. This build can't continue them. Finish or cancel them first.`,
  },
  {
    table: "Rotations",
    upTo: "b545d8e2",
    isIn: ({ runId, credentials_json: credentials, endedAt }) =>
      runId !== undefined && credentials !== undefined && endedAt === undefined,
    line: (count) =>
      `Replacements of client secrets that have not ended: ${count}. This build can't continue them. Roll them back first.`,
  },
  {
    table: "Proposals",
    upTo: "b545d8e2",
    isIn: ({ state }) => state === "pending",
    line: (count) => `Proposed changes that wait for a person: ${count}. This build does not show them.`,
  },
  {
    table: "AlertRules",
    upTo: "b545d8e2",
    isIn: ({ alertType }) => alertType === "staleEndpoint",
    line: (count) => `Alert rules of the type staleEndpoint: ${count}. This build can't read them. Delete them first.`,
  },
  {
    table: "AlertRules",
    upTo: "b545d8e2",
    isIn: ({ alertType }) => alertType === "auditStreamFailing",
    line: (count) =>
      `Alert rules of the type auditStreamFailing: ${count}. This build can't read them. Delete them first.`,
  },
  {
    table: "AuditStreams",
    upTo: "b545d8e2",
    isIn: ({ destination }) => destination !== undefined,
    line: (count) => `Audit streams: ${count}. This build sends nothing to them. A later build continues them.`,
  },
  {
    table: "RotationPolicies",
    upTo: "7af1c37d",
    isIn: ({ maintenanceWindow_json: window }) => window !== undefined,
    line: (count) =>
      `Rotation policies with a maintenance window: ${count}. This build rotates at any time, and drops the window if it writes the policy.`,
  },
  {
    table: "Rotations",
    upTo: "7af1c37d",
    isIn: ({ maintenanceWindow_json: window, endedAt }) => window !== undefined && endedAt === undefined,
    line: (count) => `Rotations that wait for a maintenance window: ${count}. This build continues them at any time.`,
  },
  {
    table: "Assets",
    upTo: "fc16f64b",
    isIn: ({ renewal_json: renewal }) => renewal !== undefined,
    line: (count) =>
      `Rows of certificates with a renewal plan: ${count}. Lists by expiry or status, and alerts, don't find these certificates until the reconciliation has run.`,
  },
  {
    table: "AlertRules",
    upTo: "fc16f64b",
    isIn: ({ alertType }) => alertType === "lateRenewal",
    line: (count) => `Alert rules of the type lateRenewal: ${count}. This build can't read them. Delete them first.`,
  },
  {
    table: "Rotations",
    upTo: "fc16f64b",
    isIn: ({ issuer, endedAt }) => issuer === "resourceKey" && endedAt === undefined,
    line: (count) =>
      `Rotations of keys of Azure resources that have not ended: ${count}. This build can't continue them. Finish or cancel them first.`,
  },
  {
    table: "IdempotencyKeys",
    upTo: "6da79ba2",
    isIn: () => true,
    line: (count) => `Idempotency keys: ${count}. A request that is repeated with such a key runs again.`,
  },
  {
    table: "Users",
    upTo: "6da79ba2",
    isIn: ({ exchangedAt }) => exchangedAt !== undefined,
    line: () =>
      "The marker of the first password. If this build writes it, and nobody has signed in, the deployer can set the password again.",
  },
  {
    table: "Users",
    upTo: "f8ec7568",
    isIn: (columns) => columns[SIGNATURE] !== undefined,
    line: (count) =>
      `Signed rows of users: ${count}. Rows of users, single sign-on, settings, alerts and subscriptions take effect without a valid signature. The next start of this version signs them as they are then.`,
  },
  ...["requireStepUp", "requireApproval"].map(
    (key): Loss => ({
      table: "Settings",
      upTo: "f8ec7568",
      isIn: ({ overrides_json: overrides }) => new RegExp(`"${key}":{[^}]*"value":true`).test(String(overrides)),
      line: () => `The override of ${key} has no effect: no request needs a confirmation.`,
    }),
  ),
];

/** Returns whether a build is `upTo` or older. */
const isUpTo = (build: EarlierBuild, upTo: EarlierBuild): boolean =>
  EARLIER_BUILDS.indexOf(build) >= EARLIER_BUILDS.indexOf(upTo);

/** Returns what a build loses or does differently: the losses of this build and of newer ones. */
export const lossesOf = (build: EarlierBuild): readonly Loss[] => LOSSES.filter(({ upTo }) => isUpTo(build, upTo));

/** Returns whether a build writes audit entries without an authentication code. */
export const writesEntriesWithoutCode = (build: EarlierBuild): boolean => isUpTo(build, "f8ec7568");
