import type { Clock, Randomness } from "../platform/runtime.ts";
import { StorageCorrupt } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type { AnsweredChallenge, Passkeys } from "./passkeys.ts";
import { recoveryCodeHash } from "./recovery-codes.ts";
import type { PasskeyAssertion, PasskeyRequestOptions, SecondFactorMethod } from "./second-factor-api.ts";
import { NO_SECOND_FACTOR, type SecondFactor } from "./second-factor-record.ts";
import { type TotpSecrets, UnreadableTotpSecret } from "./totp.ts";
import { User, type UserRow, uidOf } from "./user.ts";

/** The second factor in a request: at most one of the members. */
export interface GivenFactor {
  totp?: string | undefined;
  recoveryCode?: string | undefined;
  passkey?: PasskeyAssertion | undefined;
}

/** The second factors that a user can send. */
export interface FactorChallenge {
  methods: SecondFactorMethod[];
  /** Options for `navigator.credentials.get`. Null if the user has no passkey for this address. */
  passkeyOptions: PasskeyRequestOptions | null;
}

/** A second factor that was verified, but not used up yet. */
export interface VerifiedFactor {
  method: SecondFactorMethod;
  /**
   * Uses the factor up. Called with the newest row, for a write on its ETag.
   *
   * @returns The second factor to write. Undefined if another request used or removed the factor since.
   */
  use(latest: UserRow): SecondFactor | undefined;
}

/** Verifies second factors, for sign-ins and for users who must confirm their identity. */
export interface SecondFactorVerification {
  /** Returns what the user can send. Costs no storage request. */
  challenge(user: UserRow): Promise<FactorChallenge>;
  /**
   * Returns undefined for a wrong or missing factor.
   *
   * @throws {CloudFailure} if the key of TOTP secrets can't be read. @throws {StorageCorrupt} if the TOTP secret can't be decrypted.
   */
  verify(user: UserRow, given: GivenFactor): Promise<VerifiedFactor | undefined>;
}

/** Returns whether a request contains a second factor. */
export const isFactorGiven = ({ totp, recoveryCode, passkey }: GivenFactor): boolean =>
  totp !== undefined || recoveryCode !== undefined || passkey !== undefined;

export const secondFactorOf = (user: { secondFactor?: SecondFactor | undefined }): SecondFactor =>
  user.secondFactor ?? NO_SECOND_FACTOR;

/** Returns the user as `Passkeys` needs it. */
export const passkeyUserOf = (user: UserRow) => ({
  uid: uidOf(user),
  username: user.username,
  secondFactor: secondFactorOf(user),
});

export function createSecondFactorVerification(deps: {
  totpSecrets: TotpSecrets;
  passkeys: Passkeys;
  clock: Clock;
  randomness: Randomness;
}): SecondFactorVerification {
  const { totpSecrets, passkeys, clock, randomness } = deps;

  /** Returns a verified factor whose use is written once, also if a write was applied and its answer was lost. */
  function createVerifiedFactor(
    method: SecondFactorMethod,
    use: (latest: SecondFactor) => SecondFactor | undefined,
  ): VerifiedFactor {
    const id = Buffer.from(randomness.bytes(16)).toString("hex");
    return {
      method,
      use(latest) {
        const current = secondFactorOf(latest);
        // This request has already written the use, and the answer was lost.
        if (current.lastUse === id) return current;
        const used = use(current);
        return used && { ...used, lastUse: id };
      },
    };
  }

  async function verifyTotp(user: UserRow, code: string): Promise<VerifiedFactor | undefined> {
    const { totp } = secondFactorOf(user);
    if (!totp) return undefined;
    // The number of the 30-second time step whose code this is. Undefined for a wrong code.
    const step = await totpSecrets.stepOf(totp.secret, uidOf(user), code, clock.now()).catch((error: unknown) => {
      if (error instanceof UnreadableTotpSecret) throw new StorageCorrupt(User.table, user, error.message);
      throw error;
    });
    if (step === undefined) return undefined;
    return createVerifiedFactor("totp", (latest) => {
      if (latest.totp?.secret !== totp.secret || step <= latest.totp.lastStep) return undefined;
      return { ...latest, totp: { ...latest.totp, lastStep: step, lastUsedAt: clock.now().toISOString() } };
    });
  }

  function verifyRecoveryCode(user: UserRow, code: string): VerifiedFactor | undefined {
    const hash = recoveryCodeHash(uidOf(user), code);
    if (!secondFactorOf(user).recoveryCodes.includes(hash)) return undefined;
    return createVerifiedFactor("recoveryCode", (latest) => {
      if (!latest.recoveryCodes.includes(hash)) return undefined;
      return { ...latest, recoveryCodes: latest.recoveryCodes.filter((stored) => stored !== hash) };
    });
  }

  async function verifyPasskey(user: UserRow, assertion: PasskeyAssertion): Promise<VerifiedFactor | undefined> {
    const answer = await passkeys.verifyAssertion(passkeyUserOf(user), assertion);
    if (!answer) return undefined;
    const { passkeyId, counter, challenge } = answer;
    return createVerifiedFactor("passkey", (latest) => {
      const stored = latest.passkeys.find(({ id }) => id === passkeyId);
      const usedChallenges = withChallenge(latest, challenge, clock);
      // A counter that does not grow shows a copied authenticator (WebAuthn 3, 6.1.1). Authenticators without one send 0.
      if (!stored || !usedChallenges || (stored.counter > 0 && counter <= stored.counter)) return undefined;
      const after = { ...stored, counter, lastUsedAt: clock.now().toISOString() };
      return {
        ...latest,
        passkeys: latest.passkeys.map((passkey) => (passkey === stored ? after : passkey)),
        usedChallenges,
      };
    });
  }

  return {
    async challenge(user) {
      const { totp, recoveryCodes } = secondFactorOf(user);
      const passkeyOptions = (await passkeys.requestOptions(passkeyUserOf(user))) ?? null;
      const methods: SecondFactorMethod[] = [
        ...(totp && totpSecrets.available ? (["totp"] as const) : []),
        ...(passkeyOptions ? (["passkey"] as const) : []),
        ...(recoveryCodes.length > 0 ? (["recoveryCode"] as const) : []),
      ];
      return { methods, passkeyOptions };
    },

    async verify(user, { totp, recoveryCode, passkey }) {
      if (totp !== undefined) return await verifyTotp(user, totp);
      if (recoveryCode !== undefined) return verifyRecoveryCode(user, recoveryCode);
      return passkey && (await verifyPasskey(user, passkey));
    },
  };
}

/** Returns the unexpired used challenges with this one, or undefined if it was used before. */
export function withChallenge(
  { usedChallenges }: SecondFactor,
  challenge: AnsweredChallenge,
  clock: Clock,
): AnsweredChallenge[] | undefined {
  if (usedChallenges.some(({ id }) => id === challenge.id)) return undefined;
  // Kept a minute longer than needed, because the clocks of two instances can differ.
  const retainedFromMs = clock.now().getTime() - MINUTE_MS;
  return [...usedChallenges.filter(({ until }) => Date.parse(until) > retainedFromMs), challenge];
}
