import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

/** Maximum number of characters to evaluate, because the evaluation takes longer for longer passwords. The rest is ignored. */
const MAX_EVALUATED_CHARACTERS = 64;

const zxcvbn = new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs, maxLength: MAX_EVALUATED_CHARACTERS });

/**
 * Returns zxcvbn's score, from 0 to 4. Scores 0 and 1: the password is found with at most 10^6 guesses. 2: with 10^8. 3: with
 * 10^10. 4: with more. Takes up to 100 ms.
 * https://www.usenix.org/conference/usenixsecurity16/technical-sessions/presentation/wheeler
 *
 * @param words - Words about the user, such as the username. They and their usual variations are guessed first.
 */
export const strengthOf = (password: string, words: string[]): number => zxcvbn.check(password, words).score;
