import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import { Assets } from "../../inventory/asset.ts";
import { nameKey, partitions } from "../../inventory/asset-keys.ts";
import { VAULTS, Vaults, vaultKey } from "../../inventory/vault.ts";
import { CloudFailure, unlessMissing } from "../../platform/azure/failure.ts";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Logger } from "../../platform/runtime.ts";
import { entity, withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../../platform/storage/tables.ts";
import { matchKey } from "../match.ts";
import type { MatchIndex } from "../match-index.ts";
import type { RotationRecord } from "../rotation.ts";
import { isCertain, type Place, placeKey, type Target } from "../targets.ts";
import { writtenMatches } from "../written-places.ts";
import type { KeysClient } from "./keys-client.ts";
import { KEY_KINDS, type KeyKind, kindOfType, type ListedKey } from "./kinds.ts";
import { findHeldKey, proposeByTags } from "./matching.ts";

/**
 * Links: which vault secret stored which key of a resource when the service last compared them. A link contains neither a value
 * nor a hash of one. It selects nothing by itself: it makes a secret a candidate whose value is read and compared again.
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
  comparedAt: z.string(),
  /** User or service part that requested the comparison. */
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

/** A vault secret that may store a key of a resource. Its value must be compared before anything follows from it. */
export interface LinkedPlace extends Place {
  vaultUri: string;
  vaultId: string;
  /** Why the secret is a candidate. `named`: the request names it. */
  source: "link" | "tags" | "named";
  link?: KeyLink | undefined;
}

/** A key of a resource that a vault secret stores. */
export interface LinkedResource {
  resourceId: string;
  kind: KeyKind;
  keyName: string;
}

export interface KeyLinkStore {
  /**
   * Returns the secrets that may store a key of a resource: those with a link, and those whose tags name the resource. Each must
   * be read and compared.
   *
   * @param named - Further secrets that a user named.
   */
  placesOf(resourceId: string, named?: readonly Place[]): Promise<LinkedPlace[]>;
  /**
   * Returns what each candidate stores now: `keyName` of its target. Secrets without a key of the resource are left out, unless
   * their vault denies the read.
   *
   * @param keys - Keys of the resource, listed in this run.
   * @throws {CloudFailure} transient
   */
  comparePlaces(
    resourceId: string,
    keys: readonly ListedKey[],
    named?: readonly Place[],
  ): Promise<(Target & { keyName?: string; otherResource?: true })[]>;
  /**
   * Returns the key that a vault secret stores, compared now. A link and the secret's tags propose the resource.
   *
   * @throws {CloudFailure}
   */
  resourceOf(place: Place): Promise<LinkedResource | undefined>;
  /** Stores the result of a comparison. Keeps what is known of earlier rotations of the same vault. Safe to repeat. */
  store(link: Omit<KeyLink, "rotated">): Promise<void>;
  /** Stores the places that a completed rotation wrote. Safe to repeat. */
  recordWrittenPlaces(rotation: RotationRecord, at: Date): Promise<void>;
}
