import { createHash } from "node:crypto";

const digest = (text: string) => createHash("sha256").update(text).digest("hex");

/** The 32 hexadecimal digits Key Vault uses as a version, always the same for the same text. */
export function versionFrom(text: string): string {
  return digest(text).slice(0, 32);
}

/** A GUID, always the same for the same text. */
export function guidFrom(text: string): string {
  const hex = digest(text);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
