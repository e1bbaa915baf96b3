import { CloudFailure } from "../platform/azure/failure.ts";
import type { SignInOutcome } from "../platform/azure/sign-in-proof.ts";
import type { SecretVersion, VaultSecrets } from "../platform/azure/vault-secrets.ts";
import type { MatchedApp } from "./match.ts";
import { isTransientFailure } from "./problems.ts";

/**
 * Results of a match verification. `accepted`: the value signed in. `expired`: the application's secrets have expired.
 * `refused`: the sign-in was rejected. `otherHint`: the value fits no credential, so no sign-in was tried. `impossible`: the
 * application can't sign in with any secret. `unclear`: the sign-in service gave no clear answer. `unreadable`: the vault
 * returned no value.
 */
export const PROOF_OUTCOMES = [
  "accepted",
  "expired",
  "refused",
  "otherHint",
  "impossible",
  "unclear",
  "unreadable",
] as const;
export type ProofOutcome = (typeof PROOF_OUTCOMES)[number];

export interface Proof {
  outcome: ProofOutcome;
  /** Sentences for users: what the outcome means and what to do. */
  message: string;
  /** The version that was read; undefined if none could be read. */
  version?: SecretVersion;
  /** Key IDs of the credentials whose hint the value starts with. */
  keyIds: string[];
}

/** Maximum number of verifications for one application. Each wrong value causes a failed sign-in in the tenant's log. */
export const PROOF_LIMITS = { perMinute: 5, perHour: 20 };

/**
 * Verifies a match. Reads the current version of a secret, compares the start of the value with the hints (first characters) of
 * the application's credentials, and signs in with the value once. Signs in only if a hint fits, or a credential has no hint.
 * Does not return the value.
 *
 * @throws {CloudFailure} if the failure is transient. Other failures give the outcome `unreadable`.
 */
export async function verifyMatch(
  app: MatchedApp,
  name: string,
  secrets: VaultSecrets,
  proveSignIn: (appId: string, secret: string) => Promise<SignInOutcome>,
): Promise<Proof> {
  const read = await failureIfDenied(secrets.read(name));
  if (read instanceof CloudFailure)
    return { outcome: "unreadable", message: `${read.message} ${read.remedy}`, keyIds: [] };
  if (!read)
    return { outcome: "unreadable", message: "The vault no longer has this secret. Scan the vault again.", keyIds: [] };
  const { value, ...version } = read;
  const keyIds = app.passwords.filter(({ hint }) => hint && value.startsWith(hint)).map(({ keyId }) => keyId);
  if (keyIds.length === 0 && app.passwords.every(({ hint }) => hint)) {
    const message =
      "The value does not start with the hint of any secret of this application, so no sign-in was tried.";
    return { outcome: "otherHint", message, version, keyIds };
  }
  const signIn = await proveSignIn(app.appId, value);
  const outcome = signIn.kind === "notYet" ? "refused" : signIn.kind;
  return { outcome, message: messageOf(signIn, keyIds), version, keyIds };
}

const MESSAGES = {
  accepted: "The value signed in: this is a secret of the application.",
  expired:
    "The sign-in service says that the application's secrets have expired, which it may say for any value. Confirm the match if you know that this is one of them.",
  notYet: "The sign-in was rejected: the value is no working secret of the application.",
  unclear: "The sign-in service gave no clear answer. Try again later.",
} as const;

function messageOf(signIn: SignInOutcome, keyIds: readonly string[]): string {
  if (signIn.kind === "impossible") return `A sign-in can't prove anything for this application. ${signIn.reason}`;
  const isCertain = signIn.kind !== "accepted" || keyIds.length === 1;
  return MESSAGES[signIn.kind] + (isCertain ? "" : " The hints do not show which of its secrets it is.");
}

/**
 * Returns the result, or the failure if the vault denies the read, for example with 403 or by its firewall.
 *
 * @throws {CloudFailure} if the failure is transient, because a busy vault must not look like a vault without a matching
 * secret.
 */
export async function failureIfDenied<T>(reading: Promise<T>): Promise<T | CloudFailure> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof CloudFailure && !isTransientFailure(error)) return error;
    throw error;
  }
}
