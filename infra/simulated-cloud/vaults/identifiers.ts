// Derives versions and GUIDs from texts, so that the same declaration always has the same IDs.

import { createHash } from "node:crypto";

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

/** Returns 32 hexadecimal digits in the form of a Key Vault version. The same text returns the same version. */
export function versionFrom(text: string): string {
  return digest(text).slice(0, 32);
}

/** Returns a GUID. The same text returns the same GUID. */
export function guidFrom(text: string): string {
  const hex = digest(text);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
