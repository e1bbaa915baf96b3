import { RowChanged, RowExists, RowMissing } from "./errors.ts";

const ATTEMPTS = 5;

/** Returns whether a write failed because another writer changed, inserted or removed the row. */
export const isConflict = (error: unknown): error is RowChanged | RowExists | RowMissing =>
  error instanceof RowChanged || error instanceof RowExists || error instanceof RowMissing;

/**
 * Runs `work` again from the start if another writer changed the same rows. `work` reads its rows itself, so each attempt
 * starts from the current state.
 *
 * @throws the last conflict after `attempts` (default 5); any other error at once.
 */
export async function repeatOnConflict<T>(work: (attempt: number) => Promise<T>, attempts = ATTEMPTS): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work(attempt);
    } catch (error) {
      if (attempt === attempts || !isConflict(error)) throw error;
    }
  }
}

/** Returns the result of the write, or undefined if another writer changed the row since it was read. */
export async function undefinedIfChanged<T>(write: Promise<T>): Promise<T | undefined> {
  try {
    return await write;
  } catch (error) {
    if (error instanceof RowChanged) return undefined;
    throw error;
  }
}
