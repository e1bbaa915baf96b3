import { Problem } from "../platform/http/problem.ts";

/** zxcvbn's score from 0 to 4. Below 3, fewer than 10^8 guesses find the password. */
const MIN_SCORE = 3;

/** Words about this service, which attackers try first. */
const SERVICE_WORDS = ["credential", "lifecycle", "keyvault", "service"];

/**
 * Throws if a new password is easy to guess: common passwords and patterns, and variations of the user's name or email address,
 * as NIST SP 800-63B-4, 3.1.1.2 requires.
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
  const { strengthOf } = await import("./password-strength.ts");
  const names = [user.username, user.email ?? ""];
  const parts = names.flatMap((name) => name.split(/[._@+-]/));
  const words = [...names, ...parts, ...SERVICE_WORDS].filter((word) => word.length > 2);
  if (strengthOf(password, words) >= MIN_SCORE) return;
  const path = `body.${member}`;
  const message =
    "is easy to guess: choose a password that is not common, not based on a name of the user and not a pattern";
  throw new Problem("invalidRequest", `${path} ${message}.`, { errors: [{ path, message }] });
}
