import { type AssetRecord, sourceOf } from "../inventory/asset.ts";
import type { Coverage } from "./coverage.ts";

/**
 * Why the known consumers of an asset may be incomplete. Every score of such an asset is a lower bound, and with `undetectable`
 * or `neverSearched` a score of 0 says nothing.
 */
export const INCOMPLETE_REASONS = ["undetectable", "neverSearched", "notAllSearched", "limit"] as const;
export type IncompleteReason = (typeof INCOMPLETE_REASONS)[number];

const LAST_SIGN_IN =
  "Before you change it, see the last sign-in with it: in its blast radius, or in the sign-in logs of Microsoft Entra.";

/**
 * Returns why no source can find consumers of the asset, and what to check instead. Undefined if a source can. Only service
 * connections of Azure DevOps name an application. They name one of the service's own tenant and contain its client secret, not
 * a certificate.
 */
export function undetectableOf(
  asset: Pick<AssetRecord, "source" | "type" | "credential">,
): { message: string; remedy: string } | undefined {
  const source = sourceOf(asset);
  if (source === "entra" && asset.type === "certificate")
    return { message: "The service can't find which programs hold this certificate.", remedy: LAST_SIGN_IN };
  if (source !== "b2c") return undefined;
  const message = "The service can't find what uses this.";
  switch (asset.credential?.kind ?? "application") {
    case "application":
      return { message, remedy: LAST_SIGN_IN };
    case "policyKey":
      return { message, remedy: "Check the custom policies in the B2C tenant before you change it." };
    case "identityProvider":
      return { message, remedy: "Check the user flows and custom policies in the B2C tenant before you change it." };
  }
}

/** Returns the coverage of an asset whose consumers no source can find: one item, which says so. */
export function undetectableCoverage(
  assetId: string,
  { message, remedy }: { message: string; remedy: string },
): Coverage {
  const item = { scope: assetId, source: "", unit: "", code: "consumersNotDetectable", message, remedy, since: "" };
  return { items: [item], total: 1, lastFullAt: undefined };
}

/**
 * Returns why the consumers may be incomplete. Undefined if discovery read everything that it can read.
 *
 * @param more - Whether more dependencies of the asset exist than were read.
 */
export function incompleteReason(
  { total, lastFullAt }: Pick<Coverage, "total" | "lastFullAt">,
  more: boolean,
): Exclude<IncompleteReason, "undetectable"> | undefined {
  if (lastFullAt === undefined) return "neverSearched";
  if (more) return "limit";
  return total > 0 ? "notAllSearched" : undefined;
}
