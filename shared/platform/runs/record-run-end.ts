import type { AuditEvent, AuditRecorder } from "../../audit/event.ts";
import { IntervalSealed } from "../../audit/interval.ts";
import type { Clock, Randomness } from "../runtime.ts";

/** Maximum number of entry ids for one end. More than two are needed only if a clock is wrong. */
const ATTEMPTS = 3;

/**
 * Appends the end of a run to the audit log under the entry id stored in its record, so that a retry adds no second entry. If
 * the worker crashed and the interval of this id has been sealed since, stores and uses a new id.
 *
 * @param keep - Stores the new id. If it throws, because another worker has the run, no entry is appended.
 */
export async function recordRunEnd(
  audit: AuditRecorder,
  event: AuditEvent & { id: string },
  { keep, clock, randomness }: { keep: (entryId: string) => Promise<unknown>; clock: Clock; randomness: Randomness },
): Promise<void> {
  let { id } = event;
  for (let attempt = 1; ; attempt++) {
    try {
      return await audit.append({ ...event, id });
    } catch (error) {
      if (!(error instanceof IntervalSealed) || attempt === ATTEMPTS) throw error;
      id = randomness.ulid(clock.now());
      await keep(id);
    }
  }
}
