import { createHash } from "node:crypto";
import { isConflict } from "../storage/conflict.ts";
import { Problem } from "./problem.ts";

/** 412: the resource is no longer what the caller's `If-Match` says. `what` names it: "The alert rule". */
export const changedSince = (what: string): Problem =>
  new Problem("preconditionFailed", `${what} was changed since. Read it again and repeat the request.`);

/**
 * The entity tag of what a row holds, as the API shows it: another one whenever the row is written. It is strong, as
 * `If-Match` needs it (RFC 9110, 8.8.1), where storage's own is weak and tells when the row was written.
 */
export const entityTag = ({ etag }: { etag: string }): string =>
  `"${createHash("sha256").update(etag).digest("base64url").slice(0, 22)}"`;

/**
 * Honours `If-Match` (RFC 9110, 13.1.1): one entity tag or several, `*` for any that exists. Without the header every
 * state matches.
 *
 * @param etag - The resource's as it is shown, or that of its row in storage, which `entityTag` shows.
 * @throws {Problem} preconditionFailed
 */
export function requireMatch(etag: string, ifMatch: string | undefined, what: string): void {
  if (!namesState(ifMatch)) return;
  const shown = entityTag({ etag });
  if (!tagsIn(ifMatch).some((tag) => tag === etag || tag === shown)) throw changedSince(what);
}

/** Whether `If-Match` is about certain states, and not only about there being any. */
const namesState = (ifMatch: string | undefined): ifMatch is string => ifMatch !== undefined && ifMatch.trim() !== "*";

/** What it is that another writer was faster than a request with this `If-Match`: 412 where it names a state, else 409. */
export const changedMeanwhile = (ifMatch: string | undefined, what: string): Problem =>
  namesState(ifMatch)
    ? changedSince(what)
    : new Problem("conflict", `${what} was changed in this moment. Repeat the request.`);

/**
 * What the write of a resource answers that `requireMatch` let through.
 *
 * @throws {Problem} preconditionFailed or conflict, as `changedMeanwhile` says, when another writer was faster
 */
export async function matchedWrite<T>(write: Promise<T>, ifMatch: string | undefined, what: string): Promise<T> {
  try {
    return await write;
  } catch (error) {
    throw isConflict(error) ? changedMeanwhile(ifMatch, what) : error;
  }
}

/** Whether `If-None-Match` (RFC 9110, 13.1.2) names what would be answered, which 304 then says. */
export function isCurrent(etag: string, ifNoneMatch: string | null): boolean {
  if (ifNoneMatch === null) return false;
  const opaque = (tag: string) => tag.replace(/^W\//, "");
  return ifNoneMatch.trim() === "*" || tagsIn(ifNoneMatch).some((tag) => opaque(tag) === opaque(etag));
}

/** The entity tags of a list, each as it is written; text that is none counts as one that matches nothing. */
const tagsIn = (list: string): string[] => list.match(/(W\/)?"[^"]*"/g) ?? [list.trim()];
