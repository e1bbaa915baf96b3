import { CloudFailure, unlessMissing } from "../platform/azure/failure.ts";
import type { SecretVersion, VaultSecrets } from "../platform/azure/vault-secrets.ts";
import { SERVER_TAG, USER_TAG } from "./database-logins/engines.ts";
import { KEY_TAG, RESOURCE_TAG } from "./resource-keys/matching.ts";
import type { Publication } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/** Maximum number of tags: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
export const MAX_TAGS = 15;
/** Number of this service's tags that a version needs to be recognized: the first two that `nextVersion` adds. */
const REQUIRED_TAGS = 2;

/** Returns the name of a place for messages: `vault/secret`. */
export const placeOf = ({ vaultName, secretName }: { vaultName: string; secretName: string }): string =>
  `${vaultName}/${secretName}`;

/** Returns whether a secret has room for this service's own tags. */
export const hasRoomForTags = ({ tags }: Pick<SecretVersion, "tags">): boolean =>
  Object.keys(tags).filter((name) => !SERVICE_TAGS.has(name)).length <= MAX_TAGS - REQUIRED_TAGS;

/** Tags that this service sets, of all issuers. */
export const SERVICE_TAGS = new Set([
  "rotation-id",
  "entra-key-id",
  "entra-app-id",
  KEY_TAG,
  RESOURCE_TAG,
  USER_TAG,
  SERVER_TAG,
  "managed-by",
  "rotated-at",
]);

export const openVault = ({ deps }: StepContext, { vaultName, vaultUri }: Publication): VaultSecrets =>
  deps.vaults.open({ name: vaultName, vaultUri });

/** Returns the current version of a place; undefined if there is none or it is disabled. */
export async function readEnabledVersion(context: StepContext, publication: Publication) {
  return await unlessDisabled(unlessMissing(openVault(context, publication).read(publication.secretName)));
}

/** Returns the version that was read, or undefined if it is disabled. */
export async function unlessDisabled<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "disabled") return undefined;
    throw error;
  }
}

/** Stores a change of a publication (a place with its progress) in the rotation record. */
export const savePublication = (context: StepContext, one: Publication, change: Partial<Publication>): Promise<void> =>
  context.save(({ publications }) => ({
    publications: publications.map((other) => (placeOf(other) === placeOf(one) ? { ...other, ...change } : other)),
  }));
