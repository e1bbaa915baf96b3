import type { PasswordCredential } from "../platform/azure/graph.ts";
import { DAY_SECONDS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import {
  type ComparedSecret,
  type Confidence,
  EVIDENCE,
  type Evidence,
  type Match,
  type MatchedApp,
  type MatchRecord,
  type Statement,
  type Verified,
} from "./match.ts";

/** If a secret and a credential expire within this many seconds of each other, one date may have been copied from the other. */
export const EXPIRY_WINDOW_SECONDS = DAY_SECONDS;
/** If a version and a credential were created within this many seconds of each other, one script may have created both. */
const CREATION_WINDOW_SECONDS = (10 * MINUTE_MS) / SECOND_MS;

export const GUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** Tags that this service writes to secrets that it rotates. */
export const APP_ID_TAG = "entra-app-id";
export const KEY_ID_TAG = "entra-key-id";

/** Facts about a secret that come from other secrets and from stored results. */
export interface MatchContext {
  /** Returns whether no other secret expires within `EXPIRY_WINDOW_SECONDS` of a credential. */
  isOnlyOneInWindow(keyId: string): boolean;
  /** Whether `<prefix>-client-id` in the same vault names the application. */
  hasCompanion: boolean;
  /** Earlier verifications and confirmations of the secret. */
  record: MatchRecord | undefined;
  /** Whether verifications and confirmations are stored that can't be read. The match is then at least `likely`. */
  hasUnreadableRecord: boolean;
}

/**
 * Evaluates the evidence that a secret stores a credential of an application. Returns undefined without any evidence, or if the
 * secret's metadata names another application.
 */
export function evaluateMatch(secret: ComparedSecret, app: MatchedApp, context: MatchContext): Match | undefined {
  const claims = claimsOf(secret);
  if (claims.some((claim) => !namesApplication(claim, app))) return undefined;
  // A verification or confirmation of the secret counts more than a tag that this service or Microsoft's sample did not write.
  const hasStatement = context.record !== undefined || context.hasUnreadableRecord;
  if (!hasStatement && hasTagOfOtherApplication(secret, app)) return undefined;
  const foundEvidence = new Set<Evidence>();
  const passwordsByKeyId = new Map(app.passwords.map((one) => [one.keyId.toLowerCase(), one]));
  const namedKeyIds = new Set(
    claims.flatMap(({ keyId }) => (keyId !== undefined && passwordsByKeyId.has(keyId) ? [keyId] : [])),
  );
  // True if all claims of the metadata name the same credential of the application.
  const isUnambiguous = namedKeyIds.size === 1 && new Set(claims.map(({ keyId }) => keyId)).size === 1;
  if (namedKeyIds.size > 0 && !isUnambiguous) foundEvidence.add("conflict");
  if (isUnambiguous) for (const { kind } of claims) foundEvidence.add(kind);

  const { verified, confirmed } = validStatements(context.record, secret);
  if (confirmed && (confirmed.keyId === undefined || passwordsByKeyId.has(confirmed.keyId)))
    foundEvidence.add("confirmed");
  if (verified && (verified.keyId === undefined || passwordsByKeyId.has(verified.keyId)))
    foundEvidence.add(verified.kind);
  const rotated = validRotation(context.record, secret);
  const rotatedKeyId = rotated && passwordsByKeyId.get(rotated.keyId.toLowerCase())?.keyId;
  if (rotatedKeyId !== undefined) foundEvidence.add("rotated");

  if (containsAppId(secret, app)) foundEvidence.add("appIdTag");
  if (context.hasCompanion) foundEvidence.add("companion");
  if (sameName(secret.name, app.displayName)) foundEvidence.add("name");
  const expiringTogether = app.passwords.filter((one) => expiresWith(secret, one));
  if (expiringTogether.length > 0)
    foundEvidence.add(
      expiringTogether.some(({ keyId }) => context.isOnlyOneInWindow(keyId)) ? "expiry" : "expirySameDay",
    );
  const createdTogether = app.passwords.filter((one) => createdWith(secret, one));
  if (createdTogether.length > 0) foundEvidence.add("createdTogether");
  if (foundEvidence.size === 0 && !context.hasUnreadableRecord) return undefined;

  // The key ID of a confirmation or verification counts only if that statement became evidence above.
  const statedKeyId = foundEvidence.has("confirmed")
    ? confirmed?.keyId
    : verified !== undefined && foundEvidence.has(verified.kind)
      ? verified.keyId
      : undefined;
  // The order of docs/matching.md. Metadata that names one credential is first, because it describes the current version. It can
  // be forged, so a rotation writes to the match only after a sign-in or a confirmation. Without such metadata, an unreadable record
  // may name another credential than the remaining evidence does, so only an application's single credential is certain. Otherwise
  // the most reliable evidence decides: a rotation knows which secret it wrote, and a user who confirms one can be wrong.
  const keyId = isUnambiguous
    ? passwordsByKeyId.get([...namedKeyIds][0]!)!.keyId
    : context.hasUnreadableRecord
      ? onlyOne(app.passwords)
      : (rotatedKeyId ??
        statedKeyId ??
        onlyOne(expiringTogether) ??
        onlyOne(createdTogether) ??
        onlyOne(app.passwords));
  const confidence = confidenceOf(foundEvidence, sharesWord(secret, app));
  return {
    secret,
    confidence: confidence === "possible" && context.hasUnreadableRecord ? "likely" : confidence,
    evidence: EVIDENCE.filter((kind) => foundEvidence.has(kind)),
    keyId,
    verified: foundEvidence.has("signIn") ? "signIn" : foundEvidence.has("hint") ? ("hint" as Verified) : "none",
    isKnown: foundEvidence.has("confirmed") || context.record?.rotated !== undefined,
    version: (confirmed ?? verified)?.version,
  };
}

/**
 * Kinds of evidence that each make a match certain. `tag` and `contentType` are found only if the metadata does not contradict
 * itself.
 */
const PROOFS: readonly Evidence[] = ["tag", "contentType", "confirmed", "signIn", "rotated"];
/** Kinds of evidence that each make a match likely. With `conflict`, the application is named, but not one credential. */
const STRONG: readonly Evidence[] = ["hint", "appIdTag", "companion", "conflict"];

/**
 * Returns the confidence, as docs/matching.md describes it.
 *
 * @param sharesWord - Whether the name of the secret or its vault shares a word with the application's name. Without a shared
 * word, an expiry date alone proves little.
 */
function confidenceOf(foundEvidence: ReadonlySet<Evidence>, sharesWord: boolean): Confidence {
  if (PROOFS.some((kind) => foundEvidence.has(kind))) return "certain";
  if (STRONG.some((kind) => foundEvidence.has(kind))) return "likely";
  if (foundEvidence.has("createdTogether"))
    return foundEvidence.has("name") || foundEvidence.has("expiry") || foundEvidence.has("expirySameDay")
      ? "likely"
      : "possible";
  return foundEvidence.has("expiry") && sharesWord ? "likely" : "possible";
}

/**
 * A claim of a secret's metadata about the credential that it stores. Anyone with write access to the vault can set it. IDs are in
 * lower case.
 */
interface Claim {
  kind: "tag" | "contentType";
  /** Client ID or object ID. */
  appId: string;
  keyId: string | undefined;
}

const namesApplication = (claim: Claim, app: MatchedApp): boolean =>
  claim.appId === app.appId.toLowerCase() || claim.appId === app.objectId.toLowerCase();

/**
 * Reads the credentials that a secret's metadata names, in three conventions: this service's tags, the tags of Microsoft's
 * sample KeyVault-Secrets-Rotation-AADApp, and the content type `<name>:<client id>:<key id>`.
 */
export function claimsOf({ tags, contentType }: Pick<ComparedSecret, "tags" | "contentType">): Claim[] {
  const claims: Claim[] = [];
  const tag = (name: string) => guidOf(tags && Object.hasOwn(tags, name) ? tags[name] : undefined);
  for (const [app, key] of [
    [APP_ID_TAG, KEY_ID_TAG],
    ["ProviderAddress", "CredentialId"],
  ] as const) {
    const appId = tag(app);
    if (appId !== undefined) claims.push({ kind: "tag", appId, keyId: tag(key) });
  }
  const parts = contentType?.toLowerCase().split(":") ?? [];
  const [appId, keyId] = [guidOf(parts.at(-2)), guidOf(parts.at(-1))];
  if (parts.length >= 3 && appId !== undefined && keyId !== undefined)
    claims.push({ kind: "contentType", appId, keyId });
  return claims;
}

/** Matches tags that usually hold a client ID, such as `client-id` and `AppId`. */
const APP_TAG = /(?:^|[-_ ])(?:client|app|application)[-_ ]?id$/i;

/** Returns whether tags such as `client-id` name applications, but not this one. */
function hasTagOfOtherApplication({ tags }: ComparedSecret, app: MatchedApp): boolean {
  const ids = Object.entries(tags ?? {}).flatMap(([name, text]) => (APP_TAG.test(name) ? (guidOf(text) ?? []) : []));
  return ids.length > 0 && !ids.some((id) => id === app.appId.toLowerCase() || id === app.objectId.toLowerCase());
}

/** Returns the GUID that the text is or ends with, as in `/applications/<id>`. */
function guidOf(text: string | undefined): string | undefined {
  const lastGuid = text?.toLowerCase().match(GUID)?.at(-1);
  return lastGuid !== undefined && text!.toLowerCase().endsWith(lastGuid) ? lastGuid : undefined;
}

/** Returns all GUIDs in a secret's metadata, in lower case, without duplicates, at most 20. */
export function guidsOf({ name, tags, contentType }: Pick<ComparedSecret, "name" | "tags" | "contentType">): string[] {
  const texts = [name, contentType ?? "", ...Object.values(tags ?? {})];
  return [...new Set(texts.flatMap((text) => text.toLowerCase().match(GUID) ?? []))].slice(0, MAX_GUIDS);
}
const MAX_GUIDS = 20;

export const containsAppId = (secret: ComparedSecret, app: MatchedApp): boolean =>
  guidsOf(secret).some((guid) => guid === app.appId.toLowerCase() || guid === app.objectId.toLowerCase());

/** Returns the verification and the confirmation that are still valid: the inventory knows no later version. */
function validStatements(record: MatchRecord | undefined, { createdOn }: ComparedSecret) {
  const isCurrent = (statement: Statement) => createdOn === undefined || createdOn <= statement.versionCreatedOn;
  return {
    verified: record?.verified && isCurrent(record.verified) ? record.verified : undefined,
    confirmed: record?.confirmed && isCurrent(record.confirmed) ? record.confirmed : undefined,
  };
}

/**
 * Returns the last completed rotation that wrote the secret, if the inventory knows no later version. If the inventory has an
 * earlier version, it is only stale, so the rotation counts.
 *
 * Rows of earlier releases have no `versionCreatedOn`, only the time when the rotation ended (`at`). A version that another writer
 * created between the rotation's write and its end is then not recognized as later.
 */
function validRotation(record: MatchRecord | undefined, { createdOn }: ComparedSecret): MatchRecord["rotated"] {
  const rotated = record?.rotated;
  if (rotated === undefined || createdOn === undefined) return rotated;
  const writtenOn = rotated.versionCreatedOn ?? Date.parse(rotated.at) / SECOND_MS;
  return createdOn <= writtenOn ? rotated : undefined;
}

const expiresWith = ({ expiresOn }: ComparedSecret, credential: PasswordCredential): boolean =>
  expiresOn !== undefined &&
  credential.expiresOn !== undefined &&
  Math.abs(expiresOn - credential.expiresOn) <= EXPIRY_WINDOW_SECONDS;

const createdWith = ({ createdOn }: ComparedSecret, { startsOn }: PasswordCredential): boolean =>
  createdOn !== undefined && startsOn !== undefined && Math.abs(createdOn - startsOn) <= CREATION_WINDOW_SECONDS;

const onlyOne = (credentials: readonly PasswordCredential[]): string | undefined =>
  credentials.length === 1 ? credentials[0]!.keyId : undefined;

/** Words that name the kind of secret, not its owner. */
const GENERIC_WORDS = new Set([
  "secret",
  "client",
  "clientsecret",
  "password",
  "pwd",
  "app",
  "api",
  "kv",
  "key",
  "value",
  "sp",
]);
/** Words for environments. An additional one in the secret's name does not make it another application. */
const ENVIRONMENTS = new Set([
  "dev",
  "development",
  "test",
  "qa",
  "uat",
  "stage",
  "staging",
  "prod",
  "production",
  "live",
]);

/** Splits a name at case changes and other characters into words in lower case, without `GENERIC_WORDS`. */
export const wordsOf = (name: string): string[] =>
  name
    .replace(/(\p{Ll})(\p{Lu})/gu, "$1-$2")
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== "" && !GENERIC_WORDS.has(word));

/** Returns whether the names have the same words. The secret's name may also have words for environments. */
function sameName(secretName: string, displayName: string): boolean {
  const [secret, app] = [wordsOf(secretName), wordsOf(displayName)];
  if (app.length === 0 || secret.length === 0) return false;
  if (secret.join("") === app.join("")) return true;
  const otherWords = secret.filter((word) => !app.includes(word));
  return app.every((word) => secret.includes(word)) && otherWords.every((word) => ENVIRONMENTS.has(word));
}

/** Minimum length of a word that counts as shared. Shorter words occur in names by chance. */
const SHORTEST_SHARED_WORD = 3;

/**
 * Returns whether the secret's or its vault's name contains a word of the application's name. True if the application's name has
 * no word to compare.
 */
function sharesWord({ vaultName, name }: ComparedSecret, { displayName }: MatchedApp): boolean {
  const words = wordsOf(displayName).filter((word) => word.length >= SHORTEST_SHARED_WORD && !ENVIRONMENTS.has(word));
  const names = `${vaultName}/${name}`.toLowerCase();
  return words.length === 0 || words.some((word) => names.includes(word));
}
