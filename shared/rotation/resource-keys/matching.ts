import { timingSafeEqual } from "node:crypto";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { readConnectionString } from "./connection-strings.ts";
import { type KeyKind, kindOfType, type ListedKey } from "./kinds.ts";

/** The resource and key that a secret's tags name. A proposal only: it selects nothing until a value was compared. */
export interface TagProposal {
  kind: KeyKind;
  resourceId: string;
  /** Undefined if the tag names no key of the kind. */
  keyName?: string;
  /** Days for which a new key is valid. */
  validityDays?: number;
}

/** Tags of the versions that rotations write: the resource's ID, and the name of the key. */
export const RESOURCE_TAG = "azure-resource-id";
export const KEY_TAG = "azure-key-name";

/** Longest validity that a tag can name, in days. */
const MAX_VALIDITY_DAYS = 3650;

/**
 * Returns what the tags of Microsoft's rotation functions, or of this service, propose. Undefined if they name no resource of a
 * known kind.
 * https://learn.microsoft.com/azure/key-vault/secrets/tutorial-rotation-dual
 */
export function proposeByTags(tags: Readonly<Record<string, string>>): TagProposal | undefined {
  const resourceId = tags.ProviderAddress ?? tags[RESOURCE_TAG] ?? "";
  const { CredentialId: credentialId = tags[KEY_TAG] ?? "", ValidityPeriodDays: days = "" } = tags;
  const kind = kindOfType(parseResourceId(resourceId)?.type ?? "");
  if (kind === undefined) return undefined;
  const keyName = kind.pairs.flat().find((name) => name.toLowerCase() === credentialId.trim().toLowerCase());
  const validityDays = /^\d{1,4}$/.test(days.trim()) ? Number(days) : 0;
  return {
    kind,
    resourceId,
    ...(keyName !== undefined && { keyName }),
    ...(validityDays > 0 && validityDays <= MAX_VALIDITY_DAYS && { validityDays }),
  };
}

/** Result of comparing a secret's value with the keys of one resource. */
export type HeldKey =
  /** The value is the key, or a connection string with it. */
  | { held: ListedKey; form: "key" | "connectionString" }
  /** The value is neither. `otherResource`: it is a connection string that names another resource, rule or entity. */
  | { held: undefined; reason: "noKeyMatches" | "otherResource" };

/**
 * Returns which of the listed keys a secret's value holds. The value is only compared in memory. The result alone decides which
 * key is in use: tags are not considered.
 *
 * @param resourceId - The resource that the keys were listed for.
 */
export function findHeldKey(value: string, resourceId: string, keys: readonly ListedKey[]): HeldKey {
  const key = keys.find((one) => isEqual(one.value, value));
  if (key !== undefined) return { held: key, form: "key" };
  const connectionString = readConnectionString(value);
  const inside = connectionString && keys.find((one) => isEqual(one.value, connectionString.key));
  if (connectionString === undefined || inside === undefined) return { held: undefined, reason: "noKeyMatches" };

  const { format, resource, keyName, entity } = connectionString;
  const parsed = parseResourceId(resourceId);
  const kind = kindOfType(parsed?.type ?? "");
  const [name, ...below] = (parsed?.names ?? []).map((one) => one.toLowerCase());
  const rule = format === "sharedAccessKey" ? below.at(-1) : undefined;
  const isSame =
    kind?.formats.includes(format) === true &&
    resource === name &&
    // A rule of an entity can be written without the entity, which the client then names itself.
    (format !== "sharedAccessKey" ||
      (keyName?.toLowerCase() === rule &&
        (below.length < 2 || entity === undefined || entity.toLowerCase() === below[0])));
  // A copy of a key beside the name of another resource does not work for its client. A person must look at it.
  return isSame ? { held: inside, form: "connectionString" } : { held: undefined, reason: "otherResource" };
}

/**
 * Returns the names of the keys that a secret's value contains anywhere, such as in JSON, with a space at the end, or beside the
 * name of another resource. Its client may use such a key, although the service can't replace it there.
 */
export function containedKeys(value: string, keys: readonly ListedKey[]): string[] {
  // In a connection string that is a URL, the key is percent-encoded.
  const texts = [value, readConnectionString(value)?.key ?? ""];
  return keys.filter((key) => texts.some((text) => containsKey(text, key.value))).map(({ name }) => name);
}

/** Characters that make a text next to a key part of another, longer key. */
const KEY_CHARACTER = /[A-Za-z0-9+/]/;

function containsKey(text: string, key: string): boolean {
  for (let at = text.indexOf(key); at >= 0; at = text.indexOf(key, at + 1)) {
    const [before = "", after = ""] = [text[at - 1], text[at + key.length]];
    if (!KEY_CHARACTER.test(before) && !KEY_CHARACTER.test(after)) return true;
  }
  return false;
}

/** Compares two values in a time that depends on their length only. */
function isEqual(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}
