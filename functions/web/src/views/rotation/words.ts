/** What the API's words mean, for lists and one rotation alike: docs/rotation.md says more of each. */
import type { Schemas } from "../../api/client.ts";

type Rotation = Schemas["Rotation"];

export const STATUSES = {
  planned: "planned",
  creating: "making the new secret",
  proving: "signing in with the new secret",
  publishing: "writing the new secret",
  verifying: "seeing that everybody takes it",
  overlapping: "letting both hold",
  revoking: "removing the old secret",
  completed: "completed",
  failed: "failed",
  cancelled: "cancelled",
  rolledBack: "put back",
  needsAttention: "needs a person",
} as const satisfies Record<Rotation["status"], string>;

export const STEPS = {
  makeRoom: "Remove an expired secret",
  create: "Make the new secret",
  prove: "Sign in with it",
  publish: "Write it into the vaults",
  verify: "See that everybody takes it",
  overlap: "Let both hold for a while",
  revoke: "Remove the old secret",
  putBack: "Write the old one back",
  restore: "See that everybody takes it back",
  removeNew: "Remove the new secret",
  cleanUp: "Clean up",
} as const satisfies Record<Rotation["steps"][number]["name"], string>;

/** How far a vault's secret is that gets the new value. */
export const TARGET_STATES = {
  planned: "not written yet",
  writing: "being written",
  written: "written",
  restoring: "being written back",
  restored: "written back",
  left: "changed by somebody else, and left as it is",
} as const satisfies Record<Rotation["targets"][number]["state"], string>;

/** How far somebody who uses the secret is. */
export const CONSUMER_STATES = {
  waiting: "waiting",
  acting: "being told",
  acted: "told",
  verified: "seen to take it",
  unverified: "not seen to take it",
  failed: "failed",
  restoring: "being brought back",
  restored: "brought back",
  left: "not brought back",
} as const satisfies Record<Rotation["consumers"][number]["state"], string>;

/** What somebody who uses the secret was last seen to hold. */
export const HOLDS = {
  new: "holds the new one",
  old: "holds the old one",
  gone: "uses it no more",
  unknown: "nobody can see what it holds",
} as const satisfies Record<NonNullable<Rotation["consumers"][number]["holds"]>, string>;
