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

/** A match with everything that decides whether it is a target. */
interface Evidence {
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
  history: Evidence["history"],
): Promise<Target | undefined> {
  const { secret } = match;
  const vault = await deps.tables.get(Vaults, VAULTS, vaultKey(secret.vaultName));
  if (!vault) return undefined;
  // If the row can't be read, the place counts as not confirmed, and a user can confirm it again.
  const record = await deps.tables.get(MatchRows, matchPartition(app.appId), matchKey(secret.vaultName, secret.name), {
    onCorrupt: ({ message }) => deps.log.error(message),
  });
  const evidence = { app, match, vault, record, history };
  if (match.confidence !== "certain") return unprovedTarget(evidence, secret.createdOn);
  try {
    return await readTarget(deps, evidence);
  } catch (error) {
    if (!(error instanceof CloudFailure && isTransientFailure(error)) || (await isKnown(evidence))) throw error;
    const target = unprovedTarget(evidence, secret.createdOn);
    return isRejected(evidence, secret.createdOn) ? target : { ...target, unanswered: error };
  }
}

async function readTarget(deps: TargetDependencies, evidence: Evidence): Promise<Target | undefined> {
  const { app, match, vault, record } = evidence;
  const { secret, keyId, confidence } = match;
  const { name: vaultName, vaultUri } = vault;
  const newest = await failureIfDenied(currentVersion(deps.vaults, { vaultName, vaultUri, secretName: secret.name }));
  if (newest instanceof CloudFailure) return unreadableTarget(evidence, secret.createdOn);
  if (!newest?.enabled || newest.managed) return undefined;
  const unproved = unprovedTarget(evidence, newest.createdOn);
  const certain = { ...unproved, confidence, heldSince: newest.createdOn };
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
    if (outcome === "unreadable") return unreadableTarget(evidence, newest.createdOn);
    if (outcome !== "accepted" || keyId === undefined || !keyIds.includes(keyId)) return unproved;
  }
  return { ...certain, knownAs: (await wasRotated(deps, evidence, newest)) ? "rotated" : "new" };
}

/**
 * Returns the target without proof by a confirmation or a sign-in: metadata alone makes it at most `likely`.
 *
 * @param createdOn - Creation time of the current version.
 */
function unprovedTarget(evidence: Evidence, createdOn: number | undefined): Target {
  const { vault, match } = evidence;
  const { secret, confidence } = match;
  const withoutProof = confidence === "certain" ? "likely" : confidence;
  return {
    vaultName: vault.name,
    vaultUri: vault.vaultUri,
    vaultId: vault.id,
    secretName: secret.name,
    confidence: isRejected(evidence, createdOn) ? "possible" : withoutProof,
    knownAs: "new",
  };
}

const unreadableTarget = (evidence: Evidence, createdOn: number | undefined): Target => ({
  ...unprovedTarget(evidence, createdOn),
  ...(!isRejected(evidence, createdOn) && { unreadable: true }),
});

/** Returns whether a user stated that the version created at that time, or a later one, stores no credential. */
function isRejected({ record, vault }: Evidence, createdOn: number | undefined): boolean {
  const rejected = record?.rejected;
  return (
    rejected !== undefined &&
    isAboutVault(vault, rejected) &&
    createdOn !== undefined &&
    createdOn <= rejected.versionCreatedOn
  );
}

/**
 * Returns whether a statement is about this vault, not another one of the same name. Rows of earlier releases have no vault ID
 * and count for each vault of the name. So what approves a place also compares the version, whose ID no other vault has.
 */
const isAboutVault = ({ id }: VaultRecord, { vaultId }: { vaultId?: string | undefined }): boolean =>
  vaultId === undefined || vaultId.toLowerCase() === id.toLowerCase();

/** Returns how the last rotation wrote the place; undefined if none did, or if it wrote another vault of the same name. */
async function writtenBefore({ vault, match, record, history }: Evidence): Promise<WrittenPlace | undefined> {
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
  evidence: Evidence,
  newest: Pick<SecretVersion, "version">,
): Promise<boolean> {
  const written = await writtenBefore(evidence);
  if (written === undefined) return false;
  if (written.version === newest.version) return true;
  const versions = await vaults.open(evidence.vault).versions(evidence.match.secret.name);
  return versions.some(({ version }) => version === written.version);
}

/** Returns whether a user confirmed the place or a rotation wrote it, as far as that is known without asking its vault. */
async function isKnown(evidence: Evidence): Promise<boolean> {
  const { match, vault, record } = evidence;
  const { createdOn } = match.secret;
  const confirmed = record?.confirmed;
  const isConfirmed =
    confirmed !== undefined &&
    isAboutVault(vault, confirmed) &&
    (createdOn === undefined || createdOn <= confirmed.versionCreatedOn);
  return isConfirmed || (!isRejected(evidence, createdOn) && (await writtenBefore(evidence)) !== undefined);
}
