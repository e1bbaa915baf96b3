import type { NewSecretVersion, SecretVersion } from "../platform/azure/vault-secrets.ts";
import { SECOND_MS } from "../platform/time.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { MAX_TAGS, openVault, SERVICE_TAGS, unlessDisabled } from "./publications.ts";
import { isVaultSecret, type Publication, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

// The versions that a rotation writes to its places, and how a place that has one is recognized.

/** Tag of Microsoft's rotation functions that names the key of a resource. */
const CREDENTIAL_TAG = "CredentialId";

/**
 * Returns the version to write. It has the tags and the content type of the previous version, with the new key ID in place of the
 * old one, and the tags of this service. The name of a resource's key, such as `Primary`, is a common word, so it is replaced only
 * in the tag `CredentialId`, which names the key.
 *
 * @param previous - The previous version. Undefined if the secret did not exist.
 * @param value - Content of the version, with the new value.
 */
export function nextVersion(
  record: RotationRecord,
  previous: Pick<SecretVersion, "tags" | "contentType"> | undefined,
  value: string,
  now: Date,
): NewSecretVersion {
  const { rotationId, oldKeyId, newKeyId = "", newExpiresAt } = record;
  // A regenerated key keeps its name. The key ID of a client secret is a GUID, which can be replaced wherever it occurs.
  const isUniqueId = isVaultSecret(record) || !issuerOf(record).regenerates;
  const replaceKeyId = (text: string) =>
    oldKeyId === undefined || !isUniqueId ? text : text.replaceAll(oldKeyId, newKeyId);
  const retainedTags = Object.entries(previous?.tags ?? {})
    .filter(([name]) => !SERVICE_TAGS.has(name))
    .map(([name, tag]) => [
      name,
      !isUniqueId && name === CREDENTIAL_TAG && tag === oldKeyId ? newKeyId : replaceKeyId(tag),
    ]);
  // Of a secret with many tags of its own, the last of these are left out. The first two, by which the version is recognized,
  // always have room (`hasRoomForTags`).
  const serviceTags = [
    ["rotation-id", rotationId],
    ...(isVaultSecret(record) ? [] : issuerOf(record).tagsOf(record, newKeyId)),
    ["managed-by", "credential-lifecycle"],
    ["rotated-at", now.toISOString()],
  ].slice(0, MAX_TAGS - retainedTags.length);
  return {
    value,
    contentType: previous?.contentType === undefined ? undefined : replaceKeyId(previous.contentType),
    tags: Object.fromEntries([...retainedTags, ...serviceTags]),
    expiresOn: newExpiresAt === undefined ? undefined : Math.floor(Date.parse(newExpiresAt) / SECOND_MS),
  };
}

/** Content of a place: the `new` value, the version that was current when the rotation was `planned`, or any `other` version. */
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
  const isNew =
    current !== undefined &&
    isWrittenVersion(context.record, current, await newContent(context, publication, current, value));
  if (isNew) return { holds: "new", current };
  return { holds: current?.version === publication.plannedVersion ? "planned" : "other", current };
}

/** Returns what a place with that content stores once it gets the new value. */
export function contentWith(record: RotationRecord, value: string, previousContent: string | undefined): string {
  const valueFor = isVaultSecret(record) ? undefined : issuerOf(record).valueFor;
  return valueFor === undefined || previousContent === undefined ? value : valueFor(record, value, previousContent);
}

/** Returns what the place stores with the new value. Undefined if its previous version is gone or disabled. */
async function newContent(
  context: StepContext,
  publication: Publication,
  current: SecretVersion & { value: string },
  value: string | undefined,
): Promise<string | undefined> {
  const { record } = context;
  if (value === undefined || isVaultSecret(record) || issuerOf(record).valueFor === undefined) return value;
  const { plannedVersion, secretName } = publication;
  if (plannedVersion === current.version) return contentWith(record, value, current.value);
  if (plannedVersion === undefined) return undefined;
  const previous = await unlessDisabled(openVault(context, publication).read(secretName, plannedVersion));
  return previous && contentWith(record, value, previous.value);
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
  // Without the value, only the tags can show that this rotation wrote the version.
  if (record.newKeyId === undefined) return false;
  const issuer = issuerOf(record);
  const [[name, tag]] = issuer.tagsOf(record, record.newKeyId);
  // The two keys of a resource alternate, so an earlier rotation may have written the same key name.
  if (issuer.regenerates && current.tags["rotation-id"] !== record.rotationId) return false;
  return current.tags[name] === tag;
}
