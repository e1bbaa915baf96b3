import { Assets } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/asset-keys.ts";
import { holderSubscription } from "../inventory/holder.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_SECONDS, SECOND_MS } from "../platform/time.ts";

/** Secrets that expired longer ago are ignored, so that enabling a policy does not rotate abandoned secrets. */
export const MAX_EXPIRED_SECONDS = 7 * DAY_SECONDS;

/** A client secret of an application that expires soon or expired recently, from the inventory. */
export interface DueSecret {
  appId: string;
  keyId: string;
  appName: string;
  /** Sign-in names of the application's owners. */
  owners: readonly string[];
  /** Unix seconds. */
  expiresOn: number;
}

/** Lists the client secrets that expire before the given time, earliest first. Makes one request per 1,000 secrets. */
export async function* dueSecrets(tables: Tables, now: Date, before: Date): AsyncGenerator<DueSecret[]> {
  const seconds = (at: Date) => Math.floor(at.getTime() / SECOND_MS);
  const range = {
    // All credentials of the tenant's applications share this partition. `false` leaves out credentials that never expire.
    partitionKey: partitions.subscription(holderSubscription("entra")),
    ...expiryBounds("secret", seconds(now) - MAX_EXPIRED_SECONDS, seconds(before), false),
  };
  for await (const rows of tables.pages(Assets, { ...range, select: ["expiresOn", "credential"] })) {
    yield rows.flatMap(({ expiresOn, credential }) =>
      credential?.of === "application" &&
      credential.appId !== undefined &&
      credential.keyId !== undefined &&
      expiresOn !== undefined
        ? {
            appId: credential.appId,
            keyId: credential.keyId,
            appName: credential.applicationName,
            owners: credential.owners ?? [],
            expiresOn,
          }
        : [],
    );
  }
}
