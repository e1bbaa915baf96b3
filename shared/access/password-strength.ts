import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

/** Characters that are looked at, since the time grows with them: what is longer and weak repeats its beginning. */
const MAX_LOOKED_AT = 64;

const zxcvbn = new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs, maxLength: MAX_LOOKED_AT });

/**
 * zxcvbn's score: 0 and 1 are guessed at once, 2 within 10^8 guesses, 3 within 10^10, 4 beyond. Takes up to a tenth of a
 * second. https://www.usenix.org/conference/usenixsecurity16/technical-sessions/presentation/wheeler
 *
 * @param words - What is known of the user: guessed first, as they are and changed in the usual ways.
 */
export const strengthOf = (password: string, words: string[]): number => zxcvbn.check(password, words).score;
