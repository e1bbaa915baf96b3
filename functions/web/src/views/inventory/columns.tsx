import { Link } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { createHref } from "../../parts/address.ts";
import { assetName, vaultOrTenant } from "../../parts/asset-name.ts";
import { Instant } from "../../parts/instant.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { useIsNarrow } from "../../parts/width.ts";
import type { Asset, Sort } from "./query.ts";

export interface Column {
  id: string;
  title: string;
  /** The width as a CSS grid track, such as `100px` or `minmax(64px, 3fr)`. */
  width: string;
  /** The order that a click on the header selects. Undefined for a column without an index, which can't be sorted. */
  sort?: Sort;
  cell(asset: Asset): ReactNode;
}

export const COLUMNS: Column[] = [
  {
    id: "name",
    title: "Name",
    width: "minmax(64px, 3fr)",
    sort: "name",
    cell: (asset) => <Link href={createHref(`/inventory/${encodeURIComponent(asset.id)}`)}>{assetName(asset)}</Link>,
  },
  { id: "status", title: "Status", width: "92px", cell: ({ status }) => <StatusBadge status={status} /> },
  {
    id: "expires",
    title: "Expires",
    width: "100px",
    sort: "expiresOn",
    cell: ({ expiresOn }) => (expiresOn === null ? "Never" : <Instant at={expiresOn} relative />),
  },
  { id: "type", title: "Type", width: "100px", cell: ({ type }) => type },
  { id: "vault", title: "Stored in", width: "minmax(120px, 2fr)", cell: vaultOrTenant },
  { id: "owner", title: "Owner", width: "minmax(120px, 2fr)", cell: ({ owner }) => owner ?? "No owner" },
  { id: "enabled", title: "Enabled", width: "80px", cell: ({ enabled }) => (enabled ? "Yes" : "No") },
  {
    id: "subscription",
    title: "Subscription",
    width: "minmax(120px, 2fr)",
    cell: (asset) => asset.subscriptionName ?? asset.subscriptionId ?? "None",
  },
  {
    id: "updated",
    title: "Last modified",
    width: "130px",
    cell: ({ updatedOn }) => <Instant at={updatedOn} relative />,
  },
  {
    id: "contentType",
    title: "Content type",
    width: "minmax(120px, 1fr)",
    cell: (asset) => asset.contentType ?? "Not set",
  },
];

/** Default columns on a wide and on a narrow screen. */
const WIDE_COLUMNS = ["name", "status", "expires", "type", "vault", "owner"];
const NARROW_COLUMNS = ["name", "status", "expires"];

/** Returns the columns in the address, or the default columns. */
export function useColumns(): Column[] {
  const [params] = useSearchParams();
  const isNarrow = useIsNarrow();
  const selectedIds = params.get("columns")?.split(",") ?? (isNarrow ? NARROW_COLUMNS : WIDE_COLUMNS);
  const columns = COLUMNS.filter(({ id }) => selectedIds.includes(id));
  // An address with unknown column IDs only shows the default columns.
  return columns.length > 0 ? columns : COLUMNS.filter(({ id }) => WIDE_COLUMNS.includes(id));
}
