/** Display texts for the API's rotation enums. docs/rotation.md describes each of them. */
import type { Schemas } from "../api/client.ts";
import { titleOfId } from "./asset-name.ts";
import { isolated } from "./isolated.ts";
import { textsOfKind } from "./key-credential.ts";

type Rotation = Schemas["Rotation"];

/** Returns the name of the rotated object: an application, a vault secret, or an Azure resource whose key is rotated. */
export function subjectOf({
  appName,
  appId,
  assetId,
  resourceId,
}: Pick<Rotation, "appName" | "appId" | "assetId" | "resourceId">): string {
  if (appName !== null) return isolated(appName);
  if (assetId !== null) return titleOfId(assetId);
  return resourceId === null ? (appId ?? "a secret") : isolated(resourceName(resourceId));
}

/** Returns the name of an Azure resource after the names of its parents, such as `sb-orders/queue/rule`, by its ID. */
export const resourceName = (resourceId: string): string =>
  (resourceId.split(/\/providers\//i).at(-1) ?? resourceId)
    .split("/")
    // After the namespace, types and names alternate: namespace/type/name/type/name.
    .filter((_, index) => index > 1 && index % 2 === 0)
    .join("/");

/**
 * States of a rotation. Between `planned` and an end state, a status names the step in progress. A rotation with
 * `needsAttention` has stopped until a user acts.
 */
const STATUSES = {
  planned: "Planned",
  creating: "Creating the new secret",
  proving: "Testing sign-in with the new secret",
  publishing: "Saving the new secret",
  verifying: "Updating and checking consumers",
  overlapping: "Overlap period: both secrets are valid",
  revoking: "Deleting the old secret",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Canceled",
  rolledBack: "Rolled back",
  needsAttention: "Needs attention",
} as const satisfies Record<Rotation["status"], string>;

/** Statuses with another text if the rotation replaces a key of an Azure resource. */
const KEY_STATUSES: Partial<Record<Rotation["status"], string>> = {
  creating: "Regenerating the key that is not in use",
  proving: "Checking the new key",
  publishing: "Saving the new key",
  overlapping: "Overlap period: both keys are valid",
  revoking: "Ending the use of the old key",
};

/** Statuses with another text if the rotation replaces a login of a database. */
const LOGIN_STATUSES: Partial<Record<Rotation["status"], string>> = {
  creating: "Setting the password of the user that is not in use",
  proving: "Testing sign-in with the new password",
  publishing: "Saving the new login",
  overlapping: "Overlap period: both logins are valid",
  revoking: "Ending the use of the old password",
};

/** Returns the text of a rotation's status. */
export const statusTextOf = ({ status, keyKind }: Pick<Rotation, "status" | "keyKind">): string =>
  textsOfKind(keyKind, KEY_STATUSES, LOGIN_STATUSES)?.[status] ?? STATUSES[status];

/** Statuses in which a rotation has ended, so that it no longer changes. */
export const FINAL_STATUSES: Rotation["status"][] = ["completed", "failed", "cancelled", "rolledBack"];

/**
 * Steps of a rotation. Only a rollback has `putBack`, `restore` and `removeNew`. `makeRoom` runs only if an
 * expired secret must be deleted first.
 */
const STEPS = {
  makeRoom: "Delete an expired secret",
  create: "Create the new secret",
  prove: "Test sign-in with the new secret",
  publish: "Save the new secret to Key Vault",
  verify: "Update consumers and check that they use the new secret",
  overlap: "Keep both secrets valid for the overlap period",
  revoke: "Delete the old secret",
  putBack: "Save the old secret to Key Vault again",
  restore: "Check that consumers use the old secret again",
  removeNew: "Delete the new secret",
  cleanUp: "Delete the temporary copy of the new secret",
} as const satisfies Record<Rotation["steps"][number]["name"], string>;

/** Steps with another text if the rotation replaces a key of an Azure resource. */
const KEY_STEPS: Partial<Record<Rotation["steps"][number]["name"], string>> = {
  create: "Regenerate the key that is not in use",
  prove: "Check the new key",
  publish: "Save the new key to Key Vault",
  verify: "Update consumers and check that they use the new key",
  overlap: "Keep both keys valid for the overlap period",
  revoke: "Regenerate the old key, if the request asked for it",
  putBack: "Save the old key to Key Vault again",
  restore: "Check that consumers use the old key again",
  removeNew: "Check that nothing uses the new key",
  cleanUp: "Delete the temporary copies of the keys",
};

/** Steps with another text if the rotation replaces a login of a database. */
const LOGIN_STEPS: Partial<Record<Rotation["steps"][number]["name"], string>> = {
  create: "Set the password of the user that is not in use",
  prove: "Test sign-in with the new password",
  publish: "Save the new login to Key Vault",
  verify: "Update consumers and check that they use the new login",
  overlap: "Keep both logins valid for the overlap period",
  revoke: "Give the old user a random password that is stored nowhere",
  putBack: "Save the old login to Key Vault again",
  restore: "Check that consumers use the old login again",
  removeNew: "Check that nothing uses the new login",
  cleanUp: "Delete the temporary copy of the new password",
};

/** Returns the text of a rotation's step. */
export const stepTextOf = (name: Rotation["steps"][number]["name"], { keyKind }: Pick<Rotation, "keyKind">): string =>
  textsOfKind(keyKind, KEY_STEPS, LOGIN_STEPS)?.[name] ?? STEPS[name];

/** The label of the choice where a rotation stores the new secret. */
export const SAVE_TO_MATCHES = "Save the new secret to Key Vault";
/** What happens to the new secret if that choice is off. */
export const HANDOVER = "The new secret is then stored in a separate key vault for handover, where you can collect it.";

/** States of one step. */
export const STEP_STATUSES = {
  waiting: "waiting",
  running: "in progress",
  done: "done",
  failed: "failed",
  skipped: "skipped",
} as const satisfies Record<Rotation["steps"][number]["status"], string>;

/** States of a vault secret that the rotation writes. A rollback leaves a secret that another client has changed since. */
export const TARGET_STATES = {
  planned: "not updated yet",
  writing: "being updated",
  written: "updated",
  restoring: "being restored",
  restored: "restored",
  left: "changed by another user, not restored",
} as const satisfies Record<Rotation["targets"][number]["state"], string>;

/** States of a consumer: the rotation updates it and then checks it. `restoring` to `left` occur only in a rollback. */
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
  unknown: "unknown which secret it uses",
} as const satisfies Record<NonNullable<Rotation["consumers"][number]["holds"]>, string>;

/** Evidence that a vault secret stores the application's secret, from strong to weak. */
export const MATCH_EVIDENCE = {
  tag: "a tag contains the credential's ID",
  contentType: "its content type contains the credential's ID",
  confirmed: "confirmed by a user",
  signIn: "sign-in with its value succeeded",
  rotated: "the last rotation saved the credential here",
  hint: "its value starts with the credential's first characters",
  appIdTag: "a tag contains the application's ID",
  companion: "a secret with a similar name contains the application's ID",
  expiry: "the only secret that expires at the same time as the credential",
  expirySameDay: "expires on the same day as the credential, but so do other secrets",
  createdTogether: "created at the same time as the credential",
  name: "name similar to the application's",
  conflict: "its tag and content type name different credentials",
} as const satisfies Record<Schemas["RotationMatch"]["evidence"][number], string>;

/** Explains the term "match" on pages whose next step tests or confirms a match. */
export const MATCH_MEANING =
  "A match is a key vault secret that may store the client secret. Before the first rotation, test or confirm which one does, so that the rotation saves the new secret there.";
