import { isDeepStrictEqual } from "node:util";
import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { SECOND_MS } from "../platform/time.ts";
import { ReadTooOld } from "./client.ts";

/** Maximum time in milliseconds between the last read and the write that is based on it. */
const OLDEST_READ_MS = SECOND_MS;

/** Attempts to read again because the write could not be sent in time. */
const READS = 5;

/** A resource that can only be replaced as a whole: Azure DevOps has neither partial updates nor revisions for it. */
export interface ReplaceableResource<T extends object> {
  target: CallTarget;
  /** @throws {CloudFailure} notFound if it does not exist. */
  read(): Promise<T>;
  /** Members that DevOps updates automatically. */
  ignored: ReadonlySet<string>;
  write(changed: T, notAfter: number): Promise<T>;
}

/** Result of a change. */
export interface Changed {
  /** Names of the members that someone else changed between the last read and the final check. These changes may be lost. */
  meanwhile: string[];
}

/**
 * Changes one member of a resource: reads it, reads it again, and within a second of that writes everything that was read. A
 * change of others between the two reads stops it. Changes from then until the final read are listed in the result. A change
 * that arrived just before the write is overwritten without notice.
 *
 * Can be repeated after a crash at any point.
 *
 * @param change - Changes the copy that it is given.
 * @throws {CloudFailure} conflict if it was stopped; then nothing was written.
 */
export async function changeResource<T extends object>(
  whole: ReplaceableResource<T>,
  change: (copy: T) => void,
): Promise<Changed> {
  const { target, ignored } = whole;
  const first = await whole.read();
  for (let reads = 1; ; reads++) {
    const last = await whole.read();
    const notAfter = Date.now() + OLDEST_READ_MS;
    const changed = differences(first, last, ignored);
    if (changed.length > 0) {
      throw failure("conflict", target, `another process changed ${changed.join(", ")} at the same time`, {
        remedy:
          "Nothing was written, and the service retries. If the conflict persists, check which other users or pipelines change the resource.",
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
          remedy: "Nothing was written. The service retries later.",
        });
      }
    }
  }
}

/** Members that change with every write. */
const AUTOMATIC_MEMBERS = new Set(["modifiedOn", "modifiedBy"]);

function meanwhile(last: object, written: object, after: object, ignored: ReadonlySet<string>): string[] {
  const named = differences(last, after, new Set([...ignored, ...AUTOMATIC_MEMBERS]));
  if (named.length > 0) return named;
  // A secret's value is never returned, but the fact that it changed is.
  return differences(written, after, ignored).some((name) => AUTOMATIC_MEMBERS.has(name))
    ? ["a value that can't be read"]
    : [];
}

/** Returns the names of the members in which two states differ: `name`, or `variables.REGION`. Never values. */
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
