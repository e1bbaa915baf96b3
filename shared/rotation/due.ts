import { Assets } from "../inventory/asset.ts";
import { expiryBounds, partitions } from "../inventory/asset-keys.ts";
import { holderSubscription } from "../inventory/holder.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_SECONDS, SECOND_MS } from "../platform/time.ts";

/** A secret that ended longer ago is nobody's any more: who enables a policy does not want what was left over rotated. */
export const LATEST_SECONDS = 7 * DAY_SECONDS;

/** A client secret of an application that ends soon, or has lately, as the inventory knows it. */
export interface DueSecret {
  appId: string;
  keyId: string;
  appName: string;
  /** What the application's owners sign in with. */
  owners: readonly string[];
  /** Unix seconds. */
  expiresOn: number;
}

/** Those that end before the instant, the first to end first. A request per 1,000 of them. */
export async function* dueSecrets(tables: Tables, now: Date, before: Date): AsyncGenerator<DueSecret[]> {
  const seconds = (at: Date) => Math.floor(at.getTime() / SECOND_MS);
  const range = {
    partitionKey: partitions.subscription(holderSubscription("entra")),
    ...expiryBounds("secret", seconds(now) - LATEST_SECONDS, seconds(before), false),
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
