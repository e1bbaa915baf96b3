import { Problem } from "./problem.ts";

/** 412: the resource is no longer what the caller's `If-Match` says. `what` names it: "The alert rule". */
export const changedSince = (what: string): Problem =>
  new Problem("preconditionFailed", `${what} was changed since. Read it again and repeat the request.`);

/**
 * Honours `If-Match` (RFC 9110, 13.1.1): one entity tag or several, `*` for any that exists. Without the header every
 * state matches.
 *
 * @throws {Problem} preconditionFailed
 */
export function requireMatch(etag: string, ifMatch: string | undefined, what: string): void {
  if (ifMatch === undefined || ifMatch.trim() === "*") return;
  const accepted = ifMatch.match(/(W\/)?"[^"]*"/g) ?? [ifMatch.trim()];
  if (!accepted.includes(etag)) throw changedSince(what);
}
