import { isDeepStrictEqual } from "node:util";
import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { SECOND_MS } from "../platform/time.ts";
import { ReadTooOld } from "./client.ts";

/** Longest time between the last read and the write that builds on it. */
const OLDEST_READ_MS = SECOND_MS;

/** How often it is read again because the write could not leave in time. */
const READS = 5;

/** What is replaced as a whole, since DevOps has neither a way to change a part nor a revision to hold on to. */
export interface Whole<T extends object> {
  target: CallTarget;
  /** @throws {CloudFailure} notFound when there is none. */
  read(): Promise<T>;
  /** Members that change by themselves. */
  ignored: ReadonlySet<string>;
  write(changed: T, notAfter: number): Promise<T>;
}

export interface Changed {
  /** What somebody else changed between the last read and the look afterwards, by its names; they may not hold any more. */
  meanwhile: string[];
}

/**
 * Changes one member of a whole: reads, reads again, and writes all of what was read within a second of that. What somebody
 * else changes between the reads stops it. What changes from then on until the whole is read once more is named; what
 * changed before the write arrived was replaced by it, and nothing tells of that.
 *
 * May be repeated after it died at any line.
 *
 * @param change - Changes the copy that it is given.
 * @throws {CloudFailure} conflict when it was stopped: nothing was written.
 */
export async function changeWhole<T extends object>(whole: Whole<T>, change: (copy: T) => void): Promise<Changed> {
  const { target, ignored } = whole;
  const first = await whole.read();
  for (let reads = 1; ; reads++) {
    const last = await whole.read();
    const notAfter = Date.now() + OLDEST_READ_MS;
    const changed = differences(first, last, ignored);
    if (changed.length > 0) {
      throw failure("conflict", target, `another process changed ${changed.join(", ")} at the same time`, {
        remedy: "Nothing was written, and the service retries. If it persists, check who else changes it.",
      });
    }
    const copy = structuredClone(last);
    change(copy);
    try {
      const written = await whole.write(copy, notAfter);
      return { meanwhile: meanwhile(last, written, await whole.read(), ignored) };
    } catch (error) {
      if (!(error instanceof ReadTooOld)) throw error;
      if (reads === READS) {
        throw failure("unreachable", target, "it answers too slowly to be changed safely", {
          remedy: "Nothing was written; the service retries later.",
        });
      }
    }
  }
}

/** Of a write these change, too. */
const STAMPS = new Set(["modifiedOn", "modifiedBy"]);

function meanwhile(last: object, written: object, after: object, ignored: ReadonlySet<string>): string[] {
  const named = differences(last, after, new Set([...ignored, ...STAMPS]));
  if (named.length > 0) return named;
  // A secret's value shows nowhere, but that it was changed does.
  return differences(written, after, ignored).some((name) => STAMPS.has(name)) ? ["a value that can't be read"] : [];
}

/** The names of the members in which two states differ: `name`, or `variables.REGION`. Never a value. */
function differences(one: object, other: object, ignored: ReadonlySet<string>): string[] {
  return differing(one, other).flatMap((name) => {
    if (ignored.has(name)) return [];
    const [before, after] = [memberOf(one, name), memberOf(other, name)];
    if (!isObject(before) || !isObject(after)) return [name];
    return differing(before, after).map((inner) => `${name}.${inner}`.slice(0, 200));
  });
}

const differing = (one: object, other: object): string[] =>
  [...new Set([...Object.keys(one), ...Object.keys(other)])].filter(
    (name) => !isDeepStrictEqual(memberOf(one, name), memberOf(other, name)),
  );

const memberOf = (of: object, name: string): unknown =>
  Object.hasOwn(of, name) ? (of as Record<string, unknown>)[name] : undefined;

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);
