import * as z from "zod";

// Schemas of the second factor in the API: methods, passkeys as browsers send and receive them, and the requests that enroll and
// remove methods.

export const SECOND_FACTOR_METHODS = ["totp", "passkey", "recoveryCode"] as const;
const Method = z.enum(SECOND_FACTOR_METHODS);
export type SecondFactorMethod = z.infer<typeof Method>;

/** Bytes in base64url, at most `max` characters. */
const bytes = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .regex(/^[\w-]+$/, "must be base64url without padding");

/** Maximum length of a credential ID: 1,023 bytes (WebAuthn level 3 §4). */
const credentialId = bytes(1364);
/** First members of what a browser sends about a passkey. */
const passkeyId = {
  id: credentialId.meta({ description: "Credential ID of the passkey." }),
  rawId: credentialId.meta({ description: "Same as `id`." }),
  type: z.literal("public-key").meta({ description: "Always `public-key`." }),
};
/** Last members, which browsers send and the service ignores. */
const ignoredMembers = {
  clientExtensionResults: z
    .record(z.string().max(64), z.unknown())
    .default({})
    .meta({ description: "Results of extensions. Ignored." }),
  authenticatorAttachment: z
    .string()
    .max(32)
    .nullish()
    .meta({ description: "How the authenticator is attached. Ignored." }),
};
const clientData = bytes(4096).meta({ description: "The browser's `clientDataJSON`: type, challenge and origin." });

/** `AuthenticationResponseJSON` of https://w3c.github.io/webauthn/ */
export const PasskeyAssertion = z
  .strictObject({
    ...passkeyId,
    response: z
      .strictObject({
        clientDataJSON: clientData,
        authenticatorData: bytes(8192).meta({ description: "Data that the authenticator signed." }),
        signature: bytes(2048).meta({ description: "Signature of the authenticator." }),
        userHandle: bytes(128).nullish().meta({ description: "User of a discoverable passkey. Ignored." }),
      })
      .meta({ description: "Answer of the authenticator." }),
    ...ignoredMembers,
  })
  .meta({ id: "PasskeyAssertion" });
export type PasskeyAssertion = z.output<typeof PasskeyAssertion>;

/** `RegistrationResponseJSON` of https://w3c.github.io/webauthn/ */
const PasskeyRegistration = z
  .strictObject({
    ...passkeyId,
    response: z
      .strictObject({
        clientDataJSON: clientData,
        attestationObject: bytes(65_536).meta({ description: "Public key and attestation of the authenticator." }),
        transports: z
          .array(z.string().max(32))
          .max(16)
          .optional()
          .meta({ description: "How browsers reach the authenticator, such as `internal` or `usb`." }),
        authenticatorData: bytes(65_536).optional().meta({ description: "Part of `attestationObject`. Ignored." }),
        publicKey: bytes(65_536).nullish().meta({ description: "Part of `attestationObject`. Ignored." }),
        publicKeyAlgorithm: z.int().optional().meta({ description: "Part of `attestationObject`. Ignored." }),
      })
      .meta({ description: "Answer of the authenticator." }),
    ...ignoredMembers,
  })
  .meta({ id: "PasskeyRegistration" });
export type PasskeyRegistration = z.output<typeof PasskeyRegistration>;

const descriptors = z.array(
  z.object({
    id: z.string().meta({ description: "Credential ID of a passkey, in base64url.", example: "nA3fVQ" }),
    type: z.literal("public-key").meta({ description: "Always `public-key`." }),
    transports: z
      .array(z.string())
      .optional()
      .meta({ description: "How browsers reach the authenticator.", example: ["internal"] }),
  }),
);
const challenge = z
  .string()
  .meta({ description: "Challenge in base64url. Usable once, within five minutes.", example: "b8Xk0cUu2W5q" });
const timeout = z.int().meta({ description: "Milliseconds that the browser waits for the user." });

/** `PublicKeyCredentialRequestOptionsJSON` of https://w3c.github.io/webauthn/ */
const PasskeyRequestOptions = z
  .looseObject({
    challenge,
    timeout,
    rpId: z
      .string()
      .meta({ description: "Host name of this service, from PUBLIC_BASE_URL.", example: "lifecycle.example.com" }),
    allowCredentials: descriptors.meta({ description: "Passkeys of the user." }),
    userVerification: z
      .string()
      .meta({ description: "Whether the authenticator asks for a PIN or biometrics.", example: "preferred" }),
  })
  .meta({ id: "PasskeyRequestOptions" });
export type PasskeyRequestOptions = z.output<typeof PasskeyRequestOptions>;

/** `PublicKeyCredentialCreationOptionsJSON` of https://w3c.github.io/webauthn/ */
export const PasskeyCreationOptions = z
  .looseObject({
    challenge,
    timeout,
    rp: z
      .object({
        id: z
          .string()
          .meta({ description: "Host name of this service, from PUBLIC_BASE_URL.", example: "lifecycle.example.com" }),
        name: z
          .string()
          .meta({ description: "Name of this service.", example: "Credential and Secret Lifecycle Service" }),
      })
      .meta({ description: "This service." }),
    user: z
      .object({
        id: z.string().meta({ description: "ID of the user in base64url.", example: "MDFLQjla" }),
        name: z.string().meta({ description: "Username.", example: "maria.lopez" }),
        displayName: z.string().meta({ description: "Username.", example: "maria.lopez" }),
      })
      .meta({ description: "The user." }),
    pubKeyCredParams: z
      .array(
        z.object({
          alg: z.int().meta({ description: "COSE algorithm." }),
          type: z.literal("public-key").meta({ description: "Always `public-key`." }),
        }),
      )
      .meta({ description: "Accepted signature algorithms." }),
    excludeCredentials: descriptors.meta({ description: "Passkeys that the user already has." }),
  })
  .meta({ id: "PasskeyCreationOptions" });
export type PasskeyCreationOptions = z.output<typeof PasskeyCreationOptions>;

/** Members of a request that contain a second factor. */
export const factorMembers = {
  totp: z
    .string()
    .min(1)
    .max(32)
    .optional()
    .meta({ description: "Second factor: the current code of an authenticator app.", example: "123456" }),
  recoveryCode: z.string().min(1).max(64).optional().meta({
    description: "Second factor: one of the recovery codes. Each works once.",
    example: "7k3m-q0vd-x2ha-9wcz-4nte-8b1r",
  }),
  passkey: PasskeyAssertion.optional().meta({
    description: "Second factor: the browser's answer to `passkeyOptions`.",
  }),
};

/** Returns whether a request contains at most one second factor. */
export const hasOneFactorAtMost = (given: { totp?: unknown; recoveryCode?: unknown; passkey?: unknown }): boolean =>
  [given.totp, given.recoveryCode, given.passkey].filter((factor) => factor !== undefined).length <= 1;
export const ONE_FACTOR = { path: ["totp"], error: "must be sent without recoveryCode and passkey" };

const currentPassword = z.string().min(1).max(256).meta({
  format: "password",
  writeOnly: true,
  description: "Current password. Never returned.",
});

/** How a signed-in user confirms a change of the second factor. */
export const IdentityProof = z
  .strictObject({ currentPassword, ...factorMembers })
  .refine(hasOneFactorAtMost, ONE_FACTOR)
  .meta({ id: "IdentityProof" });

/** A second factor with which a signed-in user confirms the session or token. */
export const SecondFactorGiven = z
  .strictObject(factorMembers)
  .refine(hasOneFactorAtMost, ONE_FACTOR)
  .meta({ id: "StepUp" });

export const SteppedUp = z
  .object({
    confirmedUntil: z.iso.datetime().meta({ description: "Time until which this token or session is confirmed." }),
  })
  .meta({ id: "SteppedUp" });

export const FactorChallenge = z
  .object({
    methods: z.array(Method).meta({ description: "Second factors that the user can send." }),
    passkeyOptions: PasskeyRequestOptions.nullable().meta({
      description: "Options for `navigator.credentials.get`. Null if the user has no passkey for this address.",
    }),
  })
  .meta({ id: "SecondFactorChallenge" });

const instant = z.iso.datetime();

export const SecondFactorView = z
  .object({
    enrolled: z.boolean().meta({ description: "True if a sign-in with the password needs a second factor." }),
    required: z.boolean().meta({
      description: "True if the setting requireSecondFactor requires one and the user has none.",
    }),
    methods: z
      .array(
        z.object({
          id: z.string().meta({ description: "ID of the method. `totp` for the authenticator app." }),
          kind: z.enum(["totp", "passkey"]).meta({ description: "An authenticator app, or a passkey." }),
          name: z.string().meta({ description: "Name of the method.", example: "Laptop" }),
          createdAt: instant.meta({ description: "Time when the method was added." }),
          lastUsedAt: instant.nullable().meta({ description: "Time of the last use. Null if never used." }),
        }),
      )
      .meta({ description: "Enrolled methods, oldest first." }),
    recoveryCodesLeft: z.int().meta({ description: "Number of unused recovery codes." }),
    totpAvailable: z.boolean().meta({ description: "False if the service has no key vault of its own." }),
    passkeysAvailable: z.boolean().meta({
      description: "False if PUBLIC_BASE_URL is missing or is not an https:// address with a host name.",
    }),
  })
  .meta({ id: "SecondFactor" });
export type SecondFactorView = z.infer<typeof SecondFactorView>;

export const TotpStarted = z
  .object({
    secret: z.string().meta({
      description: "Secret for the authenticator app, in base32. Returned only once.",
      example: "JBSWY3DPEHPK3PXP",
    }),
    uri: z.string().meta({
      description: "The secret as an `otpauth:` URI, for a QR code.",
      example: "otpauth://totp/Credential%20lifecycle:maria.lopez?secret=JBSWY3DPEHPK3PXP",
    }),
    expiresAt: instant.meta({ description: "Time until which a code can confirm the secret." }),
  })
  .meta({ id: "TotpStarted" });

export const TotpCode = z
  .strictObject({
    code: z.string().min(1).max(32).meta({ description: "Current code of the authenticator app.", example: "123456" }),
  })
  .meta({ id: "TotpCode" });

export const PasskeyStarted = z
  .object({ options: PasskeyCreationOptions.meta({ description: "Options for `navigator.credentials.create`." }) })
  .meta({ id: "PasskeyStarted" });

export const NewPasskey = z
  .strictObject({
    name: z.string().trim().min(1).max(100).meta({ description: "Name of the passkey.", example: "Laptop" }),
    passkey: PasskeyRegistration.meta({ description: "The browser's answer to the options." }),
  })
  .meta({ id: "NewPasskey" });

const codes = z
  .array(z.string())
  .meta({ description: "Ten recovery codes. Returned only once.", example: ["7k3m-q0vd-x2ha-9wcz-4nte-8b1r"] });

export const MethodAdded = z
  .object({
    recoveryCodes: codes.nullable().meta({
      description: "Ten recovery codes, returned only once. Null if the user already had recovery codes.",
      example: ["7k3m-q0vd-x2ha-9wcz-4nte-8b1r"],
    }),
  })
  .meta({ id: "SecondFactorAdded" });

export const RecoveryCodes = z.object({ recoveryCodes: codes }).meta({ id: "RecoveryCodes" });
