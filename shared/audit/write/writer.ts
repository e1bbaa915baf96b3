import { decodeTime } from "ulid";
import type { Randomness } from "../../platform/runtime.ts";
import { entryOf, entryText } from "../entry.ts";
import type { AuditEvent, AuditRecorder } from "../event.ts";
import { IntervalSealed, intervalOf } from "../interval.ts";
import { asReading, asRefusal, createCounter } from "./counted-entries.ts";
import { createEntryWriter, type EntryWriterDependencies, MAX_CLOSED } from "./entry-writer.ts";

/** Records events in the audit log. */
export interface Writer extends AuditRecorder {
  /**
   * Like `append`, but repeats of one rejected request (actor, address, type, target) within a minute share an entry with a
   * count.
   */
  refused(event: AuditEvent): Promise<void>;
  /**
   * Like `append`, but readings of one kind (type) and filter (target) by one actor in 15 minutes share an entry with a count.
   */
  reading(event: AuditEvent): Promise<void>;
}

export function createWriter(deps: EntryWriterDependencies & { randomness: Randomness }): Writer {
  const { clock, randomness } = deps;
  const writer = createEntryWriter(deps);
  const count = createCounter({ ...deps, writer });

  /** Records an event under its own id. An existing entry with that id is the entry of this event. */
  async function appendUnder(id: string, event: AuditEvent): Promise<void> {
    const at = decodeTime(id);
    const entry = entryOf(event, id, at);
    const entered = await writer.enter(intervalOf(at), id, entryText(entry));
    if (entered === "closed") throw new IntervalSealed(intervalOf(at));
    await writer.index(entry);
  }

  return {
    async append(event) {
      if (event.id !== undefined) return await appendUnder(event.id, event);
      let notBefore = 0;
      for (let attempt = 0; attempt < MAX_CLOSED; attempt++) {
        // The entry's time is the time of its id: a generator of monotonic ids may be slightly ahead of the clock.
        const now = clock.now().getTime();
        const id = randomness.ulid(new Date(Math.max(now, notBefore)));
        const at = decodeTime(id);
        const entry = entryOf(event, id, at, notBefore > now ? now : undefined);
        if ((await writer.enter(intervalOf(at), id, entryText(entry))) !== "closed") return await writer.index(entry);
        notBefore = await writer.after(intervalOf(at));
      }
      throw new Error(`The audit entry ${event.type} found every interval sealed.`);
    },
    refused: (event) => count(event, asRefusal(event)),
    reading: (event) => count(event, asReading(event)),
  };
}
