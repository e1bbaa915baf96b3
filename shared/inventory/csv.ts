import type * as z from "zod";
import { toCsv } from "../http/csv.ts";
import type { Asset } from "./api.ts";

const COLUMNS = [
  ...[
    "id",
    "type",
    "name",
    "vaultName",
    "subscriptionId",
    "status",
    "enabled",
    "expiresOn",
    "daysUntilExpiry",
    "owner",
  ],
  ...[
    "contentType",
    "keyType",
    "keySize",
    "keyCurve",
    "subject",
    "issuer",
    "thumbprint",
    "validityMonths",
    "autoRenew",
  ],
  ...["createdOn", "updatedOn", "notBefore", "version", "tags", "firstSeenAt", "lastSeenAt", "vaultId"],
] as (keyof z.infer<typeof Asset>)[];

/** The inventory as a CSV file with a header line. */
export const assetsCsv = (assets: z.infer<typeof Asset>[]): string => toCsv(assets, COLUMNS, true);
