import { timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import type { Config } from "../platform/config/config.ts";
import { isLoopback } from "../platform/http/origin.ts";
import { Problem } from "../platform/http/problem.ts";
import { PRODUCT } from "../platform/product.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type {
  PasskeyAssertion,
  PasskeyCreationOptions,
  PasskeyRegistration,
  PasskeyRequestOptions,
} from "./second-factor-api.ts";
import { hasSecondFactor, type PasskeyRecord, type SecondFactor } from "./second-factor-record.ts";
import { keyedHash } from "./tokens.ts";

/** Time in which a challenge must be answered. Browsers show their dialog for as long. */
const CHALLENGE_MS = 5 * MINUTE_MS;
/** Ed25519, ES256 and RS256: https://www.iana.org/assignments/cose/cose.xhtml#algorithms */
const ALGORITHMS = [-8, -7, -257];
/** Bytes of a challenge: random bytes, its expiry in milliseconds, and the HMAC-SHA-256 of both. */
const RANDOM_BYTES = 16;
const EXPIRY_BYTES = 6;
const MAC_BYTES = 32;

/** `registerFirst`: requested by a user without a second factor. Invalid once the user has one. */
type ChallengePurpose = "register" | "registerFirst" | "authenticate";

/** The part of a user that passkeys need. */
interface PasskeyUser {
  uid: string;
  username: string;
  secondFactor: SecondFactor;
}

/** A challenge that was answered. Recorded as used until it expires. */
export type AnsweredChallenge = SecondFactor["usedChallenges"][number];

/**
 * Passkeys (WebAuthn level 3) as a second factor. A challenge names its user, purpose and expiry under a key of this service, so
 * it needs no storage until it is answered. Callers then record it as used, in the user's row.
 */
export interface Passkeys {
  /** False if `PUBLIC_BASE_URL` is missing or no address for which browsers create passkeys. */
  available: boolean;
  /** Returns the options for `navigator.credentials.create`. @throws {Problem} conflict without a valid `PUBLIC_BASE_URL` */
  creationOptions(user: PasskeyUser): Promise<PasskeyCreationOptions>;
  /**
   * Verifies a new passkey. Returns undefined if the browser's answer is invalid or too late, or answers another user's
   * challenge.
   *
   * @throws {Problem} conflict without a valid `PUBLIC_BASE_URL`
   */
  verifyRegistration(
    user: PasskeyUser,
    response: PasskeyRegistration,
  ): Promise<
    | {
        passkey: Pick<PasskeyRecord, "credentialId" | "publicKey" | "counter" | "transports" | "rpId">;
        challenge: AnsweredChallenge;
      }
    | undefined
  >;
  /** Returns the options for `navigator.credentials.get`, or undefined if the user has no passkey for this address. */
  requestOptions(user: PasskeyUser): Promise<PasskeyRequestOptions | undefined>;
  /** Verifies a sign-in with a passkey. Returns undefined for the reasons of `verifyRegistration`. */
  verifyAssertion(
    user: PasskeyUser,
    response: PasskeyAssertion,
  ): Promise<{ passkeyId: string; counter: number; challenge: AnsweredChallenge } | undefined>;
}

export function createPasskeys(deps: {
  config: Pick<Config, "JWT_SIGNING_KEYS" | "PUBLIC_BASE_URL">;
  clock: Clock;
  randomness: Randomness;
}): Passkeys {
  const { config, clock, randomness } = deps;
  const relyingParty = relyingPartyOf(config.PUBLIC_BASE_URL);

  function requireRelyingParty() {
    if (relyingParty) return relyingParty;
    throw new Problem(
      "conflict",
      "Passkeys are bound to the address of this service. Set PUBLIC_BASE_URL to an https:// address with a host name.",
    );
  }

  const macOf = (key: Uint8Array, purpose: ChallengePurpose, uid: string, content: Uint8Array): Buffer =>
    Buffer.from(keyedHash(key, `passkey-${purpose}`, `${uid}\0${Buffer.from(content).toString("hex")}`), "hex");

  function newChallenge(purpose: ChallengePurpose, uid: string): Uint8Array<ArrayBuffer> {
    const expiry = Buffer.alloc(EXPIRY_BYTES);
    expiry.writeUIntBE(clock.now().getTime() + CHALLENGE_MS, 0, EXPIRY_BYTES);
    const content = Buffer.concat([randomness.bytes(RANDOM_BYTES), expiry]);
    return Uint8Array.from(Buffer.concat([content, macOf(config.JWT_SIGNING_KEYS[0]!.key, purpose, uid, content)]));
  }

  /** Returns the answered challenge if this service created it for the user and purpose and it has not expired. */
  function readChallenge(text: string, purpose: ChallengePurpose, uid: string): AnsweredChallenge | undefined {
    const bytes = Buffer.from(text, "base64url");
    if (bytes.length !== RANDOM_BYTES + EXPIRY_BYTES + MAC_BYTES) return undefined;
    const [content, mac] = [bytes.subarray(0, -MAC_BYTES), bytes.subarray(-MAC_BYTES)];
    const isOwn = config.JWT_SIGNING_KEYS.some(({ key }) => timingSafeEqual(macOf(key, purpose, uid, content), mac));
    const untilMs = content.readUIntBE(RANDOM_BYTES, EXPIRY_BYTES);
    if (!isOwn || untilMs <= clock.now().getTime()) return undefined;
    return { id: content.subarray(0, RANDOM_BYTES).toString("hex"), until: new Date(untilMs).toISOString() };
  }

  /** The user's passkeys that browsers can use at the current address. */
  const usablePasskeys = ({ secondFactor }: PasskeyUser) =>
    secondFactor.passkeys.filter(({ rpId }) => rpId === relyingParty?.id);

  return {
    available: relyingParty !== undefined,

    async creationOptions(user) {
      const { id } = requireRelyingParty();
      const { generateRegistrationOptions } = await import("@simplewebauthn/server");
      const options = await generateRegistrationOptions({
        rpName: PRODUCT,
        rpID: id,
        userName: user.username,
        userDisplayName: user.username,
        userID: Uint8Array.from(Buffer.from(user.uid)),
        challenge: newChallenge(registrationOf(user), user.uid),
        timeout: CHALLENGE_MS,
        attestationType: "none",
        excludeCredentials: usablePasskeys(user).map(descriptorOf),
        authenticatorSelection: { residentKey: "preferred", userVerification: "preferred" },
        supportedAlgorithmIDs: ALGORITHMS,
      });
      return options as PasskeyCreationOptions;
    },

    async verifyRegistration(user, response) {
      const { id, origin } = requireRelyingParty();
      const { verifyRegistrationResponse } = await import("@simplewebauthn/server");
      let challenge: AnsweredChallenge | undefined;
      const verification = await unlessInvalid(
        verifyRegistrationResponse({
          response: response as Parameters<typeof verifyRegistrationResponse>[0]["response"],
          expectedChallenge: (text) => {
            challenge = readChallenge(text, registrationOf(user), user.uid);
            return challenge !== undefined;
          },
          expectedOrigin: origin,
          expectedRPID: id,
          // As in `verifyAssertion`.
          requireUserVerification: false,
          supportedAlgorithmIDs: ALGORITHMS,
        }),
      );
      if (!verification?.verified || !challenge) return undefined;
      const { credential } = verification.registrationInfo;
      const publicKey = Buffer.from(credential.publicKey).toString("base64url");
      const { counter, transports = [] } = credential;
      return { passkey: { credentialId: credential.id, publicKey, counter, transports, rpId: id }, challenge };
    },

    async requestOptions(user) {
      const passkeys = usablePasskeys(user);
      if (!relyingParty || passkeys.length === 0) return undefined;
      const { generateAuthenticationOptions } = await import("@simplewebauthn/server");
      const options = await generateAuthenticationOptions({
        rpID: relyingParty.id,
        allowCredentials: passkeys.map(descriptorOf),
        challenge: newChallenge("authenticate", user.uid),
        timeout: CHALLENGE_MS,
        userVerification: "preferred",
      });
      return options as PasskeyRequestOptions;
    },

    async verifyAssertion(user, response) {
      const passkey = usablePasskeys(user).find(({ credentialId }) => credentialId === response.id);
      if (!relyingParty || !passkey) return undefined;
      const { verifyAuthenticationResponse } = await import("@simplewebauthn/server");
      let challenge: AnsweredChallenge | undefined;
      const verification = await unlessInvalid(
        verifyAuthenticationResponse({
          response: response as Parameters<typeof verifyAuthenticationResponse>[0]["response"],
          expectedChallenge: (text) => {
            challenge = readChallenge(text, "authenticate", user.uid);
            return challenge !== undefined;
          },
          expectedOrigin: relyingParty.origin,
          expectedRPID: relyingParty.id,
          credential: {
            id: passkey.credentialId,
            publicKey: Uint8Array.from(Buffer.from(passkey.publicKey, "base64url")),
            counter: passkey.counter,
          },
          // The password is the other factor, so a touch is enough: security keys may have no PIN.
          requireUserVerification: false,
        }),
      );
      if (!verification?.verified || !challenge) return undefined;
      return { passkeyId: passkey.id, counter: verification.authenticationInfo.newCounter, challenge };
    },
  };
}

/** Returns the host and origin for which browsers create passkeys: a host name, with https unless it is this machine's. */
function relyingPartyOf(publicBaseUrl: string | undefined): { id: string; origin: string } | undefined {
  if (publicBaseUrl === undefined) return undefined;
  const { protocol, hostname, origin } = new URL(publicBaseUrl);
  const isSecure = protocol === "https:" || isLoopback(hostname);
  const isAddress = isIP(hostname) !== 0 || hostname.startsWith("[");
  return isSecure && !isAddress ? { id: hostname, origin } : undefined;
}

const registrationOf = (user: PasskeyUser): ChallengePurpose => (hasSecondFactor(user) ? "register" : "registerFirst");

const descriptorOf = ({ credentialId, transports }: PasskeyRecord) => ({ id: credentialId, transports });

/** The library throws a plain `Error` for each answer that it rejects, and nothing else can fail: it sends no request. */
const unlessInvalid = <T>(verification: Promise<T>): Promise<T | undefined> => verification.catch(() => undefined);
