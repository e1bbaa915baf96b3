import type { Appender, AuditEvent } from "../../audit/event.ts";
import { IntervalSealed } from "../../audit/interval.ts";
import type { Clock, Randomness } from "../runtime.ts";

/** How many ids the entry of an end may get in one go; more than two takes a clock that is wrong. */
const ATTEMPTS = 3;

/**
 * Enters the end of a run in the audit log, once under the id that its record keeps. Where a worker died long ago before it could
 * enter it, and the time of that id is sealed, a new id is kept and taken.
 *
 * @param keep - Writes the new id down; where it throws, since another worker has the run, nothing is entered.
 */
export async function enterEnd(
  audit: Appender,
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
