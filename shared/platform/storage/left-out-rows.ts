import { countLeftOut, isAnsweringGet } from "../incomplete-answer.ts";
import { StorageCorrupt } from "./errors.ts";

/**
 * Returns the result of `read`. In the answer to a GET request, a row that can't be read is left out and counted: the result is
 * then undefined. For rows that only add details to an answer.
 *
 * @throws StorageCorrupt outside of a GET request, so that work is not based on a missing row.
 */
export async function undefinedIfLeftOut<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (!(error instanceof StorageCorrupt) || !isAnsweringGet()) throw error;
    countLeftOut(error);
    return undefined;
  }
}
