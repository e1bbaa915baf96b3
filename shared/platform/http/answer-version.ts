import { createHash } from "node:crypto";

/*
 * The ETags of answers to GET. The requests with `If-Match` are in conditional-requests.ts, which needs the storage; this file
 * needs nothing, so that the first answer of a new process is fast.
 */

/** Matches the end of an answer's ETag: the hash that `versionOf` adds to the ETag of the resource, and the content coding. */
const ANSWER = /\.[\w-]{11}(-gzip)?"$/;
/** Returns the ETag of the resource from that of an answer. Returns any other ETag unchanged. */
export const resourceTag = (tag: string): string => tag.replace(ANSWER, '"');
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
export const tagsIn = (list: string): string[] => list.match(/(W\/)?"[^"]*"/g) ?? [list.trim()];
