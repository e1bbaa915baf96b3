import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import { VAULTS, Vaults, vaultKey } from "../../inventory/vault.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Logger } from "../../platform/runtime.ts";
import { entity, withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { matchKey } from "../match.ts";
import { readSecretRecord } from "../match-candidates.ts";
import type { MatchIndex } from "../match-index.ts";
import { failureIfDenied } from "../match-verification.ts";
import { isTransientFailure } from "../problems.ts";
import type { RotationRecord } from "../rotation.ts";
import { type Place, placeKey, type Target } from "../targets.ts";
import { writtenMatches } from "../written-places.ts";
import type { KeysClient } from "./keys-client.ts";
import { type KeyKind, kindOfType, type ListedKey } from "./kinds.ts";
import { containedKeys, findHeldKey, proposeByTags } from "./matching.ts";

/**
 * Links: which vault secret stored which key of a resource when the service last compared them. The discovery of credentials and
 * completed rotations store links. Rotations of keys read the linked secrets.
 *
 * A link contains neither a value nor a hash of one. It decides nothing by itself: it makes a secret a candidate, whose value is
 * read and compared again.
 */

const KeyLink = z.object({
  /** Resource ID of the vault. After this vault is deleted, another one may get its name. */
  vaultId: z.string(),
  vaultName: z.string(),
  secretName: z.string(),
  resourceId: z.string(),
  /** Name of the kind in the table of kinds. */
  keyKind: z.string(),
  /** Name of the key that the secret stored, in the table of kinds. */
  keyName: z.string(),
  /** Version of the secret that was compared. */
  version: z.string(),
  /** When the version was compared with the keys, and in `by` the user or service part that requested the comparison. */
  comparedAt: z.string(),
  by: z.string(),
  /** The last completed rotation that wrote the secret, and the version that it wrote. */
  rotated: z.object({ rotationId: z.string(), version: z.string(), at: z.string() }).optional(),
});
export type KeyLink = z.infer<typeof KeyLink>;

/** Links, in one partition: the hash of the resource's ID, then the secret. */
export const KeyLinks = entity("RotationMatches", KeyLink, { signed: true });
export const KEY_LINKS = "keyLinks";
const resourcePrefix = (resourceId: string): string =>
  `${createHash("sha256").update(resourceId.toLowerCase()).digest("hex")}|`;
export const linkKey = ({ resourceId, vaultName, secretName }: Place & { resourceId: string }): string =>
  resourcePrefix(resourceId) + matchKey(vaultName, secretName);

/** When all vault secrets that the service could read were last compared with the keys of a resource. By the ID's hash. */
export const Comparisons = entity(
  "RotationMatches",
  z.object({
    resourceId: z.string(),
    /** Start of the discovery that compared them. */
    since: z.string(),
    /** Whether some vault secrets could not be read then, so that one of them may store a key. */
    hasUnread: z.boolean(),
  }),
  { signed: true },
);
export const COMPARISONS = "keyComparisons";
export const comparisonKey = (resourceId: string): string => resourcePrefix(resourceId).slice(0, -1);
/** Age of a comparison after which an unknown vault secret may have got a key. */
const MAX_COMPARISON_AGE_MS = 7 * DAY_MS;

/** Index of the resources for which a vault secret has a link. It can be outdated: the link and the comparison decide. */
export const KeyLinkPointers = entity("RotationMatches", z.object({ resourceId: z.string() }));
export const LINKED_SECRETS = "linkedSecrets";
const pointerPrefix = ({ vaultName, secretName }: Place): string => `${matchKey(vaultName, secretName)}|`;

/** A vault secret that may store a key of a resource. Its value must be compared before anything follows from it. */
export interface LinkedPlace extends Place {
  vaultUri: string;
  vaultId: string;
  /**
   * Why the secret is a candidate. `link`: a link names it. `tags`: its tags name the resource. `named`: the request names it.
   * `unreadableLink`: a link that can't be read has its name in the row key. Someone without rights may have written that row, so
   * the secret can only stop a rotation and is never written.
   */
  source: "link" | "tags" | "named" | "unreadableLink";
  link: KeyLink | undefined;
}

/** What a candidate stores now. `confidence` is `certain` only if its value was read and is a key, alone or in a connection string. */
export interface ComparedPlace extends Target {
  /** Name of the key that the secret stores. Undefined if the secret stores none of the resource, or can't be read. */
  keyName: string | undefined;
  /** True if the secret is a connection string with a key of the resource that names another resource. */
  otherResource: boolean;
  /**
   * Names of all keys of the resource anywhere in the secret's value. A client may use one that the service can't replace there,
   * such as a key in JSON.
   */
  contained: string[];
}

/** A key of a resource that a vault secret stores. */
export interface LinkedKey {
  resourceId: string;
  kind: KeyKind;
  keyName: string;
}

export interface KeyLinkStore {
  /**
   * Returns the secrets that may store a key of a resource, without reading their values: those with a link, readable or not,
   * those whose tags name the resource, and the named ones.
   *
   * @param named - Secrets that the request names.
   */
  placesOf(resourceId: string, named?: readonly Place[]): Promise<LinkedPlace[]>;
  /**
   * Reads the candidates of `placesOf` and returns what each stores now. Leaves out candidates that contain no key of the resource.
   *
   * A candidate that can't be read may still store a key. If it has a link or is named, it is returned as `unreadable`, or a
   * transient failure is thrown. Otherwise only tags or an unreadable link propose it, which anyone may have written: it is
   * returned with `unanswered` after a transient failure, and left out after any other one.
   *
   * @param keys - Keys of the resource, which the caller listed just now.
   * @throws {CloudFailure} for a transient failure to read a candidate that has a link or is named.
   */
  comparePlaces(resourceId: string, keys: readonly ListedKey[], named?: readonly Place[]): Promise<ComparedPlace[]>;
  /**
   * Returns the key that a vault secret stores. Links and the secret's tags propose resources. The secret's value is then compared
   * with the current keys of each. Undefined also if the secret, or the keys of a resource, can't be read.
   *
   * @param tags - Tags of the current version.
   * @throws {CloudFailure} for a transient failure, because a busy vault must not look like a secret without a key.
   */
  resourceOf(place: Place, tags: Readonly<Record<string, string>>): Promise<LinkedKey | undefined>;
  /**
   * Returns why vault secrets that are no candidates may store a key of a resource, as a sentence. Undefined if a discovery of
   * the last seven days read all vault secrets.
   */
  comparisonGap(resourceId: string, now: Date): Promise<string | undefined>;
  /**
   * Returns both keys of each pair of which a link has one, and the secrets of these links, so that a copy of a key is found that
   * no secret stores any more. Do not store or log the values. Leaves out resources whose keys the identity may not list.
   *
   * @throws {CloudFailure} transient
   */
  keysOfLinks(signal?: AbortSignal): AsyncGenerator<{ places: Place[]; keys: ListedKey[] }>;
  /** Stores the result of a comparison. Keeps what is known of earlier rotations of the same vault. Safe to repeat. */
  store(link: Omit<KeyLink, "rotated">): Promise<void>;
  /** Stores the places that a completed rotation wrote. Safe to repeat. */
  recordWrittenPlaces(rotation: RotationRecord, at: Date): Promise<void>;
}

/** Maximum number of secrets that are read from the inventory for one resource: their metadata contains its subscription ID. */
const MAX_PROPOSED = 1000;
/** Maximum number of resources whose keys are listed for one secret. */
const MAX_RESOURCES = 5;
const PARALLEL = 4;
/** A secret's name in lower case, as the row key of a link has it. Another text was not written by this service. */
const SECRET_NAME = /^[0-9a-z-]{1,127}$/;
/** Members of a candidate whose value could not be read: no key was found in it, but it may contain one. */
const NO_KNOWN_KEYS = { otherResource: false, contained: [] };

export function createKeyLinks(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  vaults: VaultSecretsClients;
  keys: Pick<KeysClient, "keys">;
  index: Pick<MatchIndex, "findSecrets">;
  log: Logger;
}): KeyLinkStore {
  const { tables, config, vaults, keys: client, index, log } = deps;
  const onCorrupt = ({ message }: StorageCorrupt) => log.error(message);

  /** Stores a link. @param rotated - The rotation that wrote the secret. Undefined after a comparison without a rotation. */
  async function write(link: KeyLink, rotated: KeyLink["rotated"]): Promise<void> {
    const { resourceId } = link;
    const pointerKey = pointerPrefix(link) + resourcePrefix(resourceId);
    // The pointer is written first, so that a crash leaves no link that `resourceOf` does not find.
    await tables.put(KeyLinkPointers, LINKED_SECRETS, pointerKey, { resourceId });
    const key = linkKey(link);
    try {
      await tables.modify(KeyLinks, KEY_LINKS, key, (stored) => {
        // Another vault may have got the name of the one that the stored rotation wrote.
        const isSameVault = stored?.vaultId.toLowerCase() === link.vaultId.toLowerCase();
        return { ...link, rotated: rotated ?? (isSameVault ? stored?.rotated : undefined) };
      });
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      // This service did not sign the stored row, so none of its members is used, and the new link replaces it.
      log.error(error.message);
      await tables.put(KeyLinks, KEY_LINKS, key, { ...link, rotated });
    }
  }

  /** Returns the secrets whose tags name the resource. */
  async function proposedPlaces(resourceId: string): Promise<Place[]> {
    const subscriptionId = parseResourceId(resourceId)?.subscriptionId.toLowerCase();
    if (subscriptionId === undefined) return [];
    // The index finds GUIDs in metadata. A resource ID contains the GUID of its subscription.
    const secrets = await index.findSecrets(subscriptionId, MAX_PROPOSED);
    const records = await pMap(
      secrets,
      ({ vaultName, secretName }) => readSecretRecord(tables, vaultName, secretName),
      { concurrency: PARALLEL },
    );
    return records.flatMap((record) => {
      const proposal = record === undefined ? undefined : proposeByTags(record.tags ?? {});
      return proposal?.resourceId.toLowerCase() === resourceId.toLowerCase()
        ? [{ vaultName: record!.vaultName, secretName: record!.name }]
        : [];
    });
  }

  async function placesOf(resourceId: string, named: readonly Place[] = []): Promise<LinkedPlace[]> {
    const candidates = new Map<string, Place & Pick<LinkedPlace, "source" | "link">>();
    /** Adds a candidate. Of several sources the last one counts: tags, then links, then the request. */
    const add = (place: Place, source: LinkedPlace["source"], link?: KeyLink) => {
      const earlier = candidates.get(placeKey(place));
      candidates.set(placeKey(place), { ...place, source, link: link ?? earlier?.link });
    };
    for (const place of await proposedPlaces(resourceId)) add(place, "tags");
    const prefix = resourcePrefix(resourceId);
    const unreadableRowKeys: string[] = [];
    const onUnreadableLink = (row: StorageCorrupt) => {
      onCorrupt(row);
      unreadableRowKeys.push(row.rowKey);
    };
    const range = { partitionKey: KEY_LINKS, from: prefix, before: keyEnd(prefix), onCorrupt: onUnreadableLink };
    for await (const rows of tables.pages(KeyLinks, range)) {
      for (const { vaultName, secretName, ...link } of rows.map(withoutKeys))
        add({ vaultName, secretName }, "link", { vaultName, secretName, ...link });
    }
    for (const rowKey of unreadableRowKeys) {
      const [vaultName = "", secretName = ""] = rowKey.slice(prefix.length).split("|");
      if (!SECRET_NAME.test(secretName)) continue;
      if (!candidates.has(placeKey({ vaultName, secretName }))) add({ vaultName, secretName }, "unreadableLink");
    }
    for (const place of named) add(place, "named");
    const places = await pMap(
      candidates.values(),
      async (candidate): Promise<LinkedPlace[]> => {
        if (isServiceVault(config, candidate.vaultName)) return [];
        const vault = await tables.get(Vaults, VAULTS, vaultKey(candidate.vaultName));
        if (vault === undefined) return [];
        return [{ ...candidate, vaultName: vault.name, vaultUri: vault.vaultUri, vaultId: vault.id }];
      },
      { concurrency: PARALLEL },
    );
    return places.flat();
  }

  /** Returns whether the last rotation that wrote the secret wrote this vault, and not another one that has its name now. */
  async function wasRotated({ link, vaultId, vaultName, vaultUri, secretName }: LinkedPlace): Promise<boolean> {
    if (link?.rotated === undefined || link.vaultId.toLowerCase() !== vaultId.toLowerCase()) return false;
    const { version } = link.rotated;
    const versions = await vaults.open({ name: vaultName, vaultUri }).versions(secretName);
    return versions.some((one) => one.version === version);
  }

  /** Reads one candidate and compares its value with the keys. Returns undefined if the candidate is left out. */
  async function comparePlace(
    place: LinkedPlace,
    resourceId: string,
    keys: readonly ListedKey[],
  ): Promise<ComparedPlace | undefined> {
    const { vaultName, vaultUri, vaultId, secretName, source } = place;
    const target = { vaultName, vaultUri, vaultId, secretName, knownAs: "new" as const };
    const withoutKey = { ...target, confidence: "likely" as const, keyName: undefined };
    // Anyone who can write tags in a vault, or rows of this service's tables, can propose a secret. A proposed secret that can't be
    // read must not stop the rotations of the resource.
    const isOnlyProposed = source === "tags" || source === "unreadableLink";
    try {
      const current = await failureIfDenied(vaults.open({ name: vaultName, vaultUri }).read(secretName));
      if (current instanceof CloudFailure) {
        // Key Vault gives the value of a disabled secret to no client, so nothing can use a key in it.
        if (current.code === "disabled") return undefined;
        return isOnlyProposed ? undefined : { ...withoutKey, ...NO_KNOWN_KEYS, unreadable: true };
      }
      // A `managed` secret belongs to a certificate. A rotation can't write it.
      if (current === undefined || current.managed) return undefined;
      const result = findHeldKey(current.value, resourceId, keys);
      const contained = containedKeys(current.value, keys);
      if (contained.length === 0) return undefined;
      if (source === "unreadableLink")
        return { ...withoutKey, confidence: "possible", otherResource: false, contained };
      const knownAs = (await wasRotated(place)) ? "rotated" : "new";
      if (result.held === undefined) {
        const otherResource = result.reason === "otherResource";
        return { ...withoutKey, knownAs, confidence: "possible", otherResource, contained };
      }
      return {
        ...target,
        knownAs,
        confidence: "certain",
        heldSince: current.createdOn,
        keyName: result.held.name,
        otherResource: false,
        contained,
      };
    } catch (error) {
      if (!isOnlyProposed || !(error instanceof CloudFailure) || !isTransientFailure(error)) throw error;
      return { ...withoutKey, ...NO_KNOWN_KEYS, confidence: "possible", unanswered: error };
    }
  }

  return {
    placesOf,

    async comparePlaces(resourceId, keys, named) {
      const places = await placesOf(resourceId, named);
      const compared = await pMap(places, (place) => comparePlace(place, resourceId, keys), {
        concurrency: PARALLEL,
      });
      return compared.filter((place) => place !== undefined);
    },

    async resourceOf(place, tags) {
      if (isServiceVault(config, place.vaultName)) return undefined;
      const vault = await tables.get(Vaults, VAULTS, vaultKey(place.vaultName));
      if (vault === undefined) return undefined;
      const proposals = new Map<string, string>();
      const propose = (id: string) => void proposals.set(id.toLowerCase(), id);
      const proposal = proposeByTags(tags);
      if (proposal !== undefined) propose(proposal.resourceId);
      const prefix = pointerPrefix(place);
      const range = { partitionKey: LINKED_SECRETS, from: prefix, before: keyEnd(prefix), onCorrupt };
      for await (const rows of tables.pages(KeyLinkPointers, range))
        for (const { resourceId } of rows) propose(resourceId);
      if (proposals.size === 0) return undefined;
      const current = await failureIfDenied(
        vaults.open({ name: vault.name, vaultUri: vault.vaultUri }).read(place.secretName),
      );
      if (current === undefined || current instanceof CloudFailure) return undefined;
      for (const resourceId of [...proposals.values()].slice(0, MAX_RESOURCES)) {
        const kind = kindOfType(parseResourceId(resourceId)?.type ?? "");
        if (kind === undefined || kind.reportOnly !== undefined) continue;
        const keys = await failureIfDenied(client.keys(resourceId, kind));
        if (keys instanceof CloudFailure) continue;
        const { held } = findHeldKey(current.value, resourceId, keys);
        if (held !== undefined) return { resourceId, kind, keyName: held.name };
      }
      return undefined;
    },

    async comparisonGap(resourceId, now) {
      const row = await tables.get(Comparisons, COMPARISONS, comparisonKey(resourceId), { onCorrupt });
      if (row === undefined || now.getTime() - Date.parse(row.since) > MAX_COMPARISON_AGE_MS)
        return "No discovery of the last seven days compared this resource's keys with the vault secrets.";
      return row.hasUnread ? "The last discovery could not read all vault secrets." : undefined;
    },

    async *keysOfLinks(signal) {
      const linked = new Map<string, KeyLink[]>();
      for await (const rows of tables.pages(KeyLinks, { partitionKey: KEY_LINKS, onCorrupt })) {
        for (const link of rows.map(withoutKeys)) {
          const id = link.resourceId.toLowerCase();
          linked.set(id, [...(linked.get(id) ?? []), link]);
        }
      }
      for (const links of linked.values()) {
        const { resourceId } = links[0]!;
        const kind = kindOfType(parseResourceId(resourceId)?.type ?? "");
        if (kind === undefined) continue;
        const keys = await failureIfDenied(client.keys(resourceId, kind, signal));
        if (keys instanceof CloudFailure) continue;
        // A consumer of one pair's key does not use the other pair.
        for (const pair of kind.pairs) {
          const places = links
            .filter(({ keyName }) => pair.includes(keyName))
            .map(({ vaultName, secretName }) => ({ vaultName, secretName }));
          if (places.length > 0) yield { places, keys: keys.filter(({ name }) => pair.includes(name)) };
        }
      }
    },

    store: (link) => write(link, undefined),

    async recordWrittenPlaces(rotation, at) {
      const { rotationId, resourceId, keyKind, newKeyId: keyName } = rotation;
      if (resourceId === undefined || keyKind === undefined || keyName === undefined) return;
      for (const { vaultName, secretName, vaultId = "", writtenVersion: version } of writtenMatches(rotation)) {
        const comparedAt = at.toISOString();
        const link = { vaultId, vaultName, secretName, resourceId, keyKind, keyName, version: version!, comparedAt };
        await write({ ...link, by: "rotation" }, { rotationId, version: version!, at: comparedAt });
      }
    },
  };
}
