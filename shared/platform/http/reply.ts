import * as z from "zod";

/** A cookie. Not part of `headers`, because the Functions host sends only the last of several `Set-Cookie` headers. */
export interface Cookie {
  name: string;
  value: string;
  path?: string;
  maxAge?: number;
  httpOnly?: boolean;
  secure?: boolean;
  sameSite?: "Strict" | "Lax" | "None";
}

/** The reply of a handler: JSON in `json`, other media types in `content`. */
export interface Reply<Json = unknown> {
  status: number;
  headers?: Record<string, string>;
  cookies?: Cookie[];
  json?: Json;
  content?: { type: string; data: string | Uint8Array };
}

/** Returns a 200 with JSON. */
export const ok = <const Json>(json: Json): Reply<Json> => ({ status: 200, json });

/** Returns a 200 for a single resource, with its `etag` as the `ETag` header. */
export const resource = <Json extends { etag: string }>(json: Json): Reply<Json> => ({
  status: 200,
  headers: { ETag: json.etag },
  json,
});

/** Returns a 201 with the resource and its location. */
export const created = <const Json>(json: Json, location: string): Reply<Json> => ({
  status: 201,
  headers: { Location: location, ...(hasEtag(json) ? { ETag: json.etag } : {}) },
  json,
});

/** Body of the response of `deleted`. */
export const Deleted = z.object({ deleted: z.literal(true) }).meta({ id: "Deleted" });
export const deleted = (): Reply<z.output<typeof Deleted>> => ({ status: 200, json: { deleted: true } });

/** Returns a 200 with a body of another media type than JSON. */
export const content = (type: string, data: string | Uint8Array, headers?: Record<string, string>): Reply<never> => ({
  status: 200,
  content: { type, data },
  ...(headers ? { headers } : {}),
});

/** Returns the member `etag` of a resource. */
export const etagOf = (json: unknown): string | undefined => (hasEtag(json) ? json.etag : undefined);

function hasEtag(json: unknown): json is { etag: string } {
  return typeof json === "object" && json !== null && "etag" in json && typeof json.etag === "string";
}
