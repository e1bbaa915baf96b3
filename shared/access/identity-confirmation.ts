import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody } from "../platform/http/problem.ts";
import type { KnownAddresses } from "./known-addresses.ts";
import type { Passwords } from "./passwords.ts";
import {
  type GivenFactor,
  isFactorGiven,
  type SecondFactorVerification,
  type VerifiedFactor,
} from "./second-factor.ts";
import type { SecondFactorMethod } from "./second-factor-api.ts";
import { hasSecondFactor } from "./second-factor-record.ts";
import { addressOf, secondFactorProblem, tooManyAttempts } from "./sign-in.ts";
import { type SignInFailures, verifyCounted } from "./sign-in-failures.ts";
import type { UserRecord, UserRow } from "./user.ts";
import type { Users } from "./users.ts";

/** How a signed-in user confirms a sensitive change: with the password and, if enrolled, a second factor. */
export interface IdentityProof extends GivenFactor {
  currentPassword: string;
}

/** Confirmation of the identity of a signed-in user before a sensitive change. */
export interface IdentityConfirmation {
  /**
   * Returns true if this is the password of a signed-in user. A wrong password counts as a failed sign-in.
   *
   * @throws {Problem} tooManyAttempts
   */
  isPasswordOf(user: UserRow, password: string, caller: Caller): Promise<boolean>;
  /**
   * Confirms the identity of a signed-in user who has a password, and uses up the second factor. A wrong password or second
   * factor counts as a failed sign-in.
   *
   * @returns The user after the second factor was used up.
   * @throws {Problem} invalidRequest, tooManyAttempts
   */
  confirmIdentity(user: UserRow, proof: IdentityProof, caller: Caller): Promise<UserRow>;
  /**
   * Verifies the second factor of a signed-in user and uses it up. A wrong one counts as a failed sign-in.
   *
   * @param change - Returns what is written together with the use of the second factor.
   * @throws {Problem} tooManyAttempts, secondFactorRequired without a second factor, secondFactorFailed with a wrong one
   */
  confirmFactor(
    user: UserRow,
    given: GivenFactor,
    caller: Caller,
    change: (latest: UserRow) => UserRecord,
  ): Promise<SecondFactorMethod>;
}

export function createIdentityConfirmation(deps: {
  users: Users;
  passwords: Passwords;
  failures: SignInFailures;
  addresses: KnownAddresses;
  secondFactor: SecondFactorVerification;
}): IdentityConfirmation {
  const { users, passwords, failures, addresses, secondFactor } = deps;

  /** Uses up the second factor of a signed-in user. Returns undefined if another request used or removed it since. */
  const useUp = (
    user: UserRow,
    factor: VerifiedFactor,
    change: (latest: UserRow) => UserRecord = (latest) => latest,
  ): Promise<UserRow | undefined> =>
    users.change(user, (latest) => {
      const factorAfter = latest.passwordHash === user.passwordHash ? factor.use(latest) : undefined;
      return factorAfter && { ...change(latest), secondFactor: factorAfter };
    });

  return {
    async isPasswordOf(user, password, caller) {
      // The caller is signed in, so the address counts as known: failures from other addresses can't stop a change of the
      // password. The methods below also verify six-digit codes, which are guessed from many addresses more easily. So there only
      // addresses of recent sign-ins count as known, and failures from all other addresses count together.
      const attempt = await failures.begin({ username: user.rowKey, address: addressOf(caller), isKnownAddress: true });
      if ("waitSeconds" in attempt) throw tooManyAttempts(attempt.waitSeconds);
      const isCorrect = await verifyCounted(failures, attempt, () => passwords.verify(password, user.passwordHash));
      // For a user with a second factor, the password alone does not reset the count of wrong codes.
      if (isCorrect) await (hasSecondFactor(user) ? failures.withdraw(attempt) : failures.succeeded(attempt));
      return isCorrect;
    },

    async confirmIdentity(user, { currentPassword, ...given }, caller) {
      const address = addressOf(caller);
      const isKnownAddress = addresses.has(user, address);
      const attempt = await failures.begin({ username: user.rowKey, address, isKnownAddress });
      if ("waitSeconds" in attempt) throw tooManyAttempts(attempt.waitSeconds);
      const isCorrect = await verifyCounted(failures, attempt, () =>
        passwords.verify(currentPassword, user.passwordHash),
      );
      // The attempt stays counted as a failure.
      if (!isCorrect) throw invalidBody("currentPassword", "is not your current password");
      if (!hasSecondFactor(user)) {
        await failures.succeeded(attempt);
        return user;
      }
      if (!isFactorGiven(given)) {
        await failures.withdraw(attempt);
        throw invalidBody("totp", "is required, or recoveryCode or passkey");
      }
      const confirmed = await verifyCounted(failures, attempt, async () => {
        const factor = await secondFactor.verify(user, given);
        return factor && (await useUp(user, factor));
      });
      if (!confirmed) {
        const member =
          given.totp !== undefined ? "totp" : given.recoveryCode !== undefined ? "recoveryCode" : "passkey";
        throw invalidBody(member, "is wrong, expired, or was used before");
      }
      await failures.succeeded(attempt);
      return confirmed;
    },

    async confirmFactor(user, given, caller, change) {
      if (!isFactorGiven(given)) throw await secondFactorProblem(secondFactor, "secondFactorRequired", user);
      const address = addressOf(caller);
      const attempt = await failures.begin({
        username: user.rowKey,
        address,
        isKnownAddress: addresses.has(user, address),
      });
      if ("waitSeconds" in attempt) throw tooManyAttempts(attempt.waitSeconds);
      const method = await verifyCounted(failures, attempt, async () => {
        const factor = await secondFactor.verify(user, given);
        return factor && (await useUp(user, factor, change)) && factor.method;
      });
      if (!method) throw await secondFactorProblem(secondFactor, "secondFactorFailed", user);
      await failures.succeeded(attempt);
      return method;
    },
  };
}
