import { Problem } from "../platform/http/problem.ts";

/** zxcvbn's score from 0 to 4. Below 3, fewer than 10^8 guesses find the password. */
const MIN_SCORE = 3;

/**
 * Words that attackers try first: about this service, and the seasons and months of passwords that must be changed regularly
 * (OWASP ASVS 5.0, 6.2.11).
 */
const CONTEXT_WORDS = [
  "credential",
  "lifecycle",
  "keyvault",
  "service",
  "spring",
  "summer",
  "autumn",
  "fall",
  "winter",
  "january",
  "february",
  "march",
  "april",
  "may",
  "june",
  "july",
  "august",
  "september",
  "october",
  "november",
  "december",
];

/**
 * Throws if a new password is easy to guess: common passwords and patterns, variations of the user's name or email address, and
 * such words with only signs and digits around them. NIST SP 800-63B-4, 3.1.1.2, and OWASP ASVS 5.0, 6.2, require this check.
 *
 * @param member - The member of the body that the problem names.
 * @throws {Problem} invalidRequest
 */
export async function rejectWeakPassword(
  password: string,
  user: { username: string; email?: string | null | undefined },
  member: string,
): Promise<void> {
  // The dictionaries take 25 MB and 250 ms, so load them only when a password is chosen.
  const { isBuiltFrom, strengthOf } = await import("./password-strength.ts");
  const names = [user.username, user.email ?? ""];
  const parts = names.flatMap((name) => name.split(/[._@+-]/));
  const words = [...names, ...parts, ...CONTEXT_WORDS].filter((word) => word.length > 2);
  if (strengthOf(password, words) >= MIN_SCORE && !isBuiltFrom(password, words)) return;
  const path = `body.${member}`;
  const message =
    "is easy to guess: choose four or more unrelated words, without names of the user or of the service, seasons, months, years or patterns";
  throw new Problem("invalidRequest", `${path} ${message}.`, { errors: [{ path, message }] });
}
