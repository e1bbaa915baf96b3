import pMap from "p-map";
import { type AssetRecord, Assets, isCredentialId, locationsOf, sourceOf } from "../inventory/asset.ts";
import { expiryBounds, nameKey, namePrefix, partitions } from "../inventory/asset-keys.ts";
import type { PasswordCredential } from "../platform/azure/graph.ts";
import type { Logger } from "../platform/runtime.ts";
import { keyEnd, keyTextOf } from "../platform/storage/keys.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import {
  COMPARED_COLUMNS,
  type ComparedSecret,
  type MatchedApp,
  type MatchRecord,
  MatchRows,
  matchKey,
  matchPartition,
} from "./match.ts";
import { containsAppId, EXPIRY_WINDOW_SECONDS, type MatchContext, wordsOf } from "./match-evidence.ts";
import type { MatchIndex } from "./match-index.ts";

/** Number of credentials that are searched for, latest expiry first. An application may have hundreds. */
const MAX_CREDENTIALS = 20;
/** Maximum number of secrets that contain one ID, and of pages of 1,000 rows in one range. */
const MAX_SECRETS_PER_ID = 200;
const MAX_PAGES = 2;
const PARALLEL = 8;
/** Minimum length of the application name's first word. Shorter words would match the names of too many secrets. */
const SHORTEST_WORD = 3;

export interface Candidate {
  secret: ComparedSecret;
  context: MatchContext;
}

/** Secrets that may store a credential of an application, and sentences about what was not searched. */
export interface Candidates {
  candidates: Candidate[];
  coverage: string[];
}

/**
 * Finds the vault secrets that may store a credential of an application, by their metadata. Reads ranges of the inventory's
 * indexes and of the index of GUIDs instead of all assets. Costs one request for each ID, one for each expiry window (two if a
 * window has more than 1,000 secrets), up to two for names, one for earlier results, and one for each secret that contains an
 * ID.
 */
export async function findCandidates(
  app: MatchedApp,
  deps: { tables: Tables; index: MatchIndex; isServiceVault: (name: string) => boolean; log: Logger },
): Promise<Candidates> {
  const { tables, index } = deps;
  const coverage: string[] = [];
  const secretsByKey = new Map<string, ComparedSecret>();
  // Excludes credentials of applications, which are assets of the inventory too.
  const isCandidate = (secret: ComparedSecret) =>
    sourceOf(secret) === "keyVault" && !deps.isServiceVault(secret.vaultName);
  const addCandidate = (secret: ComparedSecret) => {
    if (isCandidate(secret)) secretsByKey.set(matchKey(secret.vaultName, secret.name), secret);
  };
  const credentials = newestFirst(app.passwords).slice(0, MAX_CREDENTIALS);
  if (credentials.length < app.passwords.length)
    coverage.push(
      `The application has ${app.passwords.length} credentials. Only the ${MAX_CREDENTIALS} with the latest expiry were searched for.`,
    );

  const earlier = await readEarlierResults(app.appId, deps);
  coverage.push(...earlier.coverage);

  const windows = await pMap(
    credentials,
    async (credential) => {
      const { secrets, more } = await findByExpiry(tables, credential);
      return { keyId: credential.keyId, secrets: secrets.filter(isCandidate), more };
    },
    { concurrency: PARALLEL },
  );
  for (const { secrets } of windows) for (const secret of secrets) addCandidate(secret);
  if (windows.some(({ more }) => more))
    coverage.push("Not all secrets that expire on the same day as one of the credentials were searched.");

  const named = await findByName(tables, app);
  for (const secret of named.secrets) addCandidate(secret);
  if (named.more) coverage.push("Not all secrets whose name begins with the application's name were searched.");

  // Places of secrets that are found by an ID or an earlier result, and whose inventory rows are not read yet.
  const placesByKey = new Map(
    (await findById(app, credentials, index)).map((one) => [matchKey(one.vaultName, one.secretName), one]),
  );
  for (const { vaultName, secretName } of earlier.records.values())
    placesByKey.set(matchKey(vaultName, secretName), { vaultName, secretName });
  for (const [key, place] of earlier.unreadable) placesByKey.set(key, place);
  const missing = [...placesByKey].filter(([key]) => !secretsByKey.has(key)).map(([, one]) => one);
  for (const secret of await pMap(missing, (one) => readSecretRecord(tables, one.vaultName, one.secretName), {
    concurrency: PARALLEL,
  }))
    if (secret) addCandidate(secret);

  const status = await index.status();
  if (status === undefined) coverage.push("The index of ids in tags, content types and names is not built yet.");
  else if (status.waiting > 0)
    coverage.push(
      `Tags, content types and names of ${status.waiting} of ${status.vaults} vaults are not in the index yet.`,
    );

  // Key IDs of credentials whose expiry window has one secret. A window that was not read completely may contain more.
  const onlyInWindow = new Set(
    windows.filter(({ secrets, more }) => !more && secrets.length === 1).map(({ keyId }) => keyId),
  );
  // Keys of secrets such as `<prefix>-client-secret` beside a secret `<prefix>-client-id` that names the application.
  const companions = new Set(
    [...secretsByKey.values()]
      .filter((secret) => containsAppId(secret, app))
      .flatMap(({ vaultName, name }) => companionsOf(name).map((beside) => matchKey(vaultName, beside))),
  );
  const candidates = [...secretsByKey]
    .filter(([, { name }]) => !IDENTIFIER.test(name))
    .map(([key, secret]) => ({
      secret,
      context: {
        isOnlyOneInWindow: (keyId: string) => onlyInWindow.has(keyId),
        hasCompanion: companions.has(key),
        record: earlier.records.get(key),
        hasUnreadableRecord: earlier.unreadable.has(key),
      },
    }));
  return { candidates, coverage };
}

/** The place of a secret. */
interface SecretPlace {
  vaultName: string;
  secretName: string;
}

interface EarlierResults {
  /** Results of earlier tests and confirmations of the application, by the key of their secret. */
  records: Map<string, MatchRecord>;
  /** Secrets whose row can't be read, by its key. They may store a credential: a user may have confirmed them. */
  unreadable: Map<string, SecretPlace>;
  /** Sentences about the unreadable rows. */
  coverage: string[];
}

async function readEarlierResults(
  appId: string,
  { tables, log }: { tables: Tables; log: Logger },
): Promise<EarlierResults> {
  const earlier: EarlierResults = { records: new Map(), unreadable: new Map(), coverage: [] };
  const onCorrupt = (row: StorageCorrupt) => {
    log.error(row.message);
    const [vaultName = "", secretName = ""] = row.rowKey.split("|").map(keyTextOf);
    earlier.unreadable.set(row.rowKey, { vaultName, secretName });
    earlier.coverage.push(
      `The stored confirmation and tests of ${vaultName}/${secretName} can't be read. Confirm the match again.`,
    );
  };
  for await (const rows of tables.pages(MatchRows, { partitionKey: matchPartition(appId), onCorrupt }))
    for (const row of rows) earlier.records.set(row.rowKey, row);
  return earlier;
}

/** Secrets found in one range of an index. `more`: the range has further secrets, which were not read. */
interface FoundSecrets {
  secrets: ComparedSecret[];
  more: boolean;
}

/** Returns the secrets that expire at nearly the same time as the credential. */
async function findByExpiry(tables: Tables, { expiresOn }: PasswordCredential): Promise<FoundSecrets> {
  if (expiresOn === undefined) return { secrets: [], more: false };
  const bounds = expiryBounds(
    "secret",
    expiresOn - EXPIRY_WINDOW_SECONDS,
    expiresOn + EXPIRY_WINDOW_SECONDS + 1,
    false,
  );
  return await secretsIn(tables, bounds);
}

/** Returns the secrets whose name begins with the first word of the application's name. */
async function findByName(tables: Tables, { displayName }: MatchedApp): Promise<FoundSecrets> {
  const words = wordsOf(displayName);
  const first = words[0];
  if (first === undefined || first.length < SHORTEST_WORD || !/^[a-z0-9]+$/.test(first))
    return { secrets: [], more: false };
  const prefix = namePrefix("secret") + first;
  return await secretsIn(tables, { from: prefix, before: keyEnd(prefix) });
}

/**
 * Returns the vault and name of secrets whose metadata contains an ID of the application or of a credential. Also returns their
 * companions, whether they exist or not: secrets such as `<prefix>-client-secret` beside `<prefix>-client-id`.
 */
async function findById(
  app: MatchedApp,
  credentials: readonly PasswordCredential[],
  index: MatchIndex,
): Promise<SecretPlace[]> {
  const ids = [app.appId, app.objectId, ...credentials.map(({ keyId }) => keyId)];
  const secretsWithId = (
    await pMap(ids, (id) => index.findSecrets(id, MAX_SECRETS_PER_ID), { concurrency: PARALLEL })
  ).flat();
  const companions = secretsWithId.flatMap(({ vaultName, secretName }) =>
    companionsOf(secretName).map((beside) => ({ vaultName, secretName: beside })),
  );
  return [...secretsWithId, ...companions];
}

/** Returns the secrets of the inventory in a range of its keys. */
async function secretsIn(tables: Tables, bounds: { from: string; before: string }): Promise<FoundSecrets> {
  const secrets: ComparedSecret[] = [];
  let pages = 0;
  for await (const rows of tables.pages(Assets, {
    partitionKey: partitions.all,
    ...bounds,
    select: [...COMPARED_COLUMNS],
  })) {
    if (pages === MAX_PAGES) return { secrets, more: true };
    secrets.push(...rows);
    pages++;
  }
  return { secrets, more: false };
}

/** Returns the vault and the name from the asset ID of a vault secret; undefined for other IDs. */
export function secretPlace(id: string): { vaultName: string; name: string } | undefined {
  const [place] = isCredentialId(id) ? [] : locationsOf(id);
  return place?.type === "secret" ? place : undefined;
}

/** Returns the inventory's record of a secret. */
export const readSecretRecord = async (
  tables: Tables,
  vaultName: string,
  name: string,
): Promise<AssetRecord | undefined> =>
  await tables.get(Assets, partitions.vault(vaultName), nameKey("secret", name, vaultName));

const newestFirst = (credentials: readonly PasswordCredential[]): PasswordCredential[] =>
  [...credentials].sort((a, b) => (b.expiresOn ?? 0) - (a.expiresOn ?? 0));

/** Matches names of secrets that store an ID, not a credential. */
const IDENTIFIER = /(client|tenant|object|app(lication)?|key)-?id$/i;

/** Returns the names that Terraform modules give to the secret beside `<prefix>-client-id`. */
function companionsOf(name: string): string[] {
  const prefix = /^(.*?)-?client-?id$/i.exec(name)?.[1];
  if (prefix === undefined) return [];
  const dash = prefix === "" ? "" : `${prefix}-`;
  return ["client-secret", "clientsecret", "secret"].map((end) => dash + end);
}
