import { type Issued, type IssuerKind, issuerKindOf } from "../rotation.ts";
import { clientSecrets } from "./client-secrets/issuer.ts";
import { databaseLogins } from "./database-logins/issuer.ts";
import type { Issuer } from "./issuer.ts";
import { resourceKeys } from "./resource-keys/issuer.ts";

/** All issuers by kind. Each has a folder with the same file names. */
export const ISSUERS: Readonly<Record<IssuerKind, Issuer>> = {
  clientSecret: clientSecrets,
  resourceKey: resourceKeys,
  databaseLogin: databaseLogins,
};

/**
 * Returns the issuer of a rotation, or of a request for one.
 *
 * @throws {Error} for the rotation of a vault secret whose value came with the request, which is a programming error.
 */
export function issuerOf(rotation: Issued): Issuer {
  const kind = issuerKindOf(rotation);
  if (kind === undefined) throw new Error(`The new value of ${rotation.assetId} has no issuer.`);
  return ISSUERS[kind];
}
