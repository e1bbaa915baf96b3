import { isDeepStrictEqual } from "node:util";
import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { SECOND_MS } from "../platform/time.ts";
import { ReadTooOld } from "./client.ts";

/** Maximum time between the last read and the write that is based on it. */
const MAX_READ_AGE_MS = SECOND_MS;

/** Maximum number of reads, if the write can't be sent in time after each of them. */
const MAX_READS = 5;

/** A resource that can only be replaced as a whole: Azure DevOps has neither partial updates nor revisions for it. */
export interface ReplaceableResource<T extends object> {
  target: CallTarget;
  /** Reads the resource. @throws {CloudFailure} notFound if it does not exist */
  read(): Promise<T>;
  /** Members that DevOps updates automatically. Changes of them are ignored. */
  ignored: ReadonlySet<string>;
  /** Replaces the resource, unless the time `notAfter` (Unix milliseconds) has passed. @throws {ReadTooOld} */
  write(changed: T, notAfter: number): Promise<T>;
}

/** Result of a change. */
export interface Changed {
  /** Names of the members that someone else changed between the last read and the final check. These changes may be lost. */
  changedByOthers: string[];
}

/**
 * Changes a resource of Azure DevOps that can only be replaced as a whole, without overwriting changes of others as far as
 * possible. Reads the resource twice. If it changed between the two reads, throws. Otherwise writes the changed resource within
 * a second, and reads it again. Changes of others between the second and the final read are listed in the result, and may have
 * been overwritten.
 *
 * A caller can repeat the change after a crash at any point.
 *
 * @param change - Changes the copy that it is given.
 * @throws {CloudFailure} conflict if it was stopped; then nothing was written.
 */
export async function changeResource<T extends object>(
  resource: ReplaceableResource<T>,
  change: (copy: T) => void,
): Promise<Changed> {
  const { target, ignored } = resource;
  // Two reads in a row show whether someone changes the resource right now.
  const firstRead = await resource.read();
  for (let reads = 1; ; reads++) {
    const lastRead = await resource.read();
    const notAfter = Date.now() + MAX_READ_AGE_MS;
    const changed = differences(firstRead, lastRead, ignored);
    if (changed.length > 0) {
      throw failure("conflict", target, `another process changed ${changed.join(", ")} at the same time`, {
        remedy:
          "Nothing was written, and the service retries. If the conflict persists, check which other users or pipelines change the resource.",
      });
    }
    const copy = structuredClone(lastRead);
    change(copy);
    try {
      const written = await resource.write(copy, notAfter);
      return { changedByOthers: changesOfOthers(lastRead, written, await resource.read(), ignored) };
    } catch (error) {
      // The write was not sent, because too much time passed since the last read. Reads again.
      if (!(error instanceof ReadTooOld)) throw error;
      if (reads === MAX_READS) {
        throw failure("unreachable", target, "it answers too slowly to be changed safely", {
          remedy: "Nothing was written. The service retries later.",
        });
      }
    }
  }
}

/** Members that change with every write. */
const AUTOMATIC_MEMBERS = new Set(["modifiedOn", "modifiedBy"]);

function changesOfOthers(lastRead: object, written: object, finalRead: object, ignored: ReadonlySet<string>): string[] {
  const changedMembers = differences(lastRead, finalRead, new Set([...ignored, ...AUTOMATIC_MEMBERS]));
  if (changedMembers.length > 0) return changedMembers;
  // DevOps never returns a secret's value, but a change of a value changes `modifiedOn` and `modifiedBy`.
  return differences(written, finalRead, ignored).some((name) => AUTOMATIC_MEMBERS.has(name))
    ? ["a value that can't be read"]
    : [];
}

/** Returns the names of the members in which two states differ: `name`, or `variables.REGION`. Never values. */
function differences(before: object, after: object, ignored: ReadonlySet<string>): string[] {
  return differingMembers(before, after).flatMap((name) => {
    if (ignored.has(name)) return [];
    const [valueBefore, valueAfter] = [memberOf(before, name), memberOf(after, name)];
    if (!isObject(valueBefore) || !isObject(valueAfter)) return [name];
    return differingMembers(valueBefore, valueAfter).map((inner) => `${name}.${inner}`.slice(0, 200));
  });
}

const differingMembers = (before: object, after: object): string[] =>
  [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (name) => !isDeepStrictEqual(memberOf(before, name), memberOf(after, name)),
  );

const memberOf = (object: object, name: string): unknown =>
  Object.hasOwn(object, name) ? (object as Record<string, unknown>)[name] : undefined;

const isObject = (value: unknown): value is object =>
  typeof value === "object" && value !== null && !Array.isArray(value);
