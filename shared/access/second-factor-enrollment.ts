import type * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { requireSignedIn } from "./api-tokens.ts";
import type { IdentityConfirmation, IdentityProof } from "./identity-confirmation.ts";
import type { Passkeys } from "./passkeys.ts";
import { newRecoveryCodes, recoveryCodeHash } from "./recovery-codes.ts";
import {
  type FactorChallenge,
  passkeyUserOf,
  type SecondFactorVerification,
  secondFactorOf,
  withChallenge,
} from "./second-factor.ts";
import type { MethodAdded, NewPasskey, PasskeyStarted, SecondFactorView, TotpStarted } from "./second-factor-api.ts";
import { hasSecondFactor, type SecondFactor } from "./second-factor-record.ts";
import { type TotpSecrets, UnreadableTotpSecret } from "./totp.ts";
import { newRevision, revokedTokenMembers, type UserRow, uidOf } from "./user.ts";
import type { Users } from "./users.ts";

/** Time in which a user must confirm a new TOTP secret with a code. */
const PENDING_MS = 15 * MINUTE_MS;
/** Maximum number of passkeys of a user, which limits the size of the user's row. */
const MAX_PASSKEYS = 10;
/** Maximum length of a passkey's public key in base64url. An RSA key of 8,192 bits has 1,400 characters. */
const MAX_PUBLIC_KEY = 2048;
/** ID of the authenticator app among the methods. IDs of passkeys are ULIDs. */
const TOTP_ID = "totp";

/** A new method, with recovery codes if the user had none. */
type Added = z.infer<typeof MethodAdded>;

/**
 * Enrollment of second factors, for the endpoints under /auth/me/second-factor. Each change needs the password, and a second
 * factor if the user has one. `confirmTotp` and `confirmPasskey` need neither: they complete what the same user has started.
 */
export interface SecondFactorEnrollment {
  /** Returns the methods of the actor. */
  view(actor: Actor): Promise<SecondFactorView>;
  /** Returns what the user can send as a second factor. */
  challenge(actor: Actor): Promise<FactorChallenge>;
  /**
   * Creates a TOTP secret. It replaces the current authenticator app only when `confirmTotp` confirms it.
   *
   * @throws {Problem} invalidRequest (password or second factor), tooManyAttempts, conflict (no password, no key vault).
   */
  startTotp(actor: Actor, proof: IdentityProof, caller: Caller): Promise<z.infer<typeof TotpStarted>>;
  /** Enables the TOTP secret. @throws {Problem} invalidRequest (a wrong code), conflict (no secret to confirm). */
  confirmTotp(actor: Actor, code: string, caller: Caller): Promise<Added>;
  /**
   * Returns the options with which a browser creates a passkey.
   *
   * @throws {Problem} invalidRequest (password or second factor), tooManyAttempts, conflict (no password, no `PUBLIC_BASE_URL`,
   * too many passkeys).
   */
  startPasskey(actor: Actor, proof: IdentityProof, caller: Caller): Promise<z.infer<typeof PasskeyStarted>>;
  /** Adds the passkey. @throws {Problem} invalidRequest (an invalid answer), alreadyExists, conflict. */
  confirmPasskey(actor: Actor, passkey: z.output<typeof NewPasskey>, caller: Caller): Promise<Added>;
  /**
   * Removes a method. Without its last method, a user also loses the recovery codes.
   *
   * @throws {Problem} notFound, invalidRequest (password or second factor), tooManyAttempts.
   */
  remove(actor: Actor, methodId: string, proof: IdentityProof, caller: Caller): Promise<void>;
  /** Replaces the recovery codes. @throws {Problem} conflict (no method), invalidRequest, tooManyAttempts. */
  replaceRecoveryCodes(actor: Actor, proof: IdentityProof, caller: Caller): Promise<{ recoveryCodes: string[] }>;
  /**
   * For administrators: removes all methods of a user and ends the user's tokens and sessions.
   *
   * @throws {Problem} notFound (the user, or the second factor), conflict (the caller's own second factor).
   */
  reset(id: string, caller: Caller): Promise<void>;
}

interface Dependencies {
  users: Users;
  identity: Pick<IdentityConfirmation, "confirmIdentity">;
  verification: SecondFactorVerification;
  totpSecrets: TotpSecrets;
  passkeys: Passkeys;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
}

export function createSecondFactorEnrollment(deps: Dependencies): SecondFactorEnrollment {
  const { users, verification, totpSecrets, passkeys, audit, clock, randomness } = deps;
  const { withConfirmedIdentity, write, createCodes, add } = createSecondFactorWriter(deps);

  async function readUser(actor: Actor): Promise<UserRow> {
    const user = await users.find(actor.username);
    if (!user) throw notFound("This user");
    return user;
  }

  return {
    async view(actor) {
      const user = await readUser(actor);
      const { totp, passkeys: stored, recoveryCodes } = secondFactorOf(user);
      const totpMethods = totp ? [{ ...totp, id: TOTP_ID, kind: "totp" as const, name: "Authenticator app" }] : [];
      const methods = [...totpMethods, ...stored.map((passkey) => ({ ...passkey, kind: "passkey" as const }))];
      return {
        enrolled: hasSecondFactor(user),
        required: actor.mustEnrollSecondFactor ?? false,
        methods: methods
          .map(({ id, kind, name, createdAt, lastUsedAt }) => ({
            id,
            kind,
            name,
            createdAt,
            lastUsedAt: lastUsedAt ?? null,
          }))
          .sort((first, second) => (first.createdAt < second.createdAt ? -1 : 1)),
        recoveryCodesLeft: recoveryCodes.length,
        totpAvailable: totpSecrets.available,
        passkeysAvailable: passkeys.available,
      };
    },

    challenge: async (actor) => await verification.challenge(await readUser(actor)),

    async startTotp(actor, proof, caller) {
      const user = await readUser(actor);
      const event = eventOf("user.secondFactorStarted", user, caller, { method: "totp" });
      return await withConfirmedIdentity(proof, user, event, async (confirmedUser) => {
        const { encrypted, secret, uri } = await totpSecrets.create({ uid: uidOf(user), username: user.username });
        const expiresAt = new Date(clock.now().getTime() + PENDING_MS).toISOString();
        const pendingTotp = { secret: encrypted, expiresAt };
        await write(actor, confirmedUser, (latest) => ({ ...latest, pendingTotp }));
        return { secret, uri, expiresAt };
      });
    },

    async confirmTotp(actor, code, caller) {
      const user = await readUser(actor);
      return await audited(audit, eventOf("user.secondFactorAdded", user, caller, { method: "totp" }), async () => {
        const { pendingTotp } = secondFactorOf(user);
        const now = clock.now();
        if (!pendingTotp || Date.parse(pendingTotp.expiresAt) <= now.getTime()) throw nothingStarted();
        const { secret } = pendingTotp;
        // The number of the 30-second time step whose code this is. Undefined for a wrong code.
        const step = await totpSecrets.stepOf(secret, uidOf(user), code, now).catch((error: unknown) => {
          throw error instanceof UnreadableTotpSecret ? nothingStarted() : error;
        });
        if (step === undefined) throw invalidBody("code", "is not the current code. Check the clock of your device.");
        return await add(actor, user, (latest) => {
          // Already written, by a request whose answer was lost or by a second click.
          if (latest.totp?.secret === secret) return latest;
          if (latest.pendingTotp?.secret !== secret) throw nothingStarted();
          const totp = { secret, createdAt: now.toISOString(), lastStep: step };
          return { ...latest, totp, pendingTotp: undefined };
        });
      });
    },

    async startPasskey(actor, proof, caller) {
      const user = await readUser(actor);
      const event = eventOf("user.secondFactorStarted", user, caller, { method: "passkey" });
      return await withConfirmedIdentity(proof, user, event, async (confirmedUser) => {
        if (secondFactorOf(confirmedUser).passkeys.length >= MAX_PASSKEYS) throw tooManyPasskeys();
        return { options: await passkeys.creationOptions(passkeyUserOf(confirmedUser)) };
      });
    },

    async confirmPasskey(actor, { name, passkey: response }, caller) {
      const user = await readUser(actor);
      const event = eventOf("user.secondFactorAdded", user, caller, { method: "passkey", name });
      return await audited(audit, event, async () => {
        const verified = await passkeys.verifyRegistration(passkeyUserOf(user), response);
        if (!verified) throw invalidPasskey();
        const { passkey, challenge } = verified;
        if (passkey.publicKey.length > MAX_PUBLIC_KEY)
          throw invalidBody("passkey", "has a public key that is too long");
        const now = clock.now();
        const added = { ...passkey, id: randomness.ulid(now), name, createdAt: now.toISOString() };
        return await add(actor, user, (latest) => {
          // Already written, by an earlier attempt whose answer was lost: the ID is new in each request.
          if (latest.passkeys.some(({ id }) => id === added.id)) return latest;
          if (latest.passkeys.some(({ credentialId }) => credentialId === added.credentialId)) {
            throw new Problem("alreadyExists", "This passkey was already added.");
          }
          if (latest.passkeys.length >= MAX_PASSKEYS) throw tooManyPasskeys();
          const usedChallenges = withChallenge(latest, challenge, clock);
          if (!usedChallenges) throw invalidBody("passkey", "answers a challenge that was already used");
          const isFirst = !hasSecondFactor({ secondFactor: latest });
          // Another request has added a second factor meanwhile, and this challenge was requested without one.
          if (!isFirst && !hasSecondFactor(user)) throw invalidPasskey();
          // Discards a TOTP secret that was requested before there was a second factor, and so with the password alone.
          const pendingTotp = isFirst ? undefined : latest.pendingTotp;
          return { ...latest, passkeys: [...latest.passkeys, added], usedChallenges, pendingTotp };
        });
      });
    },

    async remove(actor, methodId, proof, caller) {
      const user = await readUser(actor);
      const { totp, passkeys: stored } = secondFactorOf(user);
      const isTotp = methodId === TOTP_ID && totp !== undefined;
      if (!isTotp && !stored.some(({ id }) => id === methodId)) throw notFound("This method");
      const details = { method: isTotp ? "totp" : "passkey", id: methodId };
      await withConfirmedIdentity(
        proof,
        user,
        eventOf("user.secondFactorRemoved", user, caller, details),
        async (confirmedUser) => {
          await write(actor, confirmedUser, (latest) => {
            const remaining: SecondFactor = {
              ...latest,
              totp: isTotp ? undefined : latest.totp,
              passkeys: latest.passkeys.filter(({ id }) => id !== methodId),
            };
            return hasSecondFactor({ secondFactor: remaining }) ? remaining : { ...remaining, recoveryCodes: [] };
          });
        },
      );
    },

    async replaceRecoveryCodes(actor, proof, caller) {
      const user = await readUser(actor);
      if (!hasSecondFactor(user)) throw new Problem("conflict", "Add an authenticator app or a passkey first.");
      const { codes, hashes } = createCodes(user);
      await withConfirmedIdentity(
        proof,
        user,
        eventOf("user.recoveryCodesReplaced", user, caller),
        async (confirmedUser) => {
          await write(actor, confirmedUser, (latest) => ({ ...latest, recoveryCodes: hashes }));
        },
      );
      return { recoveryCodes: codes };
    },

    async reset(id, caller) {
      const user = await users.findById(id);
      if (!user) throw notFound("This user");
      if (caller.actor === user.username) {
        throw new Problem(
          "conflict",
          "Remove your own methods with POST /auth/me/second-factor/methods/{method_id}/remove.",
        );
      }
      await audited(audit, eventOf("user.secondFactorReset", user, caller), async () => {
        const changed = await users.change(user, (latest) => {
          if (!hasSecondFactor(latest) && !latest.secondFactor?.pendingTotp)
            throw notFound("A second factor of this user");
          // API clients see this change, so the user gets a new ETag (`newRevision`).
          return { ...latest, secondFactor: undefined, ...revokedTokenMembers(latest, clock), ...newRevision(deps) };
        });
        if (!changed) throw notFound("This user");
      });
    },
  };
}

const eventOf = (type: string, user: UserRow, caller: Caller, details: Record<string, unknown> = {}) => ({
  type,
  caller,
  target: { type: "user", id: user.rowKey },
  details,
});

/** Creates the functions that write a user's second factor. */
function createSecondFactorWriter(deps: Pick<Dependencies, "users" | "identity" | "audit" | "clock" | "randomness">) {
  const { users, identity, audit, randomness } = deps;
  return { withConfirmedIdentity, write, createCodes, add };

  /** Confirms the user's identity, then does the work between two audit entries. A failed confirmation is recorded. */
  async function withConfirmedIdentity<T>(
    proof: IdentityProof,
    user: UserRow,
    event: ReturnType<typeof eventOf>,
    work: (confirmedUser: UserRow) => Promise<T>,
  ): Promise<T> {
    if (user.passwordHash === undefined) {
      throw new Problem(
        "conflict",
        "You sign in with single sign-on, so your identity provider asks for a second factor.",
      );
    }
    return await audited(
      audit,
      event,
      async () => await work(await identity.confirmIdentity(user, proof, event.caller)),
    );
  }

  /** Writes the second factor, unless the sign-in or the password of the actor became invalid since the user was read. */
  async function write(
    actor: Actor,
    user: UserRow,
    next: (latest: SecondFactor) => SecondFactor,
  ): Promise<SecondFactor> {
    const changed = await users.change(user, (latest) => {
      requireSignedIn(actor, latest);
      if (latest.passwordHash !== user.passwordHash) {
        throw new Problem("conflict", "The password was changed in the meantime. Sign in again.");
      }
      // API clients see this change, so the user gets a new ETag (`newRevision`).
      return { ...latest, secondFactor: next(secondFactorOf(latest)), ...newRevision(deps) };
    });
    if (!changed) throw notFound("This user");
    return secondFactorOf(changed);
  }

  /** Returns new recovery codes and their hashes. */
  function createCodes(user: UserRow) {
    const codes = newRecoveryCodes(randomness);
    return { codes, hashes: codes.map((code) => recoveryCodeHash(uidOf(user), code)) };
  }

  /** Adds a method, and recovery codes if the user has none. */
  async function add(actor: Actor, user: UserRow, next: (latest: SecondFactor) => SecondFactor): Promise<Added> {
    const { codes, hashes } = createCodes(user);
    const after = await write(actor, user, (latest) => {
      const added = next(latest);
      return added.recoveryCodes.length > 0 ? added : { ...added, recoveryCodes: hashes };
    });
    // Null if the user had codes already: their hashes were kept, and the new codes were not stored.
    return { recoveryCodes: after.recoveryCodes.includes(hashes[0]!) ? codes : null };
  }
}

const nothingStarted = (): Problem =>
  new Problem(
    "conflict",
    "There is no secret to confirm, or it expired. Start again: POST /auth/me/second-factor/totp.",
  );

const invalidPasskey = (): Problem =>
  invalidBody("passkey", "is no valid answer to a challenge of the last five minutes");

const tooManyPasskeys = (): Problem =>
  new Problem("conflict", `A user has at most ${MAX_PASSKEYS} passkeys. Remove one that is not needed.`);
