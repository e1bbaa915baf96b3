import { type ProviderCall, syncFailure } from "./failures.ts";
import { markId } from "./ownership-mark.ts";
import type { Mark, TargetState, Written } from "./provider.ts";

/**
 * A store, such as Google Secret Manager, that numbers its versions and can't store a mark in a version. It stores a note
 * beside them: the ID of a mark, and the version that was written with it. The note is written before the value as an
 * intention, and again after the value. So the next call detects a crash in between.
 */
export interface NumberedStore {
  /** Returns the number of the current version (0 if there is none) and the note. */
  readCurrent(): Promise<{ current: number; note: string | undefined }>;
  /** Writes the note, including the owner. */
  writeNote(text: string): Promise<void>;
  /** Writes the version after `current`. @returns The number of the new version. @throws {SyncFailure} `changedMeanwhile` */
  write(current: number): Promise<number>;
  /**
   * Returns whether this version is usable and has the value to write. False if the value can't be read: then it is written
   * once more.
   */
  hasValue(version: number): Promise<boolean>;
}

/** Returns the `markId` that a note assigns to this version. Undefined for an intention: whether it was written is unknown. */
export const notedMark = (note: string | undefined, current: number): string | undefined => {
  const { id, version, intended } = parseNote(note);
  return version === current && !intended ? id : undefined;
};

/**
 * Writes a value with its mark. A repeated call with the same mark writes nothing. Exception: after a crash it writes the value
 * once more if the service may not read values of the store.
 *
 * @throws {SyncFailure} `changedMeanwhile` if the current version is not the expected one.
 */
export async function writeNumbered(
  store: NumberedStore,
  mark: Mark,
  expected: TargetState,
  call: ProviderCall,
): Promise<Written> {
  const id = markId(mark);
  const { current, note } = await store.readCurrent();
  if (String(current) !== (expected.version ?? "0")) {
    throw syncFailure("changedMeanwhile", call, "another writer wrote a version in the meantime");
  }
  // An earlier call has already written this value.
  if (notedMark(note, current) === id) return { version: String(current), created: false };
  const previousNote = parseNote(note);
  // An earlier call noted the intention to write this version, and then crashed. If the version has the value, that call wrote
  // it, and only the final note is missing. Otherwise another writer wrote the version after the crash.
  if (
    previousNote.intended &&
    previousNote.id === id &&
    previousNote.version === current &&
    (await store.hasValue(current))
  ) {
    await store.writeNote(noteOf(id, current));
    // If it is the first version, that call created the target.
    return { version: String(current), created: current === 1 };
  }
  await store.writeNote(`${noteOf(id, current + 1)} intended`);
  const version = await store.write(current);
  await store.writeNote(noteOf(id, version));
  return { version: String(version), created: current === 0 };
}

const noteOf = (id: string, version: number): string => `${id} version ${version}`;

/** Parses a note such as `5f2c…-… version 3`, or `5f2c…-… version 3 intended` for a write that is not confirmed yet. */
function parseNote(note: string | undefined): { id?: string; version?: number; intended: boolean } {
  const [, id, version, intended] = /^([0-9a-f-]{36}) version (\d+)( intended)?$/.exec(note ?? "") ?? [];
  return id === undefined ? { intended: false } : { id, version: Number(version), intended: intended !== undefined };
}
