import { unlessMissing } from "../../../platform/azure/failure.ts";
import type { GraphApplication } from "../../../platform/azure/graph.ts";
import type { SecretVersion } from "../../../platform/azure/vault-secrets.ts";
import { DAY_MS, SECOND_MS } from "../../../platform/time.ts";
import { auditedEffect } from "../../audited-effect.ts";
import { readHeldCopy, readHeldValue } from "../../held-copies.ts";
import { instantText, signInUnclear } from "../../problems.ts";
import { openVault, placeOf, readEnabledVersion } from "../../publications.ts";
import { clientSecretOf, type Publication, type RotationRecord } from "../../rotation.ts";
import type { StepContext, StepDependencies } from "../../step-context.ts";
import { ContinueLater, NeedsAttention } from "../../step-errors.ts";
import { isCertain, placeKey, type Target } from "../../targets.ts";
import type { ReasonsToKeepOld } from "../issuer.ts";
import { isExpired, MAX_CLOCK_DIFFERENCE_MS } from "./plan.ts";
import { readCreatedSecret } from "./prove.ts";

const RETRY_SECONDS = 60;
/** The old secret is not removed until the last logged sign-in with it is this old. */
const MIN_SIGN_IN_AGE_MS = DAY_MS;

/** Removes the old client secret. */
export async function retireOldSecret(context: StepContext): Promise<void> {
  const { objectId, oldKeyId } = clientSecretOf(context.record);
  const removed = await removeClientSecret(context, oldKeyId, "old", () =>
    context.save(({ revokingSince }) => ({ revokingSince: revokingSince ?? context.now().toISOString() })),
  );
  if (removed === "removed") return;
  // Microsoft Graph can report `absent` although the secret exists.
  if (await hasClientSecret(context.deps, objectId, oldKeyId)) throw new ContinueLater(RETRY_SECONDS);
}

/** Returns whether the directory lists the old secret. */
export async function isOldSecretListed(
  deps: Pick<StepDependencies, "graph">,
  record: RotationRecord,
): Promise<boolean> {
  const { objectId, oldKeyId } = clientSecretOf(record);
  return await hasClientSecret(deps, objectId, oldKeyId);
}

async function hasClientSecret(
  { graph }: Pick<StepDependencies, "graph">,
  objectId: string,
  keyId: string,
): Promise<boolean> {
  const app = await graph.findApplication({ objectId });
  return app?.passwords.some((one) => one.keyId === keyId) ?? false;
}

/** Returns the places that store, or may store, the old secret now. */
export async function findTargets({ deps, record }: StepContext): Promise<Target[]> {
  const { objectId, oldKeyId } = clientSecretOf(record);
  const app = await deps.graph.findApplication({ objectId });
  return app === undefined ? [] : await deps.matches.targetsOf(app, oldKeyId);
}

/** Returns reasons from the directory and from a sign-in to keep the old secret, and the places that store the old secret. */
export async function reasonsToKeepOld(context: StepContext): Promise<ReasonsToKeepOld> {
  const { deps, record } = context;
  const { appId, objectId, oldKeyId } = clientSecretOf(record);
  const app = await deps.graph.findApplication({ objectId });
  if (app === undefined) return { reasons: ["The application is no longer in the directory."], targets: [] };
  const reasons: string[] = [];
  if (!app.passwords.some(({ keyId }) => keyId === record.newKeyId)) {
    reasons.push(`The new secret ${record.newKeyId} is not in the directory.`);
  }
  // Also finds the value in a place if the held copy was deleted.
  const newValue = record.newKeyId === undefined ? undefined : await readCreatedSecret(context, record.newKeyId);
  const signInResult = newValue === undefined ? undefined : (await deps.signIn(appId, newValue)).kind;
  if (signInResult === "unclear") throw signInUnclear(appId);
  if (signInResult !== "accepted") reasons.push("The last sign-in with the new secret was not accepted.");
  // Copies in other places are ignored: an attacker could keep a compromised secret valid by storing it in a vault.
  return { reasons, targets: record.reason === "compromised" ? [] : await deps.matches.targetsOf(app, oldKeyId) };
}

/** Returns reasons from sign-ins in logs to keep the old secret. */
export async function reasonsFromSignIns({ deps: { usage }, record, now }: StepContext): Promise<string[]> {
  const { appId, oldKeyId: keyId } = clientSecretOf(record);
  const lastSignInAt = await usage.lastSignIn({ appId, keyId });
  const isRecent = lastSignInAt !== undefined && now().getTime() - lastSignInAt.getTime() < MIN_SIGN_IN_AGE_MS;
  return [
    ...(isRecent ? [`The old secret ${keyId} signed in at ${instantText(lastSignInAt)}, less than 24 hours ago.`] : []),
    ...(await usage.unreadSignIns()),
  ];
}

/** Which client secret is removed: an expired one, the one being replaced, or one that this rotation created. */
type RemovalKind = "expired" | "old" | "new";

/**
 * Removes a client secret of the application. The only function that does.
 *
 * The record can be older than the directory and the vaults, for example after the tables were restored from a backup. So this
 * function first reads the application's credentials and the places, and removes nothing if it is unclear who uses the secret:
 * a user decides then. Two kinds of secrets are removed without reading the places: a secret that has expired according to the
 * directory, and with `force` the old secret. An interrupted removal of the old secret counts as done if the directory no longer
 * lists that secret.
 *
 * @param beforeRemoval - Called immediately before the request, under the directory lease, to record the intent.
 * @returns `absent` if the directory does not list the secret, which can also happen shortly after its creation.
 * @throws {NeedsAttention} stillInUse if a place stores the secret; lastCredential if no other valid secret would remain;
 * newSecretGone if the secret that replaces the old one does not exist; placeGone, handedOver if it is unclear who uses it.
 * @throws {CloudFailure} if a place or the directory can't be read, or a sign-in with a place's value gives no clear answer.
 */
export async function removeClientSecret(
  context: StepContext,
  keyId: string,
  which: RemovalKind,
  beforeRemoval: () => Promise<void> = async () => {},
): Promise<"removed" | "absent"> {
  const { graph } = context.deps;
  const { objectId } = clientSecretOf(context.record);
  await requireNoLockout(context, keyId, which);
  return await context.withDirectoryLease(async () => {
    await beforeRemoval();
    return await auditedEffect(
      context,
      "rotation.secretRemoved",
      { keyId, which },
      async () => (await unlessMissing(graph.removePassword(objectId, keyId))) ?? "absent",
      (result) => ({ result }),
    );
  });
}

/** Throws as described at `removeClientSecret` if the removal could lock out the application or one of its consumers. */
async function requireNoLockout(context: StepContext, keyId: string, which: RemovalKind): Promise<void> {
  const { deps, record } = context;
  const { objectId, appName } = clientSecretOf(record);
  const app = await deps.graph.findApplication({ objectId });
  if (app === undefined) return;
  const secret = app.passwords.find((one) => one.keyId === keyId);
  // A secret that has expired can't sign in, so its removal causes no lockout.
  if (secret !== undefined && isExpired(secret, context.now())) return;
  // All checks passed before this rotation started the removal, and the directory shows that it is done.
  if (which === "old" && record.revokingSince !== undefined && secret === undefined) return;
  if (!hasOtherValidSecret(context, app, keyId)) {
    throw new NeedsAttention(
      "lastCredential",
      `The client secret ${keyId} was not removed: ${appName} has no other client secret that has not expired.`,
      "Check which client secrets the application has and which one its key vault secrets hold.",
    );
  }
  // The rotation may have been rolled back since the record was written. The places then hold the old secret again.
  if (which === "old" && !app.passwords.some((one) => one.keyId === record.newKeyId)) {
    throw new NeedsAttention(
      "newSecretGone",
      `The client secret ${keyId} was not removed: the secret ${record.newKeyId} that replaces it is not in the directory.`,
      "Check in the audit log of the directory who removed it.",
    );
  }
  // With `force`, a user has seen which places store the secret.
  if (which === "old" && record.finish?.force) return;
  await requireNotInPlaces(context, app, keyId);
  if (which === "new") await requireNotElsewhere(context, app, keyId);
}

/**
 * @throws {NeedsAttention} stillInUse if the current version of a place stores the client secret; placeGone if a place has no
 * version that can be used; handedOver if the secret was stored in the handover vault, unless a user cancelled the rotation.
 */
export async function requireNotInPlaces(context: StepContext, app: GraphApplication, keyId: string): Promise<void> {
  for (const publication of context.record.publications) {
    if (publication.kind === "handover" && (await wasHandedOver(context, publication, keyId))) {
      throw new NeedsAttention(
        "handedOver",
        `The client secret ${keyId} was not removed: it was, or may have been, stored in ${placeOf(publication)}, and the service can't see who took it from there.`,
        "Remove the secret in the directory if nothing uses it.",
      );
    }
    const current = await readEnabledVersion(context, publication);
    if (current === undefined && publication.kind !== "handover") {
      throw new NeedsAttention(
        "placeGone",
        `The client secret ${keyId} was not removed: ${placeOf(publication)} was deleted or disabled, so the service can't see which secret its consumers use.`,
        "Remove the secret in the directory if nothing uses it.",
      );
    }
    if (current === undefined || !(await storesSecret(context, app, current, keyId))) continue;
    throw new NeedsAttention(
      "stillInUse",
      `The client secret ${keyId} was not removed: ${placeOf(publication)} holds it, in version ${current.version}.`,
      "Write a client secret that works to that key vault secret, or finish the rotation.",
    );
  }
}

/**
 * @throws {NeedsAttention} stillInUse if a vault secret that the rotation does not write certainly stores the client secret.
 * @throws {CloudFailure} if it is unclear whether such a vault secret exists.
 */
async function requireNotElsewhere(context: StepContext, app: GraphApplication, keyId: string): Promise<void> {
  const { deps, record } = context;
  const planned = new Set(record.publications.map(placeKey));
  const others = (await deps.matches.targetsOf(app, keyId)).filter((place) => !planned.has(placeKey(place)));
  const target = others.find(isCertain);
  const unanswered = others.find((one) => one.unanswered !== undefined)?.unanswered;
  if (target === undefined && unanswered !== undefined) throw unanswered;
  if (target === undefined) return;
  throw new NeedsAttention(
    "stillInUse",
    `The client secret ${keyId} was not removed: ${placeOf(target)} holds it.`,
    "Write a client secret that works to that key vault secret, or remove the copy.",
  );
}

/**
 * Returns whether a user may have taken the secret from the handover vault: a version there has it, or the handover secret does
 * not exist, so that it may have been deleted. A user who cancels the rotation has decided that nobody uses it.
 */
async function wasHandedOver(context: StepContext, publication: Publication, keyId: string): Promise<boolean> {
  if (context.record.cancel !== undefined) return false;
  const versions = await openVault(context, publication).versions(publication.secretName);
  return versions.length === 0 || versions.some(({ tags }) => tags["entra-key-id"] === keyId);
}

/** Returns whether another client secret is certainly valid now, allowing for clock differences. */
const hasOtherValidSecret = (context: StepContext, app: GraphApplication, keyId: string): boolean =>
  app.passwords.some(
    (one) =>
      one.keyId !== keyId &&
      (one.expiresOn === undefined || one.expiresOn > (context.now().getTime() + MAX_CLOCK_DIFFERENCE_MS) / SECOND_MS),
  );

/**
 * Returns whether a version stores a client secret.
 *
 * If a held copy of the secret exists, its value decides. Otherwise a version does not store the secret if its value does not
 * start with the secret's hint, or is this rotation's new value. Any other version stores the secret if the tag `entra-key-id`
 * names it, or if the hint is known and the value signs in.
 */
async function storesSecret(
  context: StepContext,
  app: GraphApplication,
  version: SecretVersion & { value: string },
  keyId: string,
): Promise<boolean> {
  const heldValue = await readHeldValue(context, keyId);
  if (heldValue !== undefined) return version.value === heldValue;
  const isNewValue = keyId !== context.record.newKeyId && version.value === (await readHeldCopy(context));
  const hint = app.passwords.find((one) => one.keyId === keyId)?.hint;
  if (isNewValue || (hint !== undefined && !version.value.startsWith(hint))) return false;
  if (version.tags["entra-key-id"] === keyId) return true;
  if (hint === undefined) return false;
  const { kind } = await context.deps.signIn(app.appId, version.value);
  if (kind === "unclear") throw signInUnclear(app.appId);
  return kind === "accepted";
}
