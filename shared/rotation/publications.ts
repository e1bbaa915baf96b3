import type { NewSecretVersion, SecretVersion, VaultSecrets } from "../platform/azure/vault-secrets.ts";
import { SECOND_MS } from "../platform/time.ts";
import { isVaultSecret, type Publication, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/** Maximum number of tags: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
const MAX_TAGS = 15;
/** Number of this service's tags that a version needs to be recognized: the first two that `nextVersion` adds. */
const REQUIRED_TAGS = 2;

/** Returns the name of a place for messages: `vault/secret`. */
export const placeOf = ({ vaultName, secretName }: { vaultName: string; secretName: string }): string =>
  `${vaultName}/${secretName}`;

/** Returns whether a secret has room for this service's own tags. */
export const hasRoomForTags = ({ tags }: Pick<SecretVersion, "tags">): boolean =>
  Object.keys(tags).filter((name) => !SERVICE_TAGS.has(name)).length <= MAX_TAGS - REQUIRED_TAGS;

const SERVICE_TAGS = new Set(["rotation-id", "entra-key-id", "entra-app-id", "managed-by", "rotated-at"]);

/** Returns the version to write: tags and content type of the previous version, with the new key ID in place of the old one. */
export function nextVersion(
  { rotationId, appId, oldKeyId, newKeyId = "", newExpiresAt }: RotationRecord,
  before: Pick<SecretVersion, "tags" | "contentType"> | undefined,
  value: string,
  now: Date,
): NewSecretVersion {
  const replaceKeyId = (text: string) => (oldKeyId === undefined ? text : text.replaceAll(oldKeyId, newKeyId));
  const retainedTags = Object.entries(before?.tags ?? {})
    .filter(([name]) => !SERVICE_TAGS.has(name))
    .map(([name, tag]) => [name, replaceKeyId(tag)]);
  const serviceTags = [
    ["rotation-id", rotationId],
    ...(appId === undefined
      ? []
      : [
          ["entra-key-id", newKeyId],
          ["entra-app-id", appId],
        ]),
    ["managed-by", "credential-lifecycle"],
    ["rotated-at", now.toISOString()],
  ].slice(0, MAX_TAGS - retainedTags.length);
  return {
    value,
    contentType: before?.contentType === undefined ? undefined : replaceKeyId(before.contentType),
    tags: Object.fromEntries([...retainedTags, ...serviceTags]),
    expiresOn: newExpiresAt === undefined ? undefined : Math.floor(Date.parse(newExpiresAt) / SECOND_MS),
  };
}

export const openVault = ({ deps }: StepContext, { vaultName, vaultUri }: Publication): VaultSecrets =>
  deps.vaults.open({ name: vaultName, vaultUri });

/** Content of a place: the `new` value, the version that was current when the rotation was `planned`, or any `other` value. */
export interface PlaceContent {
  holds: "new" | "planned" | "other";
  current: (SecretVersion & { value: string }) | undefined;
}

/**
 * Reads a place and compares it with the new value and the planned version.
 *
 * @param value - The new secret's value, if it is still readable.
 */
export async function inspectPlace(
  context: StepContext,
  publication: Publication,
  value: string | undefined,
): Promise<PlaceContent> {
  const current = await openVault(context, publication).read(publication.secretName);
  if (current !== undefined && isWrittenVersion(context.record, current, value)) return { holds: "new", current };
  return { holds: current?.version === publication.plannedVersion ? "planned" : "other", current };
}

/**
 * Returns whether the current version is the one this rotation wrote. For a vault secret the tag must also match, because the
 * new value may equal the old one. The tag alone is not enough, because another writer may have copied the tags.
 */
function isWrittenVersion(
  record: RotationRecord,
  current: SecretVersion & { value: string },
  value: string | undefined,
): boolean {
  if (isVaultSecret(record)) {
    return current.tags["rotation-id"] === record.rotationId && (value === undefined || current.value === value);
  }
  if (value !== undefined) return current.value === value;
  return record.newKeyId !== undefined && current.tags["entra-key-id"] === record.newKeyId;
}

/** Stores a change of a publication (a place with its progress) in the rotation record. */
export const savePublication = (context: StepContext, one: Publication, change: Partial<Publication>): Promise<void> =>
  context.save(({ publications }) => ({
    publications: publications.map((other) => (placeOf(other) === placeOf(one) ? { ...other, ...change } : other)),
  }));
