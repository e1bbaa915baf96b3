import { KEY_TAG, RESOURCE_TAG } from "../../resource-keys/matching.ts";
import { type RotationRecord, resourceKeyOf } from "../../rotation.ts";

/** https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
const MAX_TAG_CHARACTERS = 256;

/** Returns the tags of a version, or of a held copy, that stores the key `keyId`. A longer resource ID has no tag. */
export function tagsOf(record: RotationRecord, keyId: string): [[string, string], ...[string, string][]] {
  const { resourceId } = resourceKeyOf(record);
  return [
    [KEY_TAG, keyId],
    ...(resourceId.length > MAX_TAG_CHARACTERS ? [] : [[RESOURCE_TAG, resourceId] as const]),
  ].map(([name, tag]) => [name, tag]) as [[string, string], ...[string, string][]];
}
