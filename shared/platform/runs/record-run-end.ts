import type { AuditEvent, AuditRecorder } from "../../audit/event.ts";
import { IntervalSealed } from "../../audit/interval.ts";
import type { Clock, Randomness } from "../runtime.ts";

/** Maximum number of entry IDs that are tried. More than two are needed only if a clock is wrong. */
const ATTEMPTS = 3;

/**
 * Appends the end of a run to the audit log under the entry ID stored in its record, so that a retry adds no second entry.
 * Entries belong to time intervals, which are sealed (closed and signed) later. If the interval of the ID has been sealed
 * since, for example after a crash of the worker, stores and uses a new ID.
 *
 * @param storeEntryId - Stores the new ID. If it throws, because another worker has the run, no entry is appended.
 */
export async function recordRunEnd(
  audit: AuditRecorder,
  event: AuditEvent & { id: string },
  deps: { storeEntryId: (entryId: string) => Promise<unknown>; clock: Clock; randomness: Randomness },
): Promise<void> {
  const { storeEntryId, clock, randomness } = deps;
  let { id } = event;
  for (let attempt = 1; ; attempt++) {
    try {
      return await audit.append({ ...event, id });
    } catch (error) {
      if (!(error instanceof IntervalSealed) || attempt === ATTEMPTS) throw error;
      id = randomness.ulid(clock.now());
      await storeEntryId(id);
    }
  }
}
