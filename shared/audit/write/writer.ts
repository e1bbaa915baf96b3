import { decodeTime } from "ulid";
import type { Randomness } from "../../platform/runtime.ts";
import { entryOf } from "../entry.ts";
import type { AuditEvent, AuditRecorder } from "../event.ts";
import { IntervalSealed, intervalOf } from "../interval.ts";
import { createCounter, readingGroup, refusalGroup } from "./counted-entries.ts";
import { createEntryWriter, type EntryWriterDependencies, MAX_ATTEMPTS } from "./entry-writer.ts";
import { createSequences } from "./sequences.ts";

/** Records events in the audit log. */
export interface Writer extends AuditRecorder {
  /**
   * Like `append`, but repeats of one rejected request within a minute share an entry with a count and their request ids.
   * Requests are the same if actor, address, type, target, and `reason` and `code` of the details are equal.
   */
  refused(event: AuditEvent): Promise<void>;
  /**
   * Like `append`, but readings of one kind (type) and filter (target) by one actor in 15 minutes share an entry with a count.
   */
  reading(event: AuditEvent): Promise<void>;
}

/** Creates the recorder of events, which writes each event or counts its repeats. */
export function createWriter(deps: Omit<EntryWriterDependencies, "sequences"> & { randomness: Randomness }): Writer {
  const { clock, randomness, trust } = deps;
  const sequences = createSequences(randomness, trust.authentication);
  const writer = createEntryWriter({ ...deps, sequences });
  const count = createCounter({ ...deps, sequences, writer });

  /** Records an event under the id that its caller chose. If an entry with that id exists, the event is already recorded. */
  async function appendWithId(id: string, event: AuditEvent): Promise<void> {
    const occurredAtMs = decodeTime(id);
    const interval = intervalOf(occurredAtMs);
    const entry = entryOf(event, id, occurredAtMs);
    if ((await writer.insert(interval, entry)) === "closed") throw new IntervalSealed(interval);
    await writer.writeIndex(entry);
  }

  return {
    async append(event) {
      if (event.id !== undefined) return await appendWithId(event.id, event);
      /** Start of the first interval that is not sealed, once an interval was found closed. */
      let notBefore = 0;
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        // The entry's time is the time of its id: a generator of monotonic ids may be slightly ahead of the clock.
        const now = clock.now().getTime();
        const id = randomness.ulid(new Date(Math.max(now, notBefore)));
        const occurredAtMs = decodeTime(id);
        const interval = intervalOf(occurredAtMs);
        const entry = entryOf(event, id, occurredAtMs, notBefore > now ? now : undefined);
        if ((await writer.insert(interval, entry)) !== "closed") return await writer.writeIndex(entry);
        notBefore = await writer.earliestOpenTime(interval);
      }
      throw new Error(`The audit entry ${event.type} found every interval sealed.`);
    },
    refused: (event) => count(event, refusalGroup(event)),
    reading: (event) => count(event, readingGroup(event)),
  };
}
