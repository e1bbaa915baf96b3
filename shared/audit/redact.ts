/**
 * Names of members whose value is never stored in the log. Compared without case and separators. An explicit list: a pattern
 * such as /secret/ would also hide details that an auditor needs (`secretId`, `sourceSecret`, `tokenId`). A bare `key` is not
 * on the list, because in this service it is the name of a setting.
 */
const SECRET_NAMES = new Set(
  `password passwd currentPassword newPassword oldPassword passwordHash passphrase
   secret secrets secretValue clientSecret oidcClientSecret webhookSecret sharedSecret secretText
   apiKey accessKey accessKeyId secretAccessKey accountKey privateKey signingKey encryptionKey masterKey functionKey
   hostKey licenseKey licenceKey jwtSigningKeys auditSigningKeys
   token tokens accessToken refreshToken idToken sessionToken bearerToken csrfToken sasToken sas signature jwt assertion
   samlResponse codeVerifier clientAssertion
   credential credentials authorization cookie setCookie connectionString webhookUrl pem pfx`
    .split(/\s+/)
    .map(plainName),
);

/** Replacement of values that are not stored. */
export const REDACTED = "[redacted]";

/**
 * Maximum depth, enough for every configuration of this service. Deeper levels are left out, so that no event can exhaust the
 * stack.
 */
const MAX_DEPTH = 12;

function plainName(name: string): string {
  return name.replace(/[^A-Za-z0-9]/g, "").toLowerCase();
}

/**
 * Returns a copy of `value` in which members with names of secrets are `[redacted]`. Values that can't be secrets stay: null
 * and undefined, booleans (`password: true`, "was changed") and numbers (`secrets: 12`, a count).
 */
export function redact(value: unknown, depth = 0): unknown {
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  if (depth === MAX_DEPTH) return "[too deep]";
  if (value instanceof Uint8Array) return `[${value.length} bytes]`;
  if (Array.isArray(value)) return value.map((item) => redact(item, depth + 1));
  const copy: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    const hidden = SECRET_NAMES.has(plainName(name)) && !["undefined", "boolean", "number"].includes(typeof member);
    copy.push([name, hidden && member !== null ? REDACTED : redact(member, depth + 1)]);
  }
  return Object.fromEntries(copy);
}
