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

/** Largest difference in seconds at which the expiry of a secret may have been set from that of a credential. */
export const EXPIRY_WINDOW_SECONDS = DAY_SECONDS;
/** Largest difference in seconds between a version and a credential that one script created. */
const TOGETHER_SECONDS = (10 * MINUTE_MS) / SECOND_MS;

export const GUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** Tags that this service writes to secrets that it rotates. */
export const APP_ID_TAG = "entra-app-id";
export const KEY_ID_TAG = "entra-key-id";

/** Facts about a secret that are not in its own record. */
export interface MatchContext {
  /** Returns whether this secret is the only one in the expiry window of a credential. */
  aloneIn(keyId: string): boolean;
  /** Whether `<prefix>-client-id` in the same vault names the application. */
  companion: boolean;
  /** Earlier verifications and confirmations of the secret. */
  record: MatchRecord | undefined;
}

/**
 * Evaluates the evidence that a secret stores a credential of an application. Returns undefined without any evidence, or if the
 * secret's metadata names another application.
 */
export function evaluateMatch(secret: ComparedSecret, app: MatchedApp, beside: MatchContext): Match | undefined {
  const claims = claimsOf(secret);
  if (claims.some((claim) => !isOf(claim, app))) return undefined;
  const found = new Set<Evidence>();
  const keys = new Map(app.passwords.map((one) => [one.keyId.toLowerCase(), one]));
  const named = new Set(claims.flatMap(({ keyId }) => (keyId !== undefined && keys.has(keyId) ? [keyId] : [])));
  const agreed = named.size === 1 && new Set(claims.map(({ keyId }) => keyId)).size === 1;
  if (named.size > 0 && !agreed) found.add("conflict");
  if (agreed) for (const { kind } of claims) found.add(kind);

  const { verified, confirmed } = current(beside.record, secret);
  if (confirmed && (confirmed.keyId === undefined || keys.has(confirmed.keyId))) found.add("confirmed");
  if (verified && (verified.keyId === undefined || keys.has(verified.keyId))) found.add(verified.kind);

  if (holdsId(secret, app)) found.add("appIdTag");
  if (beside.companion) found.add("companion");
  if (sameName(secret.name, app.displayName)) found.add("name");
  const ending = app.passwords.filter((one) => endTogether(secret, one));
  if (ending.length > 0) found.add(ending.some(({ keyId }) => beside.aloneIn(keyId)) ? "expiry" : "expirySameDay");
  const together = app.passwords.filter((one) => madeTogether(secret, one));
  if (together.length > 0) found.add("createdTogether");
  if (found.size === 0) return undefined;

  const known = found.has("confirmed")
    ? confirmed?.keyId
    : found.has(verified?.kind ?? "conflict")
      ? verified?.keyId
      : undefined;
  const keyId = agreed
    ? keys.get([...named][0]!)!.keyId
    : (known ?? onlyOne(ending) ?? onlyOne(together) ?? onlyOne(app.passwords));
  return {
    secret,
    confidence: confidenceOf(found),
    evidence: EVIDENCE.filter((kind) => found.has(kind)),
    keyId,
    verified: found.has("signIn") ? "signIn" : found.has("hint") ? ("hint" as Verified) : "none",
    isKnown: found.has("confirmed") || beside.record?.rotated !== undefined,
    version: (confirmed ?? verified)?.version,
  };
}

/** Each of these alone makes a match certain, unless the secret's metadata contradicts itself. */
const PROOFS: readonly Evidence[] = ["tag", "contentType", "confirmed", "signIn"];
const STRONG: readonly Evidence[] = ["hint", "appIdTag", "companion", "expiry", "conflict"];

function confidenceOf(found: ReadonlySet<Evidence>): Confidence {
  if (PROOFS.some((kind) => found.has(kind))) return "certain";
  if (STRONG.some((kind) => found.has(kind))) return "likely";
  return found.has("createdTogether") && (found.has("name") || found.has("expirySameDay")) ? "likely" : "possible";
}

/** A credential that the secret's metadata names. IDs are in lower case. */
interface Claim {
  kind: "tag" | "contentType";
  /** Client ID or object ID. */
  appId: string;
  keyId: string | undefined;
}

const isOf = (claim: Claim, app: MatchedApp): boolean =>
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

/** Returns the GUID that the text is or ends with, as in `/applications/<id>`. */
function guidOf(text: string | undefined): string | undefined {
  const found = text?.toLowerCase().match(GUID)?.at(-1);
  return found !== undefined && text!.toLowerCase().endsWith(found) ? found : undefined;
}

/** Returns all GUIDs in a secret's metadata, in lower case, without duplicates, at most 20. */
export function guidsOf({ name, tags, contentType }: Pick<ComparedSecret, "name" | "tags" | "contentType">): string[] {
  const texts = [name, contentType ?? "", ...Object.values(tags ?? {})];
  return [...new Set(texts.flatMap((text) => text.toLowerCase().match(GUID) ?? []))].slice(0, MAX_GUIDS);
}
const MAX_GUIDS = 20;

export const holdsId = (secret: ComparedSecret, app: MatchedApp): boolean =>
  guidsOf(secret).some((guid) => guid === app.appId.toLowerCase() || guid === app.objectId.toLowerCase());

/** Returns the verification and the confirmation that are still valid: the inventory knows no later version. */
function current(record: MatchRecord | undefined, { createdOn }: ComparedSecret) {
  const holds = (word: Statement) => createdOn === undefined || createdOn <= word.versionCreatedOn;
  return {
    verified: record?.verified && holds(record.verified) ? record.verified : undefined,
    confirmed: record?.confirmed && holds(record.confirmed) ? record.confirmed : undefined,
  };
}

const endTogether = ({ expiresOn }: ComparedSecret, credential: PasswordCredential): boolean =>
  expiresOn !== undefined &&
  credential.expiresOn !== undefined &&
  Math.abs(expiresOn - credential.expiresOn) <= EXPIRY_WINDOW_SECONDS;

const madeTogether = ({ createdOn }: ComparedSecret, { startsOn }: PasswordCredential): boolean =>
  createdOn !== undefined && startsOn !== undefined && Math.abs(createdOn - startsOn) <= TOGETHER_SECONDS;

const onlyOne = (credentials: readonly PasswordCredential[]): string | undefined =>
  credentials.length === 1 ? credentials[0]!.keyId : undefined;

/** Words that name the kind of secret, not its owner. */
const NOISE = new Set([
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

/** Splits a name into words and drops meaningless ones. */
export const wordsOf = (name: string): string[] =>
  name
    .replace(/(\p{Ll})(\p{Lu})/gu, "$1-$2")
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== "" && !NOISE.has(word));

function sameName(secretName: string, displayName: string): boolean {
  const [secret, app] = [wordsOf(secretName), wordsOf(displayName)];
  if (app.length === 0 || secret.length === 0) return false;
  if (secret.join("") === app.join("")) return true;
  const more = secret.filter((word) => !app.includes(word));
  return app.every((word) => secret.includes(word)) && more.every((word) => ENVIRONMENTS.has(word));
}
