import type { AssetType } from "../inventory/asset.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { assetOfEdge, EDGES, Edges, rangeOf, vaultPrefix } from "./rows.ts";

/** How other resources use a certificate, its key and its secret, which have the same name. */
export interface CertificateUse {
  /** Names of the consumers whose reference names a version. */
  pinned: string[];
  /** Whether a consumer reads the secret of the certificate, which contains the private key. */
  readsPrivateKey: boolean;
}

/**
 * Returns the uses of all assets of a vault, or of all vaults, by lower-case `<vault>/<name>`. Makes one request per 1,000
 * dependencies.
 */
export async function certificateUses(
  tables: Tables,
  vaultName: string | undefined,
): Promise<Map<string, CertificateUse>> {
  const uses = new Map<string, CertificateUse>();
  const range = rangeOf(vaultName === undefined ? EDGES : vaultPrefix(vaultName));
  const select = ["resource", "strength", "pinned"] as const;
  for await (const rows of tables.pages(Edges, { ...range, select, onCorrupt: "leaveOut" })) {
    for (const { rowKey, resource, strength, pinned } of rows) {
      const { vaultName: vault, asset } = assetOfEdge(rowKey);
      if (asset === undefined) continue;
      const separator = asset.indexOf(".");
      const type = asset.slice(0, separator) as AssetType;
      const key = `${vault}/${asset.slice(separator + 1)}`.toLowerCase();
      const use = uses.get(key) ?? { pinned: [], readsPrivateKey: false };
      if (pinned !== undefined && !use.pinned.includes(resource.name)) use.pinned.push(resource.name);
      if (strength === "references" && type === "secret") use.readsPrivateKey = true;
      uses.set(key, use);
    }
  }
  return uses;
}
