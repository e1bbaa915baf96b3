// Parses OData query options and builds next and delta links.

import type { IncomingRequest } from "../http.ts";

type Members = Record<string, unknown>;

/** An invalid or unsupported query option. The message is the text of the error response. */
export class QueryProblem extends Error {}

/** Parses OData query options and rejects every unsupported option: https://learn.microsoft.com/graph/query-parameters */
export function optionsOf(request: IncomingRequest, allowed: readonly string[]): URLSearchParams {
  for (const name of request.query.keys()) {
    if (name.startsWith("$") && !allowed.includes(name)) {
      throw new QueryProblem(
        `The query specified in the URI is not valid. The query option '${name}' is not supported.`,
      );
    }
  }
  return request.query;
}

/** Returns the members in `$select`. Undefined if the option is missing. */
export function selectOf(query: URLSearchParams, type: string, known: Members): string[] | undefined {
  const text = query.get("$select");
  if (text === null || text === "") return undefined;
  const names = text.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !(name in known));
  if (unknown !== undefined) {
    throw new QueryProblem(
      `Parsing OData Select and Expand failed: Could not find a property named '${unknown}' on type 'microsoft.graph.${type}'.`,
    );
  }
  return names;
}

/** Returns only the named members, or all if no names are given. */
export function selectMembers(members: Members, names: readonly string[] | undefined): Members {
  return names === undefined ? members : Object.fromEntries(names.map((name) => [name, members[name]]));
}

/** Parses `$expand`: `name` or `name($select=a,b)`. Undefined if the option is missing. */
export function expandOf(query: URLSearchParams, name: string): { select: string[] | undefined } | undefined {
  const text = query.get("$expand");
  if (text === null) return undefined;
  const match = new RegExp(`^${name}(?:\\(\\$select=([\\w,]+)\\))?$`).exec(text);
  if (match === null) {
    throw new QueryProblem(`Parsing OData Select and Expand failed: '${text}' is not supported here.`);
  }
  return { select: match[1]?.split(",") };
}

/** Returns `$top`, 1 to 999. Default 100. */
export function topOf(query: URLSearchParams): number {
  const text = query.get("$top") ?? "100";
  const top = Number(text);
  if (!/^\d+$/.test(text) || top < 1 || top > 999) {
    throw new QueryProblem(`Invalid page size specified: '${text}'. Must be between 1 and 999 inclusive.`);
  }
  return top;
}

/** Returns the value in `$filter=<name> eq '<value>'`. Undefined if the option is missing. */
export function filterOf(query: URLSearchParams, name: string): string | undefined {
  const text = query.get("$filter");
  if (text === null) return undefined;
  const match = new RegExp(`^${name} eq '([^']*)'$`).exec(text.trim());
  if (match === null) throw new QueryProblem("Unsupported or invalid query filter clause specified.");
  return match[1];
}

/**
 * Returns whether `$filter` requires a non-empty collection. This is an advanced query and needs `$count=true`:
 * https://learn.microsoft.com/graph/aad-advanced-queries
 */
export function requiresNonEmpty(request: IncomingRequest, collection: string): boolean {
  if (request.query.get("$filter") !== `${collection}/$count ne 0`) return false;
  if (request.query.get("$count") !== "true" || request.headers.consistencylevel !== "eventual") {
    throw new QueryProblem(
      "Request with $filter query parameter only works through MSGraph with a special request header.",
    );
  }
  return true;
}

/** Encodes the state of a query as an opaque token for a link. */
export function encodeToken(content: object): string {
  return Buffer.from(JSON.stringify(content)).toString("base64url");
}

/**
 * Decodes the state in a token.
 * @throws {QueryProblem} if the token is not valid.
 */
export function decodeToken(text: string): Record<string, unknown> {
  try {
    return JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as Record<string, unknown>;
  } catch {
    throw new QueryProblem("The skip token or delta token is not valid.");
  }
}

/** Returns the request's URL with a skip or delta token in place of the previous one. */
export function linkWithToken(
  origin: string,
  request: IncomingRequest,
  name: "$skiptoken" | "$deltatoken",
  value: string,
): string {
  const query = new URLSearchParams(request.query);
  query.delete("$skiptoken");
  query.delete("$deltatoken");
  query.set(name, value);
  // As in Graph's own links, `$` and `,` are not encoded.
  return `${origin}${request.path}?${query.toString().replaceAll("%24", "$").replaceAll("%2C", ",")}`;
}
