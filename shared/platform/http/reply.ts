import * as z from "zod";

/** A cookie as the platform takes it; header `Set-Cookie` would lose all but the last. */
export interface Cookie {
  name: string;
  value: string;
  path?: string;
  maxAge?: number;
  httpOnly?: boolean;
  secure?: boolean;
  sameSite?: "Strict" | "Lax" | "None";
}

/** What a handler answers: JSON by `json`, anything else by `content`. */
export interface Reply {
  status: number;
  headers?: Record<string, string>;
  cookies?: Cookie[];
  json?: unknown;
  content?: { type: string; data: string | Uint8Array };
}

export const ok = (json: unknown): Reply => ({ status: 200, json });

/** 200 for a single resource, its `etag` member repeated as the `ETag` header. */
export const resource = (json: { etag: string }): Reply => ({ status: 200, headers: { ETag: json.etag }, json });

/** 201 with the resource and where it can be read again. */
export const created = (json: unknown, location: string): Reply => ({
  status: 201,
  headers: { Location: location, ...(hasEtag(json) ? { ETag: json.etag } : {}) },
  json,
});

/** What `deleted` answers. */
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
