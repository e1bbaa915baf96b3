import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

/**
 * Maximum number of characters to evaluate, because the duration grows with the length. A longer weak password repeats its
 * beginning.
 */
const MAX_LOOKED_AT = 64;

const zxcvbn = new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs, maxLength: MAX_LOOKED_AT });

/**
 * Returns zxcvbn's score: 0 and 1 are guessed at once, 2 within 10^8 guesses, 3 within 10^10, 4 needs more. Takes up to 100 ms.
 * https://www.usenix.org/conference/usenixsecurity16/technical-sessions/presentation/wheeler
 *
 * @param words - Words about the user, which are guessed first, also in the usual variations.
 */
export const strengthOf = (password: string, words: string[]): number => zxcvbn.check(password, words).score;
