import type { AssetKind } from "simulated-cloud/company/company.ts";
import type { Control } from "simulated-cloud/control.ts";
import type { AssetRecord, AssetType } from "../../shared/inventory/asset.ts";
import type { InventoryWriter } from "../../shared/inventory/write.ts";
import type { VaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";

// The changes that a simulated week makes to the assets of the company, and how the inventory shows each of them.

export const KINDS: Record<AssetType, AssetKind> = { secret: "secrets", key: "keys", certificate: "certificates" };
/** Kinds of changes that neither lists nor events show. Only reading the details of an asset detects them. */
export const UNLISTED_CHANGES = ["certificate policy", "key rotation policy"];

/** An asset that the week changes at most once. */
export interface ChangedAsset {
  vault: string;
  type: AssetType;
  name: string;
}

/** Returns whether the inventory shows a change. `asset` is its record of the changed asset, undefined if it has none. */
export type IsSeen = (asset: AssetRecord | undefined) => boolean;

export interface ChangeKind {
  /** Types of the assets that the change applies to. */
  types: AssetType[];
  /** Makes change number `changeNumber` of the week to the asset `target`. */
  make(target: ChangedAsset, changeNumber: number): Promise<IsSeen>;
}

/**
 * Creates the kinds of changes, by name.
 *
 * @param secretsIn - Opens a vault for deletions and recoveries, which the control operations do not offer.
 */
export function createChangeKinds({
  control,
  writer,
  secretsIn,
}: {
  control: Control;
  writer: Pick<InventoryWriter, "assetsOf">;
  secretsIn(vault: string): VaultSecrets;
}): Record<string, ChangeKind> {
  const itemOf = ({ vault, type, name }: ChangedAsset) =>
    control.items(vault, KINDS[type]).find((item) => item.name === name)!;
  return {
    "new version": {
      types: ["secret", "key", "certificate"],
      async make(target) {
        const { vault, type, name } = target;
        if (type === "secret") control.putSecret(vault, { name });
        else if (type === "key") control.putKey(vault, { name });
        else control.putCertificate(vault, { name });
        const { version, created } = itemOf(target);
        return (asset) => (type === "secret" ? isAt(asset?.createdOn, created) : asset?.version === version);
      },
    },
    attributes: {
      types: ["secret", "key"],
      async make(target, changeNumber) {
        control.change(target.vault, KINDS[target.type], target.name, { expiresInDays: 400 + changeNumber });
        const { expires } = itemOf(target);
        return (asset) => isAt(asset?.expiresOn, expires!);
      },
    },
    tags: {
      types: ["secret", "key", "certificate"],
      async make({ vault, type, name }, changeNumber) {
        control.change(vault, KINDS[type], name, { tags: { week: String(changeNumber) } });
        return (asset) => asset?.tags?.week === String(changeNumber);
      },
    },
    added: {
      types: ["secret"],
      async make({ vault, name }) {
        control.putSecret(vault, { name: `${name}-new` });
        return (asset) => asset !== undefined;
      },
    },
    deleted: {
      types: ["secret"],
      async make({ vault, name }) {
        await secretsIn(vault).remove(name);
        return (asset) => asset === undefined;
      },
    },
    recovered: {
      types: ["secret"],
      async make({ vault, name }) {
        await secretsIn(vault).recover(name);
        return (asset) => asset !== undefined;
      },
    },
    purged: {
      types: ["key", "certificate"],
      async make({ vault, type, name }) {
        control.remove(vault, KINDS[type], name);
        return (asset) => asset === undefined;
      },
    },
    "certificate policy": {
      types: ["certificate"],
      async make({ vault, type, name }) {
        const { autoRenew } = (await writer.assetsOf(vault, type)).get(name.toLowerCase())!;
        control.setRenewal(vault, name, { action: autoRenew ? "EmailContacts" : "AutoRenew", percentage: 80 });
        return (asset) => asset?.autoRenew === !autoRenew;
      },
    },
    "key rotation policy": {
      types: ["key"],
      async make({ vault, name }, changeNumber) {
        control.setRotation(vault, name, { rotateAfterDays: 100 + changeNumber });
        return (asset) =>
          asset?.rotationPolicy?.lifetimeActions.some(
            ({ timeAfterCreate }) => timeAfterCreate === `P${100 + changeNumber}D`,
          ) === true;
      },
    },
  };
}

const isAt = (seconds: number | undefined, instant: string): boolean =>
  seconds === Math.floor(Date.parse(instant) / 1000);
