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
  type Verified,
  type Word,
} from "./match.ts";

/** Seconds between a secret's expiry and a credential's end up to which one may have been set from the other. */
export const EXPIRY_WINDOW_SECONDS = DAY_SECONDS;
/** Seconds between a secret's version and a credential that were made by one run of a script. */
const TOGETHER_SECONDS = (10 * MINUTE_MS) / SECOND_MS;

export const GUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** The tags that this service writes to what it rotates. */
export const APP_ID_TAG = "entra-app-id";
export const KEY_ID_TAG = "entra-key-id";

/** What is known beside the secret itself. */
export interface Beside {
  /** Of each credential's window of expiry, whether this secret is the only one in it. */
  aloneIn(keyId: string): boolean;
  /** Whether `<prefix>-client-id` in the same vault names the application. */
  companion: boolean;
  /** What was proved and said of the secret before. */
  record: MatchRecord | undefined;
}

/** Undefined when nothing speaks for it, or when it says itself that it belongs to another application. */
export function weigh(secret: ComparedSecret, app: MatchedApp, beside: Beside): Match | undefined {
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

/** One of these alone makes a match certain, unless the secret contradicts itself. */
const PROOFS: readonly Evidence[] = ["tag", "contentType", "confirmed", "signIn"];
const STRONG: readonly Evidence[] = ["hint", "appIdTag", "companion", "expiry", "conflict"];

function confidenceOf(found: ReadonlySet<Evidence>): Confidence {
  if (PROOFS.some((kind) => found.has(kind))) return "certain";
  if (STRONG.some((kind) => found.has(kind))) return "likely";
  return found.has("createdTogether") && (found.has("name") || found.has("expirySameDay")) ? "likely" : "possible";
}

/** A credential that a secret says it holds. Ids are lower-cased. */
interface Claim {
  kind: "tag" | "contentType";
  /** The client id or the object id. */
  appId: string;
  keyId: string | undefined;
}

const isOf = (claim: Claim, app: MatchedApp): boolean =>
  claim.appId === app.appId.toLowerCase() || claim.appId === app.objectId.toLowerCase();

/**
 * What a secret says in the ways that are agreed upon: our own tags, the tags of Microsoft's sample
 * KeyVault-Secrets-Rotation-AADApp, and `<name>:<client id>:<key id>` as content type.
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

/** The text itself where it is a GUID, and the last GUID of a path such as `/applications/<id>`. */
function guidOf(text: string | undefined): string | undefined {
  const found = text?.toLowerCase().match(GUID)?.at(-1);
  return found !== undefined && text!.toLowerCase().endsWith(found) ? found : undefined;
}

/** All GUIDs that a secret's metadata holds, lower-cased, each once, at most 20. */
export function guidsOf({ name, tags, contentType }: Pick<ComparedSecret, "name" | "tags" | "contentType">): string[] {
  const texts = [name, contentType ?? "", ...Object.values(tags ?? {})];
  return [...new Set(texts.flatMap((text) => text.toLowerCase().match(GUID) ?? []))].slice(0, MAX_GUIDS);
}
const MAX_GUIDS = 20;

export const holdsId = (secret: ComparedSecret, app: MatchedApp): boolean =>
  guidsOf(secret).some((guid) => guid === app.appId.toLowerCase() || guid === app.objectId.toLowerCase());

/** What was proved and said, where the inventory knows of no later version than the one it was about. */
function current(record: MatchRecord | undefined, { createdOn }: ComparedSecret) {
  const holds = (word: Word) => createdOn === undefined || createdOn <= word.versionCreatedOn;
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

/** Words that say what a secret is, not whose. */
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
/** Words that tell environments apart; one of them more in the secret's name is no other application. */
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

/** The words of a name, without those that say nothing. */
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
