import { readHeldValue } from "../../held-copies.ts";
import { readConnectionString, rewriteConnectionString } from "../../resource-keys/connection-strings.ts";
import { isProvenByRequest } from "../../resource-keys/kinds.ts";
import { findHeldKey } from "../../resource-keys/matching.ts";
import { type RotationRecord, resourceKeyOf } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, RollBack } from "../../step-errors.ts";
import type { TestResult } from "../issuer.ts";
import { kindOf, listKeys } from "./create.ts";

/** Number of proofs in a row before a place is written. */
const REQUIRED_PROOFS = 2;
const INTERVAL_SECONDS = 5;
/** Most resources accept a new key within seconds, some after minutes. After the first minute, the service tries less often. */
const FREQUENT_TRIES = 12;
const LATE_INTERVAL_SECONDS = 60;
/** 15 minutes after the first minute. */
const MAX_TRIES = FREQUENT_TRIES + 15;

/**
 * Proves the new key once: the resource lists the value that this rotation holds and, for kinds with a request, accepts a request
 * with it. If the request never gave a clear answer, such as behind a firewall, the list alone proves the key. After a rejection,
 * only an accepted request proves the key: an outage must not end the wait for a resource that does not know the key yet.
 *
 * @throws {ContinueLater} until it is proven.
 */
export async function proveKey(context: StepContext): Promise<void> {
  const { newKeyId = "", proof } = context.record;
  const value = await readKey(context, newKeyId);
  const keys = await listKeys(context);
  const { resourceId, oldKeyId } = resourceKeyOf(context.record);
  const kind = kindOf(context.record);
  const listed = keys.find(({ name }) => name === newKeyId);
  const isListed = listed !== undefined && value === listed.value;
  const isTested = isListed && isProvenByRequest(kind);
  const control = keys.find(({ name }) => name === oldKeyId);
  const test = isTested ? await context.deps.keys.test(resourceId, kind, listed, control) : "unclear";
  const isRejected = test === "rejected" || (test === "unclear" && proof?.rejected === true);
  const isAccepted = isListed && !isRejected;
  const note = `The ${kind.title} gave no clear answer to a request with the new value of ${newKeyId}. Only the list of its keys proves the value.`;
  const lastAt = context.now().toISOString();
  const { accepted: earlier = 0, tries: earlierTries = 0, startedAt = lastAt } = proof ?? {};
  const [accepted, tries] = [isAccepted ? earlier + 1 : 0, earlierTries + 1];
  await context.save(({ notes }) => ({
    proof: { accepted, tries, startedAt, lastAt, ...(isRejected && { rejected: true }) },
    ...(isTested && isAccepted && test === "unclear" && !notes.includes(note) && { notes: [...notes, note] }),
  }));
  if (accepted >= REQUIRED_PROOFS) return;
  if (!isAccepted && tries >= MAX_TRIES) {
    const message = isListed
      ? `The ${kind.title} rejected requests with the new value of ${newKeyId}, in ${tries} attempts.`
      : `The new value of ${newKeyId} is not the one that the resource lists, in ${tries} attempts.`;
    throw new RollBack("notProven", message, "Check who regenerated the key, then start a new rotation.");
  }
  throw new ContinueLater(isAccepted || tries < FREQUENT_TRIES ? INTERVAL_SECONDS : LATE_INTERVAL_SECONDS);
}

/**
 * Returns the value of the key that this rotation regenerated: the held copy, else the value that the resource lists, which is
 * the valid one.
 */
export async function readKey(context: StepContext, keyId: string): Promise<string | undefined> {
  const heldCopy = await readHeldValue(context, keyId);
  return heldCopy ?? (await listKeys(context)).find(({ name }) => name === keyId)?.value;
}

/** Returns whether a place stores the old key, and the resource still has that key. @throws {CloudFailure} */
export async function testValue(context: StepContext, value: string): Promise<TestResult> {
  const { resourceId, oldKeyId } = resourceKeyOf(context.record);
  const { held } = findHeldKey(value, resourceId, await listKeys(context));
  return held?.name === oldKeyId ? "accepted" : "rejected";
}

/** Returns what a place stores with the new key: the key, or its connection string with the new key in place of the old one. */
export function valueFor({ newKeyReference }: RotationRecord, newKey: string, previousValue: string): string {
  return readConnectionString(previousValue) === undefined
    ? newKey
    : rewriteConnectionString(previousValue, newKey, newKeyReference);
}
