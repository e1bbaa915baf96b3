import { type AssetRecord, contentOf } from "../inventory/asset.ts";
import { credentialName, type HolderSource, holderName, holderSubscription } from "../inventory/holder.ts";
import { type HolderContent, type HolderWriting, writeHolder } from "../inventory/write-holder.ts";
import type { Owner } from "./application.ts";
import type { ReadApplication } from "./read-graph.ts";

/** Applications have no keys. */
export const APPLICATION_TYPES = ["certificate", "secret"] as const;

/**
 * Updates the credentials of one bucket's applications in the inventory.
 *
 * @throws {VaultBusy} while another worker writes them.
 */
export async function writeCredentials(
  {
    bucket,
    apps,
    ...content
  }: Pick<HolderContent, "tenantId" | "now" | "seenAt" | "owner"> & {
    bucket: string;
    apps: Iterable<ReadApplication>;
  },
  deps: HolderWriting,
): Promise<void> {
  const name = holderName(content.tenantId, bucket);
  const holder = { ...content, name, source: "entra" as const };
  const assets = [...apps].flatMap((app) => assetsOfApplication(app, holder));
  await writeHolder({ ...holder, types: APPLICATION_TYPES, assets }, deps);
}

/** Returns an application's credentials as assets of the holder `name`. */
export function assetsOfApplication(
  app: ReadApplication,
  {
    name: vaultName,
    source,
    tenantId,
    tenantDomain,
    now,
  }: {
    name: string;
    source: HolderSource;
    tenantId: string;
    tenantDomain?: string;
    now: string;
  },
): AssetRecord[] {
  const secretsUntil = ends(app.credentials.filter(({ kind }) => kind === "secret"));
  // Token-signing certificates do not authenticate the app.
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
      subscriptionId: holderSubscription(source),
      enabled: true,
      ...(startsOn === undefined ? {} : { createdOn: startsOn, notBefore: startsOn }),
      ...(expiresOn === undefined ? {} : { expiresOn }),
      ...(thumbprint === undefined ? {} : { thumbprint }),
      source,
      credential: {
        tenantId,
        ...(tenantDomain === undefined ? {} : { tenantDomain }),
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
      // There is no list entry, so changes are detected by the content.
      listing: source,
    };
    return { ...asset, firstSeenAt: now, content: contentOf(asset) };
  });
}

/** Returns when each of them expires, sorted; null for never. */
const ends = (credentials: ReadApplication["credentials"]): (number | null)[] =>
  credentials
    .map(({ expiresOn }) => expiresOn ?? null)
    .sort((a, b) => (a ?? Number.POSITIVE_INFINITY) - (b ?? Number.POSITIVE_INFINITY));

/** A service principal that owns an application, such as the service's own, is not a person. */
const people = (owners: readonly Owner[]): string[] =>
  owners.flatMap(({ userPrincipalName }) => userPrincipalName ?? []).sort();
