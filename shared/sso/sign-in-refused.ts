import { Problem, type ProblemCode, retryLater } from "../platform/http/problem.ts";

/**
 * Reasons why a sign-in failed, each with the problem and text for the user. The texts are fixed: they contain nothing from a
 * provider. The reason itself is recorded in the audit log.
 */
const REFUSALS = {
  /** No sign-in request with that id. */
  unknownRequest: ["signInStale", "No sign-in was started here."],
  otherBrowser: [
    "signInStale",
    "This sign-in was started in another browser, or another sign-in was started in this browser since.",
  ],
  expired: ["signInStale", "A sign-in must be completed within ten minutes."],
  used: ["signInStale", "This sign-in was completed before."],
  changedMeanwhile: ["signInStale", "Single sign-on was reconfigured since this sign-in started."],
  providerRefused: ["signInFailed", "The identity provider did not sign you in."],
  badResponse: ["signInFailed", "The response of the identity provider is not valid, so nobody was signed in."],
  clientRefused: [
    "signInFailed",
    "The identity provider does not know this service. Tell an administrator: its client secret may have expired.",
  ],
  providerUnreachable: ["unavailable", "The identity provider does not answer."],
  secretUnreadable: ["unavailable", "The service's own key vault does not answer."],
  stranger: ["signInRefused", "You have no account here. Ask an administrator for one."],
  removed: ["signInRefused", "Your account was removed. Ask an administrator to unblock your identity."],
  disabled: ["signInRefused", "Your account is disabled. Ask an administrator."],
  emailDomain: ["signInRefused", "Your e-mail address is not one of those that may sign in, or is not verified."],
  noRole: [
    "signInRefused",
    "The identity provider gives you none of the roles that may sign in. Ask an administrator.",
  ],
  rolesConflict: [
    "signInRefused",
    "The identity provider gives you the roles auditor and operator together, and neither is above the other. Ask an administrator for one of them.",
  ],
  rolesNotSent: [
    "signInRefused",
    "The identity provider left out your groups because there are too many. Ask an administrator to map application roles instead.",
  ],
} as const satisfies Record<string, readonly [ProblemCode, string]>;

export type Reason = keyof typeof REFUSALS;

/** Seconds of `Retry-After` when a service that the sign-in needs does not answer. */
const RETRY_SECONDS = 10;

/** Thrown when a sign-in is rejected. */
export class SignInRefused extends Error {
  override readonly name = "SignInRefused";
  readonly reason: Reason;
  /** Details for the audit log. They never contain free text of a provider or a secret. */
  readonly details: Readonly<Record<string, string>>;

  constructor(reason: Reason, details: Record<string, string> = {}) {
    super(reason);
    this.reason = reason;
    this.details = details;
  }

  /** Returns the problem with the text for the user. */
  problem(): Problem {
    const [code, text] = REFUSALS[this.reason];
    if (code === "unavailable") return retryLater(code, `${text} Try again.`, RETRY_SECONDS);
    return new Problem(code, code === "signInRefused" ? text : `${text} Sign in again.`);
  }
}

/**
 * Returns the error for a rejection reason of the role mapping or of `FederatedSignIn.signIn`. The reason is any string,
 * because that module does not know the texts. A reason without a text counts as `disabled`.
 */
export const signInRefusedFor = (reason: string): SignInRefused =>
  new SignInRefused(Object.hasOwn(REFUSALS, reason) ? (reason as Reason) : "disabled");
