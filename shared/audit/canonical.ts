import { createHash } from "node:crypto";

/**
 * Serializes JSON by RFC 8785: no spaces, members of every object in the order of their UTF-16 code units. Equal content gives
 * equal text, so anyone can recompute an entry's hash from a parsed export. Undefined members are omitted.
 */
export function canonicalJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  if ("toJSON" in value && typeof value.toJSON === "function") return canonicalJson(value.toJSON());
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  const members = value as Record<string, unknown>;
  return `{${Object.keys(members)
    .filter((name) => members[name] !== undefined)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonicalJson(members[name])}`)
    .join(",")}}`;
}

/** SHA-256 in base64url. */
export const sha256 = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("base64url");
