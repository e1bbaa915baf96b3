import { createHash, createHmac } from "node:crypto";
import * as z from "zod";
import { canonicalJson } from "../audit/canonical.ts";
import { redact } from "../audit/redact.ts";
import type { GuardedRequest } from "../platform/http/admission.ts";

// The digest that binds an approval to its request, and the details that the approver sees. Both come from the validated request,
// so that the approver sees exactly the request that runs.

/**
 * Returns the digests of a request under each key. They bind an approval to the requester, the endpoint, the whole validated
 * input, and the stored state that the request is about (`boundTo`). Keyed, because the input can contain secrets that a reader
 * of the tables could guess.
 */
export function digestsOf(
  request: GuardedRequest,
  requesterId: string,
  keys: readonly { key: Uint8Array }[],
): string[] {
  const { endpoint, params, query, body, boundTo } = request;
  const input = [params, query, body, boundTo].map((part) => part ?? null);
  const text = canonicalJson([requesterId, endpoint.name, ...input]);
  return keys.map(({ key }) => createHmac("sha256", key).update(`approval\0${text}`).digest("base64url"));
}

/** Returns the path of a request, with its parameters. */
export function pathOf({ endpoint, params }: GuardedRequest): string {
  const values = (params ?? {}) as Record<string, unknown>;
  return `/${endpoint.route.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name])))}`;
}

/** Longer texts are shown by their first 100 characters and their SHA-256. */
const MAX_TEXT_CHARACTERS = 1000;
/** The JSON of the details is stored in a row, which can have 1 MiB. Above this length, lists are shortened. */
const MAX_DETAILS_CHARACTERS = 300_000;
/** Shortened lists have this number of items and the SHA-256 of the whole list. */
const MAX_LIST_ITEMS = 100;

/** Returns the query and the body of a request for the approver, without the secrets. */
export function detailsOf({ endpoint, query, body }: GuardedRequest): Record<string, unknown> {
  const schema = endpoint.body && (z.toJSONSchema(endpoint.body, { io: "output", unrepresentable: "any" }) as Schema);
  const shown = {
    ...(isObject(query) && Object.keys(query).length > 0 && { query }),
    ...(body !== undefined && { body: schema ? hideSecrets(body, [schema], schema.$defs ?? {}) : body }),
  };
  const details = { ...(redact(shown) as Record<string, unknown>), ...endpoint.approverSees?.(body as never) };
  const all = shorten(details, Infinity);
  const fits = JSON.stringify(all).length <= MAX_DETAILS_CHARACTERS;
  return (fits ? all : shorten(details, MAX_LIST_ITEMS)) as Record<string, unknown>;
}

/** The keywords of JSON Schema that lead to the schemas of members, and the one that marks secrets (`writeOnly`). */
interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  writeOnly?: boolean;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Replaces members that the API declares as `writeOnly`.
 *
 * @param schemas - All schemas that may describe the value. If any alternative of a union declares a secret, it is replaced.
 */
function hideSecrets(value: unknown, schemas: readonly Schema[], definitions: Record<string, Schema>): unknown {
  const all = schemas.flatMap((schema) => variantsOf(schema, definitions));
  if (value !== null && value !== undefined && all.some(({ writeOnly }) => writeOnly)) return "[secret]";
  if (Array.isArray(value)) {
    const items = all.flatMap((schema) => schema.items ?? []);
    return value.map((item) => hideSecrets(item, items, definitions));
  }
  if (!isObject(value)) return value;
  const members = Object.entries(value).map(([name, member]) => {
    const ofMember = all.flatMap(({ properties, additionalProperties }) => {
      const declared = properties?.[name];
      return declared ?? (isObject(additionalProperties) ? (additionalProperties as Schema) : []);
    });
    return [name, hideSecrets(member, ofMember, definitions)] as const;
  });
  return Object.fromEntries(members);
}

/** Returns a schema with its alternatives and the definitions that it references. */
function variantsOf(schema: Schema, definitions: Record<string, Schema>): Schema[] {
  const { $ref, anyOf = [], oneOf = [], allOf = [] } = schema;
  const referenced = $ref === undefined ? undefined : definitions[$ref.replace("#/$defs/", "")];
  const others = [...(referenced ? [referenced] : []), ...anyOf, ...oneOf, ...allOf];
  return [schema, ...others.flatMap((other) => variantsOf(other, definitions))];
}

function shorten(value: unknown, maxItems: number): unknown {
  const hashOf = (text: string) => createHash("sha256").update(text).digest("hex");
  if (typeof value === "string" && value.length > MAX_TEXT_CHARACTERS)
    return `${value.slice(0, 100)}… (${value.length} characters, SHA-256 ${hashOf(value)})`;
  if (Array.isArray(value)) {
    const items = value.slice(0, maxItems).map((item) => shorten(item, maxItems));
    if (items.length === value.length) return items;
    return [...items, `… (${value.length} items, SHA-256 ${hashOf(canonicalJson(value))})`];
  }
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shorten(member, maxItems)]));
}
