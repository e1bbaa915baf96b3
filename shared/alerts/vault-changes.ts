import { createHash } from "node:crypto";
import * as z from "zod";
import { type AssetType, sourceOf } from "../inventory/asset.ts";
import { countExpiries } from "../inventory/expiries.ts";
import type { ExpiryRange } from "../inventory/health.ts";
import { readScope } from "../inventory/scope.ts";
import { expiriesOf, VAULTS, type VaultRecord, Vaults } from "../inventory/vault.ts";
import { entity, type Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { pack, unpack } from "../storage/packed.ts";
import type { Tables } from "../storage/tables.ts";

const Versions = z.record(z.string(), z.tuple([z.string(), z.int()]));
type Versions = z.infer<typeof Versions>;

/** Which content of each vault the rules were last shown, and the revision at which it was first noticed. */
const VaultVersionsRow = z.object({ revision: z.int(), versions: z.instanceof(Uint8Array) });
const VaultVersions = entity("AlertStates", VaultVersionsRow);
const VERSIONS = "vaultVersions";

type SummaryVault = Pick<VaultRecord, "name" | "subscriptionId" | "contents"> & Partial<VaultRecord>;
const SUMMARY = [
  "name",
  "source",
  "subscriptionId",
  "contents",
  "certificateExpiries",
  "keyExpiries",
  "secretExpiries",
] as const;

/** All vaults as one run of the rules sees them. */
export interface VaultSnapshot {
  revision: number;
  vaults: readonly SummaryVault[];
  /**
   * Lower-cased names of those whose assets nothing is told of: vaults out of scope, and holders of credentials without a
   * PRO licence.
   */
  hidden: readonly string[];
  /** Whether a vault's assets changed after that revision, or it was not there then. */
  changedSince(vault: SummaryVault, revision: number): boolean;
}

/**
 * Reads the vaults' rows, a page of 1,000 a request, and notices which of them changed. A vault's row is the last thing a
 * scan writes of it, with a hash over its assets, so when the hash has changed, all of the change can be read. Noticing
 * is kept before any rule is evaluated; a vault that vanished or left the scope is forgotten, so that its return is a
 * change.
 *
 * @param keep - False leaves what was noticed before as it is: nothing is written.
 */
export async function readVaultSnapshot(tables: Tables, licensed: boolean, keep = true): Promise<VaultSnapshot> {
  const vaults: SummaryVault[] = [];
  const hidden: string[] = [];
  const range = { partitionKey: VAULTS, from: "n!", before: keyEnd("n!"), select: [...SUMMARY] };
  const scope = await readScope(tables);
  const isTold = (row: SummaryVault) =>
    sourceOf(row) === "keyVault" ? scope.leftAt(row.subscriptionId) === undefined : licensed;
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) {
      if (isTold(row)) vaults.push(row);
      else hidden.push(row.name.toLowerCase());
    }
  }

  let versions: Versions = {};
  const notice = (known: Row<z.infer<typeof VaultVersionsRow>> | undefined) => {
    const before = known ? unpack(VaultVersions, known, "versions", Versions) : {};
    const revision = (known?.revision ?? 0) + 1;
    versions = {};
    let changed = Object.keys(before).length !== vaults.length;
    for (const vault of vaults) {
      const hash = hashOf(vault);
      const name = vault.name.toLowerCase();
      const same = before[name]?.[0] === hash ? before[name] : undefined;
      versions[name] = same ?? [hash, revision];
      changed ||= !same;
    }
    return changed ? { revision, versions: pack(versions) } : undefined;
  };
  const readOnly = async () => {
    const known = await tables.get(VaultVersions, VERSIONS, VERSIONS);
    return notice(known) ?? known;
  };
  const row = keep ? await tables.modify(VaultVersions, VERSIONS, VERSIONS, notice) : await readOnly();
  return {
    revision: row?.revision ?? 0,
    vaults,
    hidden,
    changedSince: ({ name }, revision) => (versions[name.toLowerCase()]?.[1] ?? Number.POSITIVE_INFINITY) > revision,
  };
}

/** How many of a vault's assets of a type lie in a range of expiry. */
export const countIn = (vault: SummaryVault, type: AssetType, range: ExpiryRange): number =>
  countExpiries(expiriesOf(vault, type), range);

const hashOf = ({ contents, subscriptionId }: SummaryVault): string =>
  createHash("sha256")
    .update(JSON.stringify([contents.certificate, contents.key, contents.secret, subscriptionId.toLowerCase()]))
    .digest("base64url")
    .slice(0, 11);
