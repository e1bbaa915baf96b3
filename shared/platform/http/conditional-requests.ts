import { createHash } from "node:crypto";
import { isConflict } from "../storage/conflict.ts";
import { resourceTag, tagsIn } from "./answer-version.ts";
import { Problem } from "./problem.ts";

/**
 * Creates a 412: the resource no longer matches the caller's `If-Match`.
 *
 * @param what - Names the resource: "The alert rule".
 */
export const changedSince = (what: string): Problem =>
  new Problem("preconditionFailed", `${what} was changed since. Read it again and repeat the request.`);

/**
 * Returns the entity tag of a row's content as shown in the API. Changes with each write of the row. Strong, as `If-Match`
 * requires (RFC 9110, 8.8.1). Storage's own ETag is weak and reveals when the row was written.
 */
export const entityTag = ({ etag }: { etag: string }): string =>
  `"${createHash("sha256").update(etag).digest("base64url").slice(0, 22)}"`;

/**
 * Checks `If-Match` (RFC 9110, 13.1.1): one or several entity tags, or `*` for any existing resource. Without the header every
 * state matches.
 *
 * @param etag - The entity tag of the resource as shown in the API, or the storage ETag of its row.
 * @throws {Problem} preconditionFailed
 */
export function requireMatch(etag: string, ifMatch: string | undefined, what: string): void {
  if (!namesState(ifMatch)) return;
  const shown = entityTag({ etag });
  const isMatch = (tag: string) => tag === etag || tag === shown;
  if (!tagsIn(ifMatch).some((tag) => isMatch(tag) || isMatch(resourceTag(tag)))) throw changedSince(what);
}

/** Returns whether `If-Match` names specific states, not only the existence of the resource. */
const namesState = (ifMatch: string | undefined): ifMatch is string => ifMatch !== undefined && ifMatch.trim() !== "*";

/** Creates the problem for a write that lost against another writer: 412 if `If-Match` names a state, otherwise 409. */
export const changedMeanwhile = (ifMatch: string | undefined, what: string): Problem =>
  namesState(ifMatch)
    ? changedSince(what)
    : new Problem("conflict", `${what} was changed in this moment. Repeat the request.`);

/**
 * Returns the result of a conditional write, after `requireMatch`.
 *
 * @throws {Problem} preconditionFailed or conflict (see `changedMeanwhile`) if another writer changed the resource
 */
export async function conditionalWrite<T>(write: Promise<T>, ifMatch: string | undefined, what: string): Promise<T> {
  try {
    return await write;
  } catch (error) {
    throw isConflict(error) ? changedMeanwhile(ifMatch, what) : error;
  }
}
