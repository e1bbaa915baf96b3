import { VAULTS, type VaultRecord, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { SecretVersion, VaultSecretsClients } from "../platform/azure/vault-secrets.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import {
  type ComparedSecret,
  type Match,
  type MatchedApp,
  type MatchRecord,
  MatchRows,
  matchKey,
  matchPartition,
  type Statement,
} from "./match.ts";
import { failureIfDenied, type Proof } from "./match-verification.ts";
import { currentVersion } from "./plan-places.ts";
import { isTransientFailure, signInUnclear } from "./problems.ts";
import { placeKey, type Target } from "./targets.ts";
import type { WrittenPlace } from "./written-places.ts";

// Decides for each match of a rotation (a vault secret that may store the client secret) what is known about it. A user may
// have confirmed it, a sign-in may have proved it, or an earlier rotation may have written it. The result is a `Target`: a vault
// secret that a rotation can consider for writing, with its `confidence` and `knownAs`.

interface TargetDependencies {
  tables: Tables;
  clock: Clock;
  log: Logger;
  vaults: VaultSecretsClients;
  /** Tests the value of a secret and stores the result. `keyId`: the credential that is expected. */
  verify(app: MatchedApp, secret: ComparedSecret, vault: VaultRecord, keyId: string | undefined): Promise<Proof>;
}

/** A match with all facts that decide the `confidence` and `knownAs` of its target. */
interface MatchFacts {
  app: MatchedApp;
  match: Match;
  vault: VaultRecord;
  /** Undefined if there is no row, or if the row can't be read. The place then has no confirmation and no tests. */
  record: MatchRecord | undefined;
  /** Returns the places that earlier rotations wrote. Called only if needed. */
  history: () => Promise<ReadonlyMap<string, WrittenPlace>>;
}

/**
 * Returns the target of a match; undefined if the vault no longer exists. Reads the secret only if the match is `certain`, and
 * then also returns undefined if the secret no longer exists, is disabled, or belongs to a certificate.
 *
 * @throws {CloudFailure} if a place that a user confirmed or a rotation wrote gives no clear answer. Any other place is then
 * returned as `unanswered`, because anyone could own its vault.
 */
export async function targetOf(
  deps: TargetDependencies,
  app: MatchedApp,
  match: Match,
  history: MatchFacts["history"],
): Promise<Target | undefined> {
  const { secret } = match;
  const vault = await deps.tables.get(Vaults, VAULTS, vaultKey(secret.vaultName));
  if (!vault) return undefined;
  // If the row can't be read, the place counts as not confirmed, and a user can confirm it again.
  const record = await deps.tables.get(MatchRows, matchPartition(app.appId), matchKey(secret.vaultName, secret.name), {
    onCorrupt: ({ message }) => deps.log.error(message),
  });
  const facts = { app, match, vault, record, history };
  if (match.confidence !== "certain") return unprovedTarget(facts, secret.createdOn);
  try {
    return await readTarget(deps, facts);
  } catch (error) {
    if (!(error instanceof CloudFailure && isTransientFailure(error)) || (await isKnown(facts))) throw error;
    const target = unprovedTarget(facts, secret.createdOn);
    return isRejected(facts, secret.createdOn) ? target : { ...target, unanswered: error };
  }
}

/** Reads the current version of a certain match. Tests its value unless a confirmation or an earlier test of this version is stored. */
async function readTarget(deps: TargetDependencies, facts: MatchFacts): Promise<Target | undefined> {
  const { app, match, vault, record } = facts;
  const { secret, keyId, confidence } = match;
  const { name: vaultName, vaultUri } = vault;
  const newest = await failureIfDenied(currentVersion(deps.vaults, { vaultName, vaultUri, secretName: secret.name }));
  if (newest instanceof CloudFailure) return unreadableTarget(facts, secret.createdOn);
  if (!newest?.enabled || newest.managed) return undefined;
  const unproved = unprovedTarget(facts, newest.createdOn);
  // The place holds the value since its current version was created. If no place is known, a rotation that a user requests writes
  // the place with the earliest `heldSince`.
  const certain = { ...unproved, confidence, heldSince: newest.createdOn };
  // A confirmation or test counts only for the current version and for the credential that the evidence names.
  const isValid = (statement: Statement | undefined) =>
    statement?.version === newest.version && statement.keyId === keyId && isAboutVault(vault, statement);
  if (isValid(record?.confirmed)) return { ...certain, knownAs: "confirmed" };
  if (!(record?.verified?.kind === "signIn" && isValid(record.verified))) {
    // `refused`: a test showed that the value is no working secret of the application. `rejected`, in contrast, is a user's
    // statement. Rotations call this function repeatedly, so a wrong value is tested at most once a day.
    const refused = record?.refused;
    if (refused?.version === newest.version && deps.clock.now().getTime() - Date.parse(refused.at) < DAY_MS)
      return { ...unproved, confidence: "possible" };
    const { outcome, keyIds } = await deps.verify(app, secret, vault, keyId);
    if (outcome === "unclear") throw signInUnclear(app.appId);
    if (outcome === "refused" || outcome === "otherHint") return { ...unproved, confidence: "possible" };
    if (outcome === "unreadable") return unreadableTarget(facts, newest.createdOn);
    // `expired` or `impossible`: a sign-in proves nothing. Without a hint of this credential, the value may be another credential's.
    if (outcome !== "accepted" || keyId === undefined || !keyIds.includes(keyId)) return unproved;
  }
  return { ...certain, knownAs: (await wasRotated(deps, facts, newest)) ? "rotated" : "new" };
}

/**
 * Returns the target without proof by a confirmation or a sign-in: metadata alone makes it at most `likely`.
 *
 * @param createdOn - Creation time of the current version.
 */
function unprovedTarget(facts: MatchFacts, createdOn: number | undefined): Target {
  const { vault, match } = facts;
  const { secret, confidence } = match;
  const withoutProof = confidence === "certain" ? "likely" : confidence;
  return {
    vaultName: vault.name,
    vaultUri: vault.vaultUri,
    vaultId: vault.id,
    secretName: secret.name,
    confidence: isRejected(facts, createdOn) ? "possible" : withoutProof,
    knownAs: "new",
  };
}

const unreadableTarget = (facts: MatchFacts, createdOn: number | undefined): Target => ({
  ...unprovedTarget(facts, createdOn),
  ...(!isRejected(facts, createdOn) && { unreadable: true }),
});

/** Returns whether a user stated that the version created at that time, or a later one, stores no credential. */
function isRejected({ record, vault }: MatchFacts, createdOn: number | undefined): boolean {
  const rejected = record?.rejected;
  return (
    rejected !== undefined &&
    isAboutVault(vault, rejected) &&
    createdOn !== undefined &&
    createdOn <= rejected.versionCreatedOn
  );
}

/**
 * Returns whether a statement is about this vault, not another one of the same name. Rows of earlier releases have no vault ID, and
 * this function accepts them for any vault of the name. So `isValid` and `wasRotated` also compare the version: no other vault has a
 * version with the same ID.
 */
const isAboutVault = ({ id }: VaultRecord, { vaultId }: { vaultId?: string | undefined }): boolean =>
  vaultId === undefined || vaultId.toLowerCase() === id.toLowerCase();

/** Returns how the last rotation wrote the place; undefined if none did, or if it wrote another vault of the same name. */
async function lastRotationOf({ vault, match, record, history }: MatchFacts): Promise<WrittenPlace | undefined> {
  const place = { vaultName: vault.name, secretName: match.secret.name };
  const written = record?.rotated ?? (await history()).get(placeKey(place));
  return written !== undefined && isAboutVault(vault, written) ? written : undefined;
}

/**
 * Returns whether a rotation wrote the place and the version that it wrote still exists. The vault ID alone is no proof: since
 * the last scan, the vault may have been deleted, and another person may have created a vault of the same name. The inventory
 * then still has the former vault's ID.
 */
async function wasRotated(
  { vaults }: TargetDependencies,
  facts: MatchFacts,
  newest: Pick<SecretVersion, "version">,
): Promise<boolean> {
  const written = await lastRotationOf(facts);
  if (written === undefined) return false;
  if (written.version === newest.version) return true;
  const versions = await vaults.open(facts.vault).versions(facts.match.secret.name);
  return versions.some(({ version }) => version === written.version);
}

/**
 * Returns whether a user confirmed the place or a rotation wrote it, from stored rows only: its vault gave no answer. A known place
 * that can't be read must stop a rotation, because the rotation may have to write it.
 */
async function isKnown(facts: MatchFacts): Promise<boolean> {
  const { match, vault, record } = facts;
  const { createdOn } = match.secret;
  const confirmed = record?.confirmed;
  const isConfirmed =
    confirmed !== undefined &&
    isAboutVault(vault, confirmed) &&
    (createdOn === undefined || createdOn <= confirmed.versionCreatedOn);
  return isConfirmed || (!isRejected(facts, createdOn) && (await lastRotationOf(facts)) !== undefined);
}
