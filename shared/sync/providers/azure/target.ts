import type { SecretVersion, VaultSecrets } from "../../../platform/azure/vault-secrets.ts";
import { MARK_TAGS, markId, ownerOf, tagsOf } from "../ownership-mark.ts";
import type { SyncTarget, TargetState } from "../provider.ts";
import { SyncFailure } from "../provider.ts";
import { asSyncFailure } from "./failures.ts";

/** Key Vault does not report until when a deleted secret can be recovered. */
const UNKNOWN_TIME = "unknown";

/**
 * Target in another key vault. The tags of each version contain the mark of its write: the sync record, which owns the target,
 * and an ID of record and source version. Key Vault has no conditional write: a version that another writer creates between the
 * last read and the write is superseded by a newer one and stays readable.
 *
 * @param open - Opens the vault. `readsValue`: whether a value is read or written next, so that the vault must be looked up
 * now.
 */
export function azureTarget(open: (readsValue: boolean) => Promise<VaultSecrets>): SyncTarget {
  /** Converts all errors into failures of the target. */
  async function withVault<T>(readsValue: boolean, work: (vault: VaultSecrets) => Promise<T>): Promise<T> {
    try {
      return await work(await open(readsValue));
    } catch (error) {
      throw asSyncFailure(error);
    }
  }

  async function describe(vault: VaultSecrets, name: string, versions: readonly SecretVersion[]): Promise<TargetState> {
    if (versions.length > 0) return stateOf(versions);
    const deleted = await vault.deleted(name);
    if (!deleted) return { exists: false };
    return { exists: false, deletedUntil: UNKNOWN_TIME, ownedBy: ownerOf(deleted.tags) };
  }

  return {
    describe: (name, signal) =>
      withVault(false, async (vault) => describe(vault, name, await vault.versions(name, signal))),

    put: (name, value, mark, expected, signal) =>
      withVault(true, async (vault) => {
        const versions = await vault.versions(name, signal);
        const now = await describe(vault, name, versions);
        if (now.currentMarkId === markId(mark)) return { version: now.version, created: false };
        if (now.exists !== expected.exists || now.version !== expected.version) throw changedMeanwhile(name);
        const { version } = await vault.write(name, { value, tags: { ...tagsOf(mark), ...supersedesTag(versions) } });
        return { version, created: !now.exists };
      }),

    undelete: (name) => withVault(true, (vault) => vault.recover(name)),
    remove: (name) => withVault(true, (vault) => vault.remove(name)),
  };
}

function stateOf(versions: readonly SecretVersion[]): TargetState {
  const newest = newestOf(versions);
  // Of several versions of the same second, the current one is known only if its tag names all the others.
  const current = newest.length === 1 ? newest[0] : newest.find((version) => isNewer(version, newest));
  return {
    exists: true,
    ownedBy: ownerIn(versions),
    // Undefined also if it is unknown which of several versions is current: then the written value may not be current.
    currentMarkId: current && ownerOf(current.tags) !== null ? current.tags[MARK_TAGS.mark] : undefined,
    // The IDs of all newest versions, so that a further version of the same second counts as a change.
    version: newest
      .map(({ version }) => version)
      .sort()
      .join(" "),
    ...(newest[0]!.managed && {
      refused: "it belongs to a certificate of the same name and can't be written separately",
    }),
  };
}

/** Returns the newest versions. Key Vault dates versions by the second, and versions of the same second have no order. */
const newestOf = (versions: readonly SecretVersion[]): SecretVersion[] =>
  versions.filter(({ createdOn }) => createdOn === versions[0]?.createdOn);

/**
 * Tag with the versions that a write superseded: the first eight characters of each ID, up to 28 of them, because a tag has at
 * most 256 characters.
 */
const SUPERSEDES_TAG = "sync-above";
const MAX_SUPERSEDED = 28;
const shortId = ({ version }: SecretVersion): string => version.slice(0, 8);

const supersedesTag = (versions: readonly SecretVersion[]): Record<string, string> => ({
  [SUPERSEDES_TAG]: newestOf(versions).slice(0, MAX_SUPERSEDED).map(shortId).join(" "),
});

/** Returns whether the tag of a version names all other given versions, so the version was written after them. */
function isNewer(version: SecretVersion, versions: readonly SecretVersion[]): boolean {
  const superseded = new Set((version.tags[SUPERSEDES_TAG] ?? "").split(" "));
  const isLast = versions.every((other) => other === version || superseded.has(shortId(other)));
  return ownerOf(version.tags) !== null && isLast;
}

/**
 * Returns the owner from any version. Versions do not inherit tags: after another writer adds a version, the secret still
 * belongs to its record.
 */
const ownerIn = (versions: readonly SecretVersion[]): string | null =>
  versions.map(({ tags }) => ownerOf(tags)).find((owner) => owner !== null) ?? null;

const changedMeanwhile = (name: string) =>
  new SyncFailure("changedMeanwhile", `The secret ${name} was changed between the last read and the write.`, {
    remedy: "No action needed: the next run checks again.",
  });
