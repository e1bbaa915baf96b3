import type * as z from "zod";
import { type Column, createCsv } from "../platform/csv.ts";
import type { Asset } from "./api.ts";

/** The inventory as a CSV file: one row per asset, with the members of the API's asset as columns. */

type AssetView = z.infer<typeof Asset>;

const json = (value: unknown): string => (value === null || value === undefined ? "" : JSON.stringify(value));

/** A column named like the member it shows. */
const member = (
  name: Exclude<keyof AssetView, "tags" | "rotationPolicy" | "subjectAlternativeNames" | "credential" | "renewal">,
): Column<AssetView> => ({ label: name, value: (asset) => asset[name] });

/**
 * The columns. Lists and objects are JSON text, except the names of a certificate and the owners of an application, which are
 * separated by spaces. Add new columns at the end, because users read them by position.
 */
const csv = createCsv<AssetView>([
  member("id"),
  member("type"),
  member("name"),
  member("vaultName"),
  member("subscriptionId"),
  member("status"),
  member("enabled"),
  member("expiresOn"),
  member("daysUntilExpiry"),
  member("owner"),
  member("contentType"),
  member("keyType"),
  member("keySize"),
  member("keyCurve"),
  member("subject"),
  member("issuer"),
  member("thumbprint"),
  member("validityMonths"),
  member("autoRenew"),
  member("createdOn"),
  member("updatedOn"),
  member("notBefore"),
  member("version"),
  { label: "tags", value: ({ tags }) => json(tags) },
  member("firstSeenAt"),
  member("lastSeenAt"),
  member("vaultId"),
  { label: "rotationPolicy", value: ({ rotationPolicy }) => json(rotationPolicy) },
  { label: "subjectAlternativeNames", value: ({ subjectAlternativeNames }) => subjectAlternativeNames?.join(" ") },
  member("stale"),
  member("source"),
  member("notCounted"),
  { label: "appId", value: ({ credential }) => credential?.appId },
  { label: "applicationName", value: ({ credential }) => credential?.applicationName },
  { label: "keyId", value: ({ credential }) => credential?.keyId },
  { label: "credentialName", value: ({ credential }) => credential?.displayName },
  { label: "owners", value: ({ credential }) => credential?.owners?.join(" ") },
  { label: "renewedBy", value: ({ renewal }) => renewal?.renewedBy },
  { label: "renewalWindowEnd", value: ({ renewal }) => renewal?.windowEnd },
  { label: "renewalLate", value: ({ renewal }) => renewal?.late },
]);

/** Returns the inventory as a CSV file with a header line. */
export const assetsCsv = (assets: readonly AssetView[]): string => `${csv.header()}${csv.rows(assets)}\r\n`;

/** The header line, for the API description. */
export const ASSETS_CSV_EXAMPLE = csv.header();
