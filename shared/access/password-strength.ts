import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

/** Maximum number of characters to evaluate, because the evaluation takes longer for longer passwords. The rest is ignored. */
const MAX_EVALUATED_CHARACTERS = 64;

/** A password with fewer letters besides the given words is built from these words. */
const MIN_OTHER_LETTERS = 4;

const zxcvbn = new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs, maxLength: MAX_EVALUATED_CHARACTERS });

/**
 * Returns zxcvbn's score, from 0 to 4. Scores 0 and 1: the password is found with at most 10^6 guesses. 2: with 10^8. 3: with
 * 10^10. 4: with more. Takes up to 100 ms.
 * https://www.usenix.org/conference/usenixsecurity16/technical-sessions/presentation/wheeler
 *
 * @param words - Words about the user, such as the username. They and their usual variations are guessed first.
 */
export const strengthOf = (password: string, words: string[]): number => zxcvbn.check(password, words).score;

/**
 * Returns true if the password contains any of the words, also reversed or with digits for letters, and little else but digits
 * and signs. zxcvbn gives passwords with at least three such parts a high score, as in `Summer2026!`.
 */
export function isBuiltFrom(password: string, words: string[]): boolean {
  const otherParts = zxcvbn
    .check(password, words)
    .sequence.filter((match) => match.dictionaryName !== "userInputs")
    .map(({ token }) => token.toLowerCase());
  const longestFirst = words.map((word) => word.toLowerCase()).sort((a, b) => b.length - a.length);
  const rest = otherParts.map((part) => longestFirst.reduce((text, word) => text.replaceAll(word, ""), part)).join(" ");
  const otherLetters = rest.match(/\p{L}/gu)?.length ?? 0;
  return rest.length < password.length && otherLetters < MIN_OTHER_LETTERS;
}
