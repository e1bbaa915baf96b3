import { createHash } from "node:crypto";
import * as z from "zod";
import { type AssetType, sourceOf } from "../inventory/asset.ts";
import { nameRange } from "../inventory/asset-keys.ts";
import type { ExpiryRange } from "../inventory/asset-status.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { unpackPlanned } from "../inventory/planned-certificates.ts";
import type { PlannedCertificate } from "../inventory/renewal.ts";
import { readScope } from "../inventory/scope.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults } from "../inventory/vault.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import { pack, packedMember, unpack } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";

/**
 * Finds the vaults whose assets changed since the last evaluation of an alert rule, so that the evaluation reads only these.
 * Each evaluation compares a content hash of every vault with the stored one. The revision counts the evaluations that found a
 * change.
 */

/** The hash of each vault's content and the revision at which it was first seen, by lower-case name. */
const Versions = z.record(z.string(), z.tuple([z.string(), z.int()]));
type Versions = z.infer<typeof Versions>;

/** The stored versions, packed. */
const VaultVersionsRow = z.object({ revision: z.int(), versions: packedMember(Versions) });
export const VaultVersions = entity("AlertStates", VaultVersionsRow);
const VERSIONS = "vaultVersions";

export type SummaryVault = Pick<VaultRecord, "name" | "subscriptionId" | "contents"> & Partial<VaultRecord>;
const SUMMARY = [
  "name",
  "source",
  "subscriptionId",
  "contents",
  "certificateExpiries",
  "keyExpiries",
  "secretExpiries",
  "certificateRenewals",
] as const;

/** A snapshot of all vaults for one evaluation. */
export interface VaultSnapshot {
  revision: number;
  vaults: readonly SummaryVault[];
  /**
   * Lower-cased names of vaults whose assets cause no notifications: vaults out of scope, and application credentials without a
   * PRO license.
   */
  hidden: readonly string[];
  /** Returns whether a vault's assets changed after a revision, or the vault is newer. */
  changedSince(vault: SummaryVault, revision: number): boolean;
}

/**
 * Reads the rows of all vaults, 1,000 per request, and determines which vaults changed. A scan writes a vault's row last, with
 * a hash of its assets, so a new hash means that the whole change can be read. The hashes are stored before any rule is
 * evaluated. A vault that was deleted or left the scope is dropped, so that its return counts as a change.
 *
 * @param storeVersions - False: the hashes are not stored, for a preview.
 */
export async function readVaultSnapshot(
  tables: Tables,
  licensed: boolean,
  storeVersions = true,
): Promise<VaultSnapshot> {
  const vaults: SummaryVault[] = [];
  const hidden: string[] = [];
  // A vault that can't be read counts as changed when its row is restored.
  const range = { ...nameRange(VAULTS), select: [...SUMMARY], onCorrupt: "leaveOut" as const };
  const scope = await readScope(tables);
  const isIncluded = (row: SummaryVault) =>
    sourceOf(row) === "keyVault" ? scope.leftAt(row.subscriptionId) === undefined : licensed;
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) {
      if (isIncluded(row)) vaults.push(row);
      else hidden.push(row.name.toLowerCase());
    }
  }

  // The versions after this reading. `updated` sets them, also if nothing changed.
  let versions: Versions = {};
  /** Returns the row with the current versions. Undefined if no vault changed: `modify` then returns the stored row. */
  const updated = (stored: Row<z.infer<typeof VaultVersionsRow>> | undefined) => {
    const storedVersions = stored ? unpack(VaultVersions, stored, "versions", Versions) : {};
    const revision = (stored?.revision ?? 0) + 1;
    versions = {};
    let changed = Object.keys(storedVersions).length !== vaults.length;
    for (const vault of vaults) {
      const hash = hashOf(vault);
      const name = vault.name.toLowerCase();
      const unchanged = storedVersions[name]?.[0] === hash ? storedVersions[name] : undefined;
      versions[name] = unchanged ?? [hash, revision];
      changed ||= !unchanged;
    }
    return changed ? { revision, versions: pack(versions) } : undefined;
  };
  const readOnly = async () => {
    const stored = await undefinedIfLeftOut(tables.get(VaultVersions, VERSIONS, VERSIONS));
    return updated(stored) ?? stored;
  };
  // Versions that can't be read are replaced. Every vault then counts as changed once.
  const row = storeVersions
    ? await tables.modify(VaultVersions, VERSIONS, VERSIONS, updated, { replaceCorrupt: true })
    : await readOnly();
  return {
    revision: row?.revision ?? 0,
    vaults,
    hidden,
    changedSince: ({ name }, revision) => (versions[name.toLowerCase()]?.[1] ?? Number.POSITIVE_INFINITY) > revision,
  };
}

/**
 * Returns the number of a vault's assets of a type in an expiry range. Certificates with a renewal plan are left out, because
 * days alone don't decide about them (`plannedIn`).
 */
export const countIn = (vault: SummaryVault, type: AssetType, range: ExpiryRange): number =>
  countExpiries(expiriesOf(vault, type), range) -
  (type === "certificate"
    ? plannedIn(vault).filter(({ expiresOn }) => expiresOn >= range.from && expiresOn < range.before).length
    : 0);

/** Returns a vault's certificates with a renewal plan. */
export const plannedIn = ({ certificateRenewals }: SummaryVault): PlannedCertificate[] =>
  unpackPlanned(certificateRenewals);

/** Returns a hash of a vault's content. It is shortened to 66 bits, because one row stores the hashes of all vaults. */
const hashOf = ({ contents, subscriptionId, certificateRenewals }: SummaryVault): string =>
  createHash("sha256")
    .update(JSON.stringify([contents.certificate, contents.key, contents.secret, subscriptionId.toLowerCase()]))
    // Renewal windows can change without the certificates.
    .update(certificateRenewals ?? new Uint8Array())
    .digest("base64url")
    .slice(0, 11);
