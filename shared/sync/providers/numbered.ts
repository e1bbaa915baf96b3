import { type ProviderCall, syncFailure } from "./failures.ts";
import { markId } from "./mark.ts";
import type { Mark, TargetState, Written } from "./provider.ts";

/**
 * Writes to a store that numbers versions itself and keeps notes beside them, not in them. The note is written before the
 * value, as an intention, and again after it. So a death in between is seen, and the value is not written twice.
 */
export interface NumberedStore {
  /** The number of the current version, 0 for none, and the note that stands beside the versions. */
  look(): Promise<{ current: number; note: string | undefined }>;
  /** Writes the note, with whose it is. */
  note(text: string): Promise<void>;
  /** Writes the version after `current`. @returns its number @throws {SyncFailure} `changedMeanwhile` */
  write(current: number): Promise<number>;
  /** Whether this version is usable and has the value that is to be written; false where that may not be read. */
  holdsValue(version: number): Promise<boolean>;
}

/** The `markId` that a note gives to the version with this number. An intention gives none. */
export const notedMark = (note: string | undefined, current: number): string | undefined => {
  const { id, version, intended } = noteIn(note);
  return version === current && !intended ? id : undefined;
};

/** @throws {SyncFailure} `changedMeanwhile` where the version is no longer the one that is expected. */
export async function writeNumbered(
  store: NumberedStore,
  mark: Mark,
  expected: TargetState,
  call: ProviderCall,
): Promise<Written> {
  const id = markId(mark);
  const { current, note } = await store.look();
  if (String(current) !== (expected.version ?? "0")) {
    throw syncFailure("changedMeanwhile", call, "someone else wrote a version in between");
  }
  if (notedMark(note, current) === id) return { version: String(current), created: false };
  const before = noteIn(note);
  // Somebody else may have written that version between the intention and a death: only its value tells.
  if (before.intended && before.id === id && before.version === current && (await store.holdsValue(current))) {
    await store.note(noteOf(id, current));
    return { version: String(current), created: current === 1 };
  }
  await store.note(`${noteOf(id, current + 1)} intended`);
  const version = await store.write(current);
  await store.note(noteOf(id, version));
  return { version: String(version), created: current === 0 };
}

const noteOf = (id: string, version: number): string => `${id} version ${version}`;

function noteIn(note: string | undefined): { id?: string; version?: number; intended: boolean } {
  const [, id, version, intended] = /^([0-9a-f-]{36}) version (\d+)( intended)?$/.exec(note ?? "") ?? [];
  return id === undefined ? { intended: false } : { id, version: Number(version), intended: intended !== undefined };
}
