import { ASSET_TYPES, type AssetRecord, type AssetType, contentOf, fingerprint } from "../inventory/asset.ts";
import { packExpiries } from "../inventory/expiries.ts";
import { credentialName, holderName, holderSubscription, newHolder } from "../inventory/holder.ts";
import { expiriesColumn, type VaultRecord } from "../inventory/vault.ts";
import type { AssetChange, InventoryWriter, KnownVault, RecordChanges } from "../inventory/write.ts";
import { withoutKeys } from "../storage/entity.ts";
import type { Owner } from "./application.ts";
import type { ReadApplication } from "./read.ts";

/** A sixteenth of the tenant's applications, as their credentials should stand in the inventory. */
export interface HolderContent {
  tenantId: string;
  bucket: string;
  apps: Iterable<ReadApplication>;
  /** ISO 8601. */
  now: string;
  /** When all applications were last listed to the end. */
  seenAt: string;
  /** Names this worker in this one life to people who read the holder's row. */
  owner: string;
}

interface Deps {
  writer: Pick<InventoryWriter, "known" | "apply" | "touch" | "assetsOf">;
  /** Run before changed assets are claimed; what it answers writes what other rooms derive from the change. */
  prepareChange: (change: {
    vault: VaultRecord;
    vaultBefore: VaultRecord | undefined;
    vaultGone: boolean;
  }) => Promise<RecordChanges>;
  /** Makes sure that the run is still this worker's: what it read before is then no older than what stands. */
  confirm: () => Promise<void>;
}

/**
 * Brings the inventory's credentials of these applications up to date. Where none of them changed, only the holder's row is
 * written, in two requests.
 *
 * @throws {VaultBusy} while another worker writes them.
 */
export async function writeCredentials(content: HolderContent, deps: Deps): Promise<void> {
  const { writer } = deps;
  const { tenantId, bucket, now, seenAt } = content;
  const name = holderName(tenantId, bucket);
  const known = await writer.known(name);
  await deps.confirm();
  const assets = [...content.apps].flatMap((app) => assetsOfApplication(app, name, tenantId, now)).sort(byName);
  const before = known.row && withoutKeys(known.row);
  if (!before && assets.length === 0) return;
  const vault: VaultRecord = { ...(before ?? newHolder(tenantId, bucket, now)) };
  vault.listedAt = { secret: seenAt, certificate: seenAt };
  vault.listings = { ...vault.listings };
  vault.contents = { ...vault.contents };

  const changes: AssetChange[] = [];
  for (const type of ASSET_TYPES) {
    const own = assets.filter((asset) => asset.type === type);
    if (type === "key") continue; // an application has none
    const contents = fingerprint(own.map((asset) => [asset.name, asset.content]));
    const half = new Set(known.pending.filter(([of]) => of === type).map(([, pending]) => pending));
    if (before?.contents[type] === contents && half.size === 0) continue;
    vault.contents[type] = contents;
    vault.listings[type] = contents;
    vault[expiriesColumn(type)] = packExpiries(own.map(({ expiresOn }) => expiresOn));
    changes.push(...(await differences(type, own, known, half, writer)));
  }
  if (changes.length === 0 && !known.interrupted && before) {
    const facts = ({ listedAt, contents }: VaultRecord) => JSON.stringify([listedAt, contents]);
    if (facts(before) !== facts(vault)) await writer.touch(known, vault);
    return;
  }
  await writer.apply(known, vault, changes, content.owner, () =>
    deps.prepareChange({ vault, vaultBefore: before, vaultGone: false }),
  );
}

/** @param half - Names of assets whose rows a dead worker may have written by half. */
async function differences(
  type: AssetType,
  wanted: readonly AssetRecord[],
  known: KnownVault,
  half: ReadonlySet<string>,
  writer: Pick<InventoryWriter, "assetsOf">,
): Promise<AssetChange[]> {
  const left = known.row ? await writer.assetsOf(known.row.name, type) : new Map<string, AssetRecord>();
  const changes: AssetChange[] = [];
  for (const asset of wanted) {
    const before = left.get(asset.name);
    left.delete(asset.name);
    const after = before ? { ...asset, firstSeenAt: before.firstSeenAt } : asset;
    if (before?.content !== asset.content || half.has(asset.name))
      changes.push({ type, name: asset.name, before, after });
  }
  for (const before of left.values()) changes.push({ type, name: before.name, before, after: undefined });
  return changes;
}

function assetsOfApplication(app: ReadApplication, vaultName: string, tenantId: string, now: string): AssetRecord[] {
  const secretsUntil = ends(app.credentials.filter(({ kind }) => kind === "secret"));
  // One that signs tokens signs nobody in.
  const certificatesUntil = ends(
    app.credentials.filter(({ kind, of, usage }) => kind === "certificate" && of === "application" && usage !== "Sign"),
  );
  return app.credentials.map(({ keyId, kind, of, displayName, hint, thumbprint, startsOn, expiresOn }) => {
    const name = credentialName(app.appId, keyId);
    const asset = {
      type: kind,
      name,
      vaultName,
      vaultId: "",
      subscriptionId: holderSubscription("entra"),
      enabled: true,
      ...(startsOn === undefined ? {} : { createdOn: startsOn, notBefore: startsOn }),
      ...(expiresOn === undefined ? {} : { expiresOn }),
      ...(thumbprint === undefined ? {} : { thumbprint }),
      source: "entra" as const,
      credential: {
        tenantId,
        appId: app.appId,
        applicationName: app.displayName,
        keyId,
        of,
        ...(displayName === undefined ? {} : { displayName }),
        ...(hint === undefined ? {} : { hint }),
        ...(app.owners === undefined ? {} : { owners: people(app.owners) }),
        secretsUntil,
        certificatesUntil,
        ...(app.federated === undefined ? {} : { federated: app.federated }),
      },
      // There is no list entry beside it: whether it is as it was is told by its content.
      listing: "entra",
    };
    return { ...asset, firstSeenAt: now, content: contentOf(asset) };
  });
}

/** When each of them ends, null for never, sorted. */
const ends = (credentials: ReadApplication["credentials"]): (number | null)[] =>
  credentials
    .map(({ expiresOn }) => expiresOn ?? null)
    .sort((a, b) => (a ?? Number.POSITIVE_INFINITY) - (b ?? Number.POSITIVE_INFINITY));

/** A service principal that owns an application, such as the service's own, is nobody who could be asked. */
const people = (owners: readonly Owner[]): string[] =>
  owners.flatMap(({ userPrincipalName }) => userPrincipalName ?? []).sort();

const byName = (a: AssetRecord, b: AssetRecord): number => (a.name < b.name ? -1 : 1);
