import { MINUTE_MS } from "../../platform/time.ts";
import { newValue } from "../recover.ts";
import { clientSecretOf, type RotationRecord } from "../rotation.ts";
import { GoBack, Later } from "../stop.ts";
import type { Turn } from "../turn.ts";

/**
 * A new secret works on one request and not on the next, for seconds to minutes. Three sign-ins in a row that lie 15 seconds
 * or more apart in all, and one more after a pause, before anybody gets it.
 */
const ACCEPTED = 4;
const SPACED_SECONDS = 8;
const PAUSE_SECONDS = 20;
/** Seconds to the next try while it does not work. */
const WAITS = [5, 10, 20, 30, 60];
const MOST_MS = 10 * MINUTE_MS;
/** Tries that a secret gets even if the service stood still meanwhile. */
const LEAST_TRIES = 5;

/** Signs in once with the new secret. @throws {Later} until it has been accepted often enough. */
export async function prove(turn: Turn): Promise<void> {
  const { record, world } = turn;
  const value = await newValue(turn);
  if (value === undefined) {
    await turn.save(withoutValue);
    throw new Later(0);
  }
  const { proof = { accepted: 0, tries: 0, startedAt: turn.now().toISOString() } } = record;
  const result = await world.signIn(clientSecretOf(record).appId, value);
  const now = turn.now();
  const tries = proof.tries + 1;
  const accepted = result.kind === "accepted" ? proof.accepted + 1 : result.kind === "unclear" ? proof.accepted : 0;
  await turn.save(() => ({ proof: { ...proof, tries, accepted, lastAt: now.toISOString() } }));
  if (accepted >= ACCEPTED) return;
  if (result.kind === "accepted") throw new Later(accepted === ACCEPTED - 1 ? PAUSE_SECONDS : SPACED_SECONDS);
  if (result.kind === "impossible") {
    throw new GoBack(
      "signInImpossible",
      `The application can't sign in with any secret. ${result.reason} (AADSTS${result.code}).`,
      "See that the application is enabled and has a service principal in this tenant, then begin a new rotation.",
    );
  }
  if (now.getTime() - Date.parse(proof.startedAt) > MOST_MS && tries >= LEAST_TRIES) {
    throw new GoBack(
      "notProven",
      `The new client secret did not sign in reliably within ${MOST_MS / MINUTE_MS} minutes, in ${tries} tries.`,
      "Nothing was changed for anybody. Look for an outage at https://status.azure.com, then begin a new rotation.",
    );
  }
  throw new Later(WAITS[Math.min(tries, WAITS.length) - 1]!);
}

/** The held value is gone: another secret is made, and this one is to be removed. */
const withoutValue = ({ attempts, newKeyId }: RotationRecord): Partial<RotationRecord> => ({
  status: "creating",
  newKeyId: undefined,
  proof: undefined,
  attempts: attempts.map((one) => (one.keyId === newKeyId ? { ...one, state: "discarding" } : one)),
});
