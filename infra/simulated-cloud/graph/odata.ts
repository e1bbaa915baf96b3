import type { Incoming } from "../http.ts";

type Members = Record<string, unknown>;

/** What is wrong with a query option. */
export class QueryProblem extends Error {}

/** https://learn.microsoft.com/graph/query-parameters: the options named here, which must be no others. */
export function optionsOf(request: Incoming, allowed: readonly string[]): URLSearchParams {
  for (const name of request.query.keys()) {
    if (name.startsWith("$") && !allowed.includes(name)) {
      throw new QueryProblem(
        `The query specified in the URI is not valid. The query option '${name}' is not supported.`,
      );
    }
  }
  return request.query;
}

/** The members named by `$select`; undefined when it is left out. */
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

export function selected(members: Members, names: readonly string[] | undefined): Members {
  return names === undefined ? members : Object.fromEntries(names.map((name) => [name, members[name]]));
}

/** `name` or `name($select=a,b)`; undefined when it is left out. */
export function expandOf(query: URLSearchParams, name: string): { select: string[] | undefined } | undefined {
  const text = query.get("$expand");
  if (text === null) return undefined;
  const match = new RegExp(`^${name}(?:\\(\\$select=([\\w,]+)\\))?$`).exec(text);
  if (match === null) {
    throw new QueryProblem(`Parsing OData Select and Expand failed: '${text}' is not supported here.`);
  }
  return { select: match[1]?.split(",") };
}

/** `$top`, 1 to 999; by default 100. */
export function topOf(query: URLSearchParams): number {
  const text = query.get("$top") ?? "100";
  const top = Number(text);
  if (!/^\d+$/.test(text) || top < 1 || top > 999) {
    throw new QueryProblem(`Invalid page size specified: '${text}'. Must be between 1 and 999 inclusive.`);
  }
  return top;
}

/** The value of `$filter=<name> eq '<value>'`; undefined when it is left out. */
export function filterOf(query: URLSearchParams, name: string): string | undefined {
  const text = query.get("$filter");
  if (text === null) return undefined;
  const match = new RegExp(`^${name} eq '([^']*)'$`).exec(text.trim());
  if (match === null) throw new QueryProblem("Unsupported or invalid query filter clause specified.");
  return match[1];
}

/**
 * Whether `$filter` asks for those with at least one of a collection: an advanced query, which must say that it counts.
 * https://learn.microsoft.com/graph/aad-advanced-queries
 */
export function filledOnly(request: Incoming, collection: string): boolean {
  if (request.query.get("$filter") !== `${collection}/$count ne 0`) return false;
  if (request.query.get("$count") !== "true" || request.headers.consistencylevel !== "eventual") {
    throw new QueryProblem(
      "Request with $filter query parameter only works through MSGraph with a special request header.",
    );
  }
  return true;
}

/** A token as it stands in a link: opaque to whoever follows it. */
export function token(content: object): string {
  return Buffer.from(JSON.stringify(content)).toString("base64url");
}

export function tokenContent(text: string): Record<string, unknown> {
  try {
    return JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as Record<string, unknown>;
  } catch {
    throw new QueryProblem("The skip token or delta token is not valid.");
  }
}

/** The request's own address with a token in place of what led to this page. */
export function linkWith(origin: string, request: Incoming, name: "$skiptoken" | "$deltatoken", value: string): string {
  const query = new URLSearchParams(request.query);
  query.delete("$skiptoken");
  query.delete("$deltatoken");
  query.set(name, value);
  return `${origin}${request.path}?${query.toString().replaceAll("%24", "$").replaceAll("%2C", ",")}`;
}
