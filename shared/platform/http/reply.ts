import * as z from "zod";

/** A cookie. Passed to the platform separately, because of several `Set-Cookie` headers the platform keeps only the last. */
export interface Cookie {
  name: string;
  value: string;
  path?: string;
  maxAge?: number;
  httpOnly?: boolean;
  secure?: boolean;
  sameSite?: "Strict" | "Lax" | "None";
}

/** A handler's answer: JSON in `json`, any other body in `content`. */
export interface Reply {
  status: number;
  headers?: Record<string, string>;
  cookies?: Cookie[];
  json?: unknown;
  content?: { type: string; data: string | Uint8Array };
}

export const ok = (json: unknown): Reply => ({ status: 200, json });

/** Returns a 200 for a single resource, with its `etag` as the `ETag` header. */
export const resource = (json: { etag: string }): Reply => ({ status: 200, headers: { ETag: json.etag }, json });

/** Returns a 201 with the resource and its location. */
export const created = (json: unknown, location: string): Reply => ({
  status: 201,
  headers: { Location: location, ...(hasEtag(json) ? { ETag: json.etag } : {}) },
  json,
});

/** Body of the answer of `deleted`. */
export const Deleted = z.object({ deleted: z.literal(true) }).meta({ id: "Deleted" });
export const deleted = (): Reply => ({ status: 200, json: { deleted: true } });

export const content = (type: string, data: string | Uint8Array, headers?: Record<string, string>): Reply => ({
  status: 200,
  content: { type, data },
  ...(headers ? { headers } : {}),
});

function hasEtag(json: unknown): json is { etag: string } {
  return typeof json === "object" && json !== null && "etag" in json && typeof json.etag === "string";
}
