import type { NewSecretVersion, SecretVersion, VaultSecrets } from "../platform/azure/vault-secrets.ts";
import { SECOND_MS } from "../platform/time.ts";
import { isVaultSecret, type Publication, type RotationRecord } from "./rotation.ts";
import type { Turn } from "./turn.ts";

/** https://learn.microsoft.com/azure/key-vault/secrets/about-secrets#secret-tags */
const MAX_TAGS = 15;
/** Without these a version that was written is not known again. */
const NEEDED_TAGS = 2;

export const placeOf = ({ vaultName, secretName }: { vaultName: string; secretName: string }): string =>
  `${vaultName}/${secretName}`;

/** Whether our own tags find room beside those that a secret has. */
export const hasRoomForTags = ({ tags }: Pick<SecretVersion, "tags">): boolean =>
  Object.keys(tags).filter((name) => !OURS.has(name)).length <= MAX_TAGS - NEEDED_TAGS;

const OURS = new Set(["rotation-id", "entra-key-id", "entra-app-id", "managed-by", "rotated-at"]);

/** The version to write: what the one before said of itself, with the new key id where it named the old one. */
export function nextVersion(
  { rotationId, appId, oldKeyId, newKeyId = "", newExpiresAt }: RotationRecord,
  before: Pick<SecretVersion, "tags" | "contentType"> | undefined,
  value: string,
  now: Date,
): NewSecretVersion {
  const renamed = (text: string) => (oldKeyId === undefined ? text : text.replaceAll(oldKeyId, newKeyId));
  const carried = Object.entries(before?.tags ?? {})
    .filter(([name]) => !OURS.has(name))
    .map(([name, tag]) => [name, renamed(tag)]);
  const ours = [
    ["rotation-id", rotationId],
    ...(appId === undefined
      ? []
      : [
          ["entra-key-id", newKeyId],
          ["entra-app-id", appId],
        ]),
    ["managed-by", "credential-lifecycle"],
    ["rotated-at", now.toISOString()],
  ].slice(0, MAX_TAGS - carried.length);
  return {
    value,
    contentType: before?.contentType === undefined ? undefined : renamed(before.contentType),
    tags: Object.fromEntries([...carried, ...ours]),
    expiresOn: newExpiresAt === undefined ? undefined : Math.floor(Date.parse(newExpiresAt) / SECOND_MS),
  };
}

export const vaultOf = ({ world }: Turn, { vaultName, vaultUri }: Publication): VaultSecrets =>
  world.vaults.open({ name: vaultName, vaultUri });

/** What a place holds now: the `new` value, what it held when this was `planned`, or something `other`. */
export interface Held {
  holds: "new" | "planned" | "other";
  current: (SecretVersion & { value: string }) | undefined;
}

/** @param value of the new secret, where it can still be read. */
export async function lookAt(turn: Turn, publication: Publication, value: string | undefined): Promise<Held> {
  const current = await vaultOf(turn, publication).read(publication.secretName);
  if (current !== undefined && isNew(turn.record, current, value)) return { holds: "new", current };
  return { holds: current?.version === publication.plannedVersion ? "planned" : "other", current };
}

/**
 * A person may give a vault's secret the value that it has already, so there the mark says it; whoever writes another value may
 * carry the tags over, so the mark alone does not.
 */
function isNew(record: RotationRecord, current: SecretVersion & { value: string }, value: string | undefined): boolean {
  if (isVaultSecret(record)) {
    return current.tags["rotation-id"] === record.rotationId && (value === undefined || current.value === value);
  }
  if (value !== undefined) return current.value === value;
  return record.newKeyId !== undefined && current.tags["entra-key-id"] === record.newKeyId;
}

/** Writes down how far a publication is. */
export const progress = (turn: Turn, one: Publication, change: Partial<Publication>): Promise<void> =>
  turn.save(({ publications }) => ({
    publications: publications.map((other) => (placeOf(other) === placeOf(one) ? { ...other, ...change } : other)),
  }));
