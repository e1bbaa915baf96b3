import { Problem, retryLater } from "../platform/http/problem.ts";

/** Seconds of `Retry-After` when the provider's keys can't be read. */
const RETRY_SECONDS = 10;

/** Thrown when a sign-out that a provider sent is rejected. */
export class LogoutRefused extends Error {
  override readonly name = "LogoutRefused";
  /**
   * The check that failed, for the audit log: the name of a claim, a reason in `SamlReason`, or one of `malformed`,
   * `signature`, `alg`, `used`, `otherProtocol`, `providerUnreachable` and `noPublicBaseUrl`. With `noPublicBaseUrl`, the
   * service does not know its own address.
   */
  readonly reason: string;

  constructor(reason: string) {
    super(`The sign-out of the provider is rejected: ${reason}.`);
    this.reason = reason;
  }

  /** Returns the problem for the provider. OpenID Connect Back-Channel Logout 1.0, 2.8: status 400. */
  problem(): Problem {
    if (this.reason === "providerUnreachable")
      return retryLater("unavailable", "The keys of the identity provider can't be read. Try again.", RETRY_SECONDS);
    return new Problem("invalidRequest", `The sign-out was rejected. Failed check: ${this.reason}.`);
  }
}
