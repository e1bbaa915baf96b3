import { createCipheriv, createDecipheriv } from "node:crypto";
import { Problem } from "../platform/http/problem.ts";
import { PRODUCT } from "../platform/product.ts";
import type { Randomness } from "../platform/runtime.ts";
import type { RowKeys } from "../platform/storage/signing.ts";

/** 160 bits, as RFC 4226 §4 recommends. */
const SECRET_BYTES = 20;
/** Seconds of a time step, and digits of a code. Some authenticator apps support no other values. */
const PERIOD_SECONDS = 30;
const DIGITS = 6;
/** Time steps before and after the current one whose codes are accepted, because clocks differ (RFC 6238 §5.2). */
const WINDOW = 1;

const CIPHER = "aes-256-gcm";
/** Sizes of AES-GCM in bytes: NIST SP 800-38D §5.2.1. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * TOTP secrets (RFC 6238), which authenticator apps share with the service. They are encrypted with AES-256-GCM for the user's
 * row: `<version of the key>.<nonce, ciphertext and tag in base64url>`. The user's `uid` is additional data, so that a copied
 * secret can't be decrypted for another user.
 */
export interface TotpSecrets {
  /** False without the service's own key vault. */
  available: boolean;
  /**
   * Creates a secret for a user.
   *
   * @returns The encrypted secret, and the secret as the user enters it: in base32, and as an `otpauth:` URI for a QR code.
   * @throws {Problem} conflict without the service's own key vault. @throws {CloudFailure}
   */
  create(user: { uid: string; username: string }): Promise<{ encrypted: string; secret: string; uri: string }>;
  /**
   * Returns the time step whose code this is: the current one, the one before or the one after. Undefined for a wrong code.
   *
   * @throws {Problem} conflict without the service's own key vault. @throws {CloudFailure}
   * @throws {UnreadableTotpSecret} if the secret was changed or copied from another user, or its key was deleted.
   */
  stepOf(encrypted: string, uid: string, code: string, now: Date): Promise<number | undefined>;
}

/**
 * Creates the functions that encrypt and verify TOTP secrets.
 *
 * @param deps.keys - Keys of AES-256. Undefined without the service's own key vault.
 */
export function createTotpSecrets(deps: { keys: RowKeys | undefined; randomness: Randomness }): TotpSecrets {
  const { randomness } = deps;

  function requireKeys(): RowKeys {
    if (deps.keys) return deps.keys;
    throw new Problem(
      "conflict",
      "Secrets of authenticator apps are encrypted with a key in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL, or use a passkey.",
    );
  }

  async function encrypt(secret: Uint8Array, uid: string): Promise<string> {
    const { name, key } = await requireKeys().current();
    const nonce = randomness.bytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, key, nonce).setAAD(additionalData(uid));
    const encrypted = Buffer.concat([nonce, cipher.update(secret), cipher.final(), cipher.getAuthTag()]);
    return `${name}.${encrypted.toString("base64url")}`;
  }

  async function decrypt(encrypted: string, uid: string): Promise<Uint8Array> {
    const [name = "", text = ""] = encrypted.split(".");
    const key = await requireKeys().named(name);
    const bytes = Buffer.from(text, "base64url");
    if (!key || bytes.length < NONCE_BYTES + TAG_BYTES) throw new UnreadableTotpSecret();
    const decipher = createDecipheriv(CIPHER, key, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
      .setAAD(additionalData(uid))
      .setAuthTag(bytes.subarray(-TAG_BYTES));
    const start = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
    try {
      return Buffer.concat([start, decipher.final()]);
    } catch (error) {
      throw new UnreadableTotpSecret({ cause: error });
    }
  }

  async function totpOf(secret: Uint8Array, label = "") {
    const { Secret, TOTP } = await import("otpauth");
    // A copy, because the buffer of a small `Buffer` also contains others.
    const buffer = Uint8Array.from(secret).buffer;
    // Authenticator apps show the issuer next to the username.
    return new TOTP({ issuer: PRODUCT, label, secret: new Secret({ buffer }), period: PERIOD_SECONDS, digits: DIGITS });
  }

  return {
    available: deps.keys !== undefined,

    async create({ uid, username }) {
      const secret = randomness.bytes(SECRET_BYTES);
      const encrypted = await encrypt(secret, uid);
      const totp = await totpOf(secret, username);
      return { encrypted, secret: totp.secret.base32, uri: totp.toString() };
    },

    async stepOf(encrypted, uid, code, now) {
      const token = code.replace(/\s/g, "");
      const totp = await totpOf(await decrypt(encrypted, uid));
      const timestamp = now.getTime();
      // Returns null for text of another length, too.
      const delta = totp.validate({ token, timestamp, window: WINDOW });
      return delta === null ? undefined : totp.counter({ timestamp }) + delta;
    },
  };
}

/** The encrypted secret was changed, or belongs to another user, or its key was deleted. */
export class UnreadableTotpSecret extends Error {
  override readonly name = "UnreadableTotpSecret";
  constructor(options?: ErrorOptions) {
    super("the TOTP secret can't be decrypted", options);
  }
}

const additionalData = (uid: string): Uint8Array => Buffer.from(`totp\0${uid}`);
