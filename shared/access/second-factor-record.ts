import * as z from "zod";

// The second factor of a user, as stored in the user's row. A sign-in uses a code, challenge or recovery code up by replacing the
// row on its ETag, so that no other request on any instance can use it too.

const totp = z.object({
  /** The encrypted secret: see `TotpSecrets`. */
  secret: z.string(),
  createdAt: z.string(),
  /** The newest time step whose code was used. Codes of this step and of earlier ones are rejected. */
  lastStep: z.number(),
  lastUsedAt: z.string().optional(),
});

const passkey = z.object({
  id: z.string(),
  name: z.string(),
  /** The credential ID that the authenticator chose, in base64url. */
  credentialId: z.string(),
  /** COSE public key in base64url. */
  publicKey: z.string(),
  /** The authenticator's signature counter. 0 if it has none. */
  counter: z.number(),
  transports: z.array(z.string()),
  /** The relying party ID (a host name) for which the authenticator created the passkey. It works for no other. */
  rpId: z.string(),
  createdAt: z.string(),
  lastUsedAt: z.string().optional(),
});
export type PasskeyRecord = z.infer<typeof passkey>;

export const secondFactor = z.object({
  totp: totp.optional(),
  /** A TOTP secret that the user has not confirmed with a code yet. */
  pendingTotp: z.object({ secret: z.string(), expiresAt: z.string() }).optional(),
  passkeys: z.array(passkey),
  /** Hashes of the unused recovery codes. */
  recoveryCodes: z.array(z.string()),
  /** Passkey challenges that were used and have not expired yet. */
  usedChallenges: z.array(z.object({ id: z.string(), until: z.string() })),
  /** The request that used a factor last. A request whose write was applied, but not answered, recognizes itself by it. */
  lastUse: z.string().optional(),
});
export type SecondFactor = z.infer<typeof secondFactor>;

/** The second factor of a user without one. */
export const NO_SECOND_FACTOR: SecondFactor = { passkeys: [], recoveryCodes: [], usedChallenges: [] };

/** Returns true if sign-ins with the password need a second factor. An unconfirmed TOTP secret does not count. */
export const hasSecondFactor = (user: { secondFactor?: SecondFactor | undefined }): boolean =>
  user.secondFactor !== undefined && (user.secondFactor.totp !== undefined || user.secondFactor.passkeys.length > 0);
