import { createHash } from "node:crypto";
import { isConflict } from "../storage/conflict.ts";
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
  if (!tagsIn(ifMatch).some((tag) => isMatch(tag) || isMatch(withoutAnswer(tag)))) throw changedSince(what);
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

/** The ETag of an answer to GET: that of the resource, a hash of the answer, and its content coding. See `versionOf`. */
const ANSWER = /\.[\w-]{11}(-gzip)?"$/;
/** Returns the ETag of the resource from that of an answer. Returns any other ETag unchanged. */
const withoutAnswer = (tag: string): string => tag.replace(ANSWER, '"');
const GZIP = /-gzip"$/;

/**
 * Returns the ETag of an answer to GET, without a content coding. An answer can have members that are not stored with the
 * resource, such as its state. The hash changes with them, so that a caller never keeps an outdated answer. `If-Match` accepts
 * this ETag too.
 *
 * @param resource - The ETag of the resource. Absent if the answer has no other version than its content.
 */
export function versionOf(resource: string | undefined, data: string | Uint8Array): string {
  const hash = createHash("sha256").update(data).digest("base64url").slice(0, 11);
  return resource === undefined ? `"${hash}"` : resource.replace(/"$/, `.${hash}"`);
}

/**
 * Returns the entity tag of the answer that the caller has, if it is current: one of `If-None-Match`, or `version` for `*`.
 * The caller can have the answer in any content coding.
 */
export function currentVersion(version: string, ifNoneMatch: string | null): string | undefined {
  if (!isCurrent(version, ifNoneMatch?.replaceAll('-gzip"', '"') ?? null)) return undefined;
  const tags = tagsIn(ifNoneMatch ?? "");
  return tags.find((tag) => isCurrent(version, tag.replace(GZIP, '"')) && tag.trim() !== "*") ?? version;
}

/** Returns the ETag of the answer in a content coding: each coding has its own (RFC 9110, 8.8.3.3). */
export const codedVersion = (version: string, coding: string | undefined): string =>
  coding === undefined ? version : version.replace(/"$/, `-${coding}"`);

/** Returns whether `If-None-Match` (RFC 9110, 13.1.2) matches the current entity tag, so that the answer is 304. */
export function isCurrent(etag: string, ifNoneMatch: string | null): boolean {
  if (ifNoneMatch === null) return false;
  const opaque = (tag: string) => tag.replace(/^W\//, "");
  return ifNoneMatch.trim() === "*" || tagsIn(ifNoneMatch).some((tag) => opaque(tag) === opaque(etag));
}

/** Splits a list into its entity tags, unchanged. Any other text becomes a tag that matches nothing. */
const tagsIn = (list: string): string[] => list.match(/(W\/)?"[^"]*"/g) ?? [list.trim()];
