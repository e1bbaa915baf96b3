import { type AssetRecord, contentHash } from "../inventory/asset.ts";
import { credentialName, type HolderSource, holderName, holderSubscription } from "../inventory/holder.ts";
import { type HolderContent, type HolderWriting, writeHolder } from "../inventory/write-holder.ts";
import type { Owner } from "./application.ts";
import type { ReadApplication } from "./read-graph.ts";

// Converts the credentials of applications to assets of the inventory, and writes them there.

/** The asset types of applications' credentials. */
export const APPLICATION_TYPES = ["certificate", "secret"] as const;

/**
 * Writes the credentials of one bucket (a sixteenth of the applications) to the inventory. `seenAt` is the time of the last
 * complete listing.
 *
 * @throws {VaultBusy} while another worker writes them.
 */
export async function writeCredentials(
  {
    bucket,
    apps,
    ...content
  }: Pick<HolderContent, "tenantId" | "now" | "seenAt" | "workerId"> & {
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

/**
 * Returns an application's credentials as assets.
 *
 * @param holder.name - The holder: the part of the inventory that contains them
 */
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
  // Each credential's asset contains the expiry times of all of its application's credentials.
  const secretsUntil = sortedExpiries(app.credentials.filter(({ kind }) => kind === "secret"));
  // Token-signing certificates do not authenticate the application, so they don't count here.
  const certificatesUntil = sortedExpiries(
    app.credentials.filter(({ kind, of, usage }) => kind === "certificate" && of === "application" && usage !== "Sign"),
  );
  return app.credentials.map(({ keyId, kind, of, displayName, hint, thumbprint, otherKeyIds, startsOn, expiresOn }) => {
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
        ...(otherKeyIds === undefined ? {} : { otherKeyIds }),
        of,
        ...(displayName === undefined ? {} : { displayName }),
        ...(hint === undefined ? {} : { hint }),
        ...(app.owners === undefined ? {} : { owners: namesOfPeople(app.owners) }),
        secretsUntil,
        certificatesUntil,
        ...(app.federated === undefined ? {} : { federated: app.federated }),
      },
      // Any text, because an asset with an empty `listing` counts as stale. Graph returns no modification date, so `listing`
      // can't show changes as it does for vaults. `content`, a hash of these members, shows them.
      listing: source,
    };
    return { ...asset, firstSeenAt: now, content: contentHash(asset) };
  });
}

/** Returns the expiry times of credentials in Unix seconds, sorted. Null for a credential that does not expire. */
const sortedExpiries = (credentials: ReadApplication["credentials"]): (number | null)[] =>
  credentials
    .map(({ expiresOn }) => expiresOn ?? null)
    .sort((a, b) => (a ?? Number.POSITIVE_INFINITY) - (b ?? Number.POSITIVE_INFINITY));

/** Returns the sign-in names of owners who are people. Owners without one are service principals, such as the service's own. */
const namesOfPeople = (owners: readonly Owner[]): string[] =>
  owners.flatMap(({ userPrincipalName }) => userPrincipalName ?? []).sort();
