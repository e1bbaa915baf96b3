import pMap from "p-map";
import { Assets, assetId } from "../../inventory/asset.ts";
import { expiryBounds, nameKey, partitions } from "../../inventory/asset-keys.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import { type Page, type PageRequest, pageOfAll } from "../../platform/http/paging.ts";
import { notFound } from "../../platform/http/problem.ts";
import type { Clock, Logger } from "../../platform/runtime.ts";
import { type Row, withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type DatabaseEngine, engineOfServer } from "../database-logins/engines.ts";
import { type DatabaseLogin, LOGIN_ID, type LoginRegistrations } from "../database-logins/registrations.ts";
import type { IssuerKind } from "../rotation.ts";
import { placeKey } from "../targets.ts";
import { type KeyUsage, keyUsageOf, type ReadsOf, type VaultReads } from "./credential-usage.ts";
import { KEY_KINDS, type KeyKind } from "./kinds.ts";
import { KEY_LINKS, type KeyLink, KeyLinks } from "./links.ts";

/** Number of inventory rows that are read concurrently. */
const READS_AT_ONCE = 16;
/** Number of vaults whose log results are read concurrently. */
const VAULTS_AT_ONCE = 4;
/** Characters of the hash of a resource's ID in the ID of a credential: 128 bits. */
const HASH_LENGTH = 32;

/** A vault secret that stored a key of the pair when it was last compared. */
export interface CredentialPlace extends Omit<KeyLink, "rotated"> {
  /** Expiry of the secret in the inventory, in Unix seconds. Undefined if it has none, or the inventory does not list it. */
  expiresOn: number | undefined;
  /** When the current version was created, as the inventory lists it, in Unix seconds. */
  createdOn?: number | undefined;
}

/**
 * A pair of keys of one resource, of which vault secrets store at least one, or a registered pair of users of a database server:
 * `resourceId` is then the server, and `keyName` of a place is the name of the user.
 */
export interface Credential {
  issuer: Exclude<IssuerKind, "clientSecret">;
  credentialId: string;
  resourceId: string;
  kind: Pick<KeyKind | DatabaseEngine, "name" | "title">;
  pair: readonly [string, string];
  places: CredentialPlace[];
}

/** A credential with the use of its key, from logs. */
export interface UsedCredential extends Credential {
  usage: KeyUsage;
}

export interface CredentialFilter {
  /** Name of a kind. */
  kind?: string | undefined;
  vaultName?: string | undefined;
  resourceId?: string | undefined;
  /** Asset ID of a vault secret that stores a key of the pair. */
  assetId?: string | undefined;
  /** Part of the name of the resource or of a vault secret, in any case. */
  search?: string | undefined;
  /** Only credentials of which a vault secret expires within this number of days, or has expired. */
  due?: number | undefined;
  /** Only credentials whose places, as complete logs prove, were not read for this number of days. */
  idle?: number | undefined;
}

/** The credentials that the stored links show. */
export interface CredentialList {
  /**
   * Lists credentials by the name of the resource. Reads all links, the inventory rows of the page, and the stored log results of
   * its vaults (with `idle`: of all vaults with links, and the inventory rows of all idle credentials).
   */
  list(filter: CredentialFilter, request: PageRequest): Promise<Page<UsedCredential>>;
  /** @throws {Problem} notFound */
  get(credentialId: string): Promise<UsedCredential>;
}

export function createCredentialList({
  tables,
  clock,
  log,
  logins,
  readsOf = async () => undefined,
}: {
  tables: Tables;
  logins: Pick<LoginRegistrations, "all" | "get">;
  clock: Clock;
  log: Logger;
  /** Returns the logged reads of a vault. Default: none, as without logs. */
  readsOf?: ReadsOf;
}): CredentialList {
  /** Returns the credentials of links, each with its places. `expiresOn` is not read yet. */
  async function readCredentials(prefix: string): Promise<Credential[]> {
    const credentials = new Map<string, Credential>();
    const range = { partitionKey: KEY_LINKS, from: prefix, ...(prefix !== "" && { before: keyEnd(prefix) }) };
    // A row that this service did not sign must not keep a credential from being rotated.
    for await (const rows of tables.pages(KeyLinks, { ...range, onCorrupt: "leaveOut" })) {
      for (const row of rows) {
        const credential = credentialOf(row);
        // A kind or key of a later version.
        if (credential === undefined) continue;
        const existing = credentials.get(credential.credentialId);
        if (existing === undefined) credentials.set(credential.credentialId, credential);
        else existing.places.push(...credential.places);
      }
    }
    return [...credentials.values()];
  }

  /** Returns the keys of the places whose secret expires before a time in Unix seconds. */
  async function placesThatExpire(before: number): Promise<Set<string>> {
    const places = new Set<string>();
    const range = { partitionKey: partitions.all, ...expiryBounds("secret", 0, before, false) };
    for await (const rows of tables.pages(Assets, { ...range, select: ["name", "vaultName"] }))
      for (const { name, vaultName } of rows) places.add(placeKey({ vaultName, secretName: name }));
    return places;
  }

  async function withDates(credential: Credential): Promise<Credential> {
    const places = await pMap(
      credential.places,
      async (place) => {
        const { vaultName, secretName } = place;
        const key = nameKey("secret", secretName, vaultName);
        const asset = await tables.get(Assets, partitions.vault(vaultName), key, {
          onCorrupt: ({ message }) => log.error(message),
        });
        return { ...place, expiresOn: asset?.expiresOn, createdOn: asset?.createdOn };
      },
      { concurrency: READS_AT_ONCE },
    );
    return { ...credential, places };
  }

  /** Adds the use of each key. Reads the log results of each vault once. */
  async function withUsage(credentials: readonly Credential[]): Promise<UsedCredential[]> {
    const vaults = new Set(credentials.flatMap(({ places }) => places.map(({ vaultName }) => vaultName.toLowerCase())));
    const reads = new Map<string, VaultReads | undefined>();
    await pMap(vaults, async (vault) => reads.set(vault, await readsOf(vault)), { concurrency: VAULTS_AT_ONCE });
    return credentials.map((one) => ({ ...one, usage: keyUsageOf(one.places, reads) }));
  }

  return {
    async list({ kind, vaultName, resourceId, assetId: id, search, due, idle }, request) {
      const dueBefore = due === undefined ? undefined : Math.floor(clock.now().getTime() / 1000) + due * DAY_SECONDS;
      const duePlaces = dueBefore === undefined ? undefined : await placesThatExpire(dueBefore);
      const matches = (credential: Credential) =>
        (kind === undefined || credential.kind.name === kind) &&
        (resourceId === undefined || credential.resourceId.toLowerCase() === resourceId.toLowerCase()) &&
        (vaultName === undefined ||
          credential.places.some((place) => place.vaultName.toLowerCase() === vaultName.toLowerCase())) &&
        (id === undefined || credential.places.some((place) => assetIdOf(place) === id.toLowerCase())) &&
        (search === undefined || namesOf(credential).some((name) => name.includes(search.toLowerCase()))) &&
        (duePlaces === undefined || credential.places.some((place) => duePlaces.has(placeKey(place))));
      const credentials = [...(await readCredentials("")), ...(await logins.all()).map(credentialOfLogin)];
      const matching = credentials.filter(matches);
      const dated = (some: readonly Credential[]) => pMap(some, withDates, { concurrency: READS_AT_ONCE });
      if (idle === undefined) {
        const page = pageOfAll(matching, request, sortKeyOf);
        return { ...page, items: await withUsage(await dated(page.items)) };
      }
      const isIdle = ({ usage }: UsedCredential) => (usage.idleDays ?? -1) >= idle;
      // The logs alone rule out most credentials, so that the inventory is read only for the rest.
      const unread = (await withUsage(matching)).filter(isIdle);
      return pageOfAll((await withUsage(await dated(unread))).filter(isIdle), request, sortKeyOf);
    },

    async get(credentialId) {
      const id = credentialId.toLowerCase();
      const credential = LOGIN_ID.test(id)
        ? credentialOfLogin(await logins.get(id))
        : (CREDENTIAL_ID.test(id) ? await readCredentials(id.slice(0, HASH_LENGTH)) : []).find(
            (one) => one.credentialId === id,
          );
      if (!credential) throw notFound(`The credential ${credentialId.slice(0, 64)}`);
      return (await withUsage([await withDates(credential)]))[0]!;
    },
  };
}

/** The hash of the resource's ID, and the number of the pair. */
const CREDENTIAL_ID = /^[0-9a-f]{32}-[1-9]$/;

/** Returns the credential of a link. Undefined if the table of kinds does not contain its key. */
function credentialOf(row: Row<KeyLink>): Credential | undefined {
  const link = withoutKeys(row);
  const kind = KEY_KINDS.find(({ name }) => name === link.keyKind);
  const index = kind?.pairs.findIndex((pair) => pair.includes(link.keyName)) ?? -1;
  if (kind === undefined || index < 0) return undefined;
  return {
    issuer: "resourceKey",
    credentialId: `${row.rowKey.slice(0, HASH_LENGTH)}-${index + 1}`,
    resourceId: link.resourceId,
    kind,
    pair: kind.pairs[index]!,
    places: [{ ...link, expiresOn: undefined }],
  };
}

/** Returns the credential of a registered login. */
export function credentialOfLogin({ credentialId, serverId, users, places }: DatabaseLogin): Credential {
  const kind = engineOfServer(serverId);
  return {
    issuer: "databaseLogin",
    credentialId,
    resourceId: serverId,
    kind,
    pair: users,
    places: places.map(({ user: keyName, ...place }) => ({
      ...place,
      resourceId: serverId,
      keyKind: kind.name,
      keyName,
      expiresOn: undefined,
    })),
  };
}

const assetIdOf = ({ vaultName, secretName }: CredentialPlace): string =>
  assetId({ vaultName, type: "secret", name: secretName });

/** Returns the names in lower case that a search finds: of the resource, and `vault/secret`. */
const namesOf = ({ resourceId, places }: Credential): string[] =>
  [resourceName(resourceId), ...places.map(({ vaultName, secretName }) => `${vaultName}/${secretName}`)].map((name) =>
    name.toLowerCase(),
  );

const sortKeyOf = ({ resourceId, credentialId }: Credential): string =>
  `${resourceName(resourceId).toLowerCase()}!${credentialId}`;
