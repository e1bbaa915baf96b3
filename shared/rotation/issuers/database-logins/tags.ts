import { SERVER_TAG, USER_TAG } from "../../database-logins/engines.ts";
import { databaseLoginOf, type RotationRecord } from "../../rotation.ts";

/** https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
const MAX_TAG_CHARACTERS = 256;

/** Returns the tags of a version, or of a held copy, that stores the login of a user. A longer resource ID has no tag. */
export function tagsOf(record: RotationRecord, user: string): [[string, string], ...[string, string][]] {
  const { serverId } = databaseLoginOf(record);
  const server: [string, string][] = serverId.length > MAX_TAG_CHARACTERS ? [] : [[SERVER_TAG, serverId]];
  return [[USER_TAG, user], ...server];
}
