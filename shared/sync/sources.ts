import type { SecretVersion } from "../platform/azure/vault-secrets.ts";
import type { Clock } from "../platform/runtime.ts";
import { SECOND_MS } from "../platform/time.ts";
import { ownerOf } from "./providers/ownership-mark.ts";
import { SyncFailure } from "./providers/provider.ts";
import { type SyncRecord, sourceOf, type VaultIdentity } from "./record.ts";
import type { SyncVaults } from "./record-vaults.ts";

/** The source version that a target should hold. */
export interface SourceVersion {
  version: string;
  /** The vault that contains it. */
  vault: VaultIdentity;
  /** See `SyncRecord.tiedVersions`. */
  tiedVersions?: string;
}

/** Reads the source secrets. Every method throws `SyncFailure` or `CloudFailure`. */
export interface Sources {
  /**
   * Returns the current version without reading the value. Exception: if several versions were created in the same second, and
   * they are not those of the last run, the value is read, because nothing else identifies the current version.
   *
   * @throws {SyncFailure} sourceNotFound, sourceManaged, sourceDisabled, sourceNotYetValid, sourceExpired, syncLoop
   */
  inspect(record: SyncRecord, signal: AbortSignal): Promise<SourceVersion>;
  /** Returns the value of exactly this version. @throws {SyncFailure} sourceNotFound if it is gone. */
  read(record: SyncRecord, version: string, signal: AbortSignal): Promise<string>;
}

export function createSources({ vaults, clock }: { vaults: SyncVaults; clock: Clock }): Sources {
  /**
   * Returns the current version. If several versions were created in the same second (`tied`), also returns their IDs, and
   * reads the secret's value unless the last run has found out which of them is current.
   */
  async function findCurrent(record: SyncRecord, versions: SecretVersion[], signal: AbortSignal) {
    const tied = versions.filter(({ createdOn }) => createdOn === versions[0]?.createdOn);
    if (tied.length < 2) return { current: tied[0] };
    const tiedVersions = tied
      .map(({ version }) => version)
      .sort()
      .join(" ");
    const currentAtLastRun =
      tiedVersions === record.tiedVersions && tied.find(({ version }) => version === record.currentVersion);
    if (currentAtLastRun) return { current: currentAtLastRun, tiedVersions };
    const { secrets } = await vaults.open(record, "source", true);
    const read = await secrets.read(record.sourceSecret, undefined, signal);
    // `read` itself if the version was created after `versions` was listed.
    return { current: tied.find(({ version }) => version === read?.version) ?? read, tiedVersions };
  }

  return {
    async inspect(record, signal) {
      const { secrets, identity } = await vaults.open(record, "source", false);
      const versions = await secrets.versions(record.sourceSecret, signal);
      const { current, tiedVersions } = await findCurrent(record, versions, signal);
      if (!current) throw sourceMissing(record);
      checkUsable(record, current, Math.floor(clock.now().getTime() / SECOND_MS));
      return { version: current.version, vault: identity, ...(tiedVersions !== undefined && { tiedVersions }) };
    },

    async read(record, version, signal) {
      const { secrets } = await vaults.open(record, "source", true);
      const secret = await secrets.read(record.sourceSecret, version, signal);
      if (!secret) throw sourceMissing(record);
      return secret.value;
    },
  };
}

/** Throws if this version of the source must not be copied. @param now - Unix seconds. @throws {SyncFailure} */
function checkUsable(record: SyncRecord, { managed, enabled, notBefore, expiresOn, tags }: SecretVersion, now: number) {
  const source = sourceOf(record);
  const unusable = (code: SyncFailure["code"], what: string, remedy: string) =>
    new SyncFailure(code, `The secret ${source} ${what}.`, { remedy });
  const owner = ownerOf(tags);
  if (owner !== null) {
    throw unusable(
      "syncLoop",
      `is itself a copy: the sync record ${owner} writes it`,
      "Copy from where it comes from instead.",
    );
  }
  if (managed) {
    throw unusable(
      "sourceManaged",
      "holds a certificate's private key and is not copied",
      "Name a secret of its own as the source.",
    );
  }
  if (!enabled) {
    throw unusable("sourceDisabled", "is disabled in its current version", "Enable that version, or write a new one.");
  }
  if (expiresOn !== undefined && expiresOn <= now) {
    throw unusable("sourceExpired", "has expired", "Write a new version. The target keeps its current value.");
  }
  if (notBefore !== undefined && notBefore > now) {
    throw unusable(
      "sourceNotYetValid",
      "is not valid yet in its current version",
      "No action needed: the secret is copied when it becomes valid.",
    );
  }
}

const sourceMissing = (record: SyncRecord) =>
  new SyncFailure("sourceNotFound", `There is no secret ${sourceOf(record)}.`, {
    remedy: "Check the name of the source, or recover it if it was deleted. The target keeps its current value.",
  });
