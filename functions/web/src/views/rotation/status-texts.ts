/** Display texts for the API's rotation enums. docs/rotation.md describes each of them. */
import type { Schemas } from "../../api/client.ts";

type Rotation = Schemas["Rotation"];

export const STATUSES = {
  planned: "Planned",
  creating: "Creating the new secret",
  proving: "Testing sign-in with the new secret",
  publishing: "Writing the new secret",
  verifying: "Verifying consumers",
  overlapping: "Overlap period",
  revoking: "Deleting the old secret",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Canceled",
  rolledBack: "Rolled back",
  needsAttention: "Needs attention",
} as const satisfies Record<Rotation["status"], string>;

export const STEPS = {
  makeRoom: "Delete an expired secret",
  create: "Create the new secret",
  prove: "Test sign-in with the new secret",
  publish: "Write the new secret to the vaults",
  verify: "Verify that consumers use the new secret",
  overlap: "Keep both secrets valid for the overlap period",
  revoke: "Delete the old secret",
  putBack: "Write the old secret back",
  restore: "Verify that consumers use the old secret",
  removeNew: "Delete the new secret",
  cleanUp: "Clean up",
} as const satisfies Record<Rotation["steps"][number]["name"], string>;

export const STEP_STATUSES = {
  waiting: "waiting",
  running: "in progress",
  done: "done",
  failed: "failed",
  skipped: "skipped",
} as const satisfies Record<Rotation["steps"][number]["status"], string>;

/** States of a vault secret that the rotation writes. */
export const TARGET_STATES = {
  planned: "not written yet",
  writing: "being written",
  written: "written",
  restoring: "being restored",
  restored: "restored",
  left: "changed by another user, not restored",
} as const satisfies Record<Rotation["targets"][number]["state"], string>;

/** States of a consumer. */
export const CONSUMER_STATES = {
  waiting: "waiting",
  acting: "being updated",
  acted: "updated",
  verified: "verified",
  unverified: "not verified",
  failed: "failed",
  restoring: "being rolled back",
  restored: "rolled back",
  left: "not rolled back",
} as const satisfies Record<Rotation["consumers"][number]["state"], string>;

/** The secret that a consumer used at the last check. */
export const VERIFICATION_RESULTS = {
  new: "uses the new secret",
  old: "uses the old secret",
  gone: "no longer uses the secret",
  unknown: "can't be observed",
} as const satisfies Record<NonNullable<Rotation["consumers"][number]["holds"]>, string>;
