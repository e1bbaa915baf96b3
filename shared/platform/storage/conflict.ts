import { RowChanged, RowExists, RowMissing } from "./errors.ts";

const ATTEMPTS = 5;

/** True when another writer was faster: the row is no longer, or already, what the write expected. */
export const isConflict = (error: unknown): error is RowChanged | RowExists | RowMissing =>
  error instanceof RowChanged || error instanceof RowExists || error instanceof RowMissing;

/**
 * Does it again from the start when another writer of the same rows was faster. `work` reads what it needs itself, so that
 * each attempt starts from what stands.
 *
 * @throws the last conflict after `attempts` (5 unless given), and at once whatever is no conflict.
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

/** What the write answers; undefined when another writer has changed the row since it was read. */
export async function unlessChanged<T>(write: Promise<T>): Promise<T | undefined> {
  try {
    return await write;
  } catch (error) {
    if (error instanceof RowChanged) return undefined;
    throw error;
  }
}
