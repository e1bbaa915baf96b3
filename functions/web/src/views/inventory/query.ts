import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { type Filter, givenFilters } from "../../parts/filters.tsx";
import { STATUSES } from "../../parts/status.tsx";

type Query = NonNullable<paths["/api/assets/discovery/assets"]["get"]["parameters"]["query"]>;
export type Filters = Omit<Query, "limit" | "offset" | "cursor" | "format">;
/** An asset as the list contains it. */
export type Asset = Schemas["Asset"];

export type Page = Schemas["AssetList"];

/** Maximum page size of the API. */
const MAX_PAGE_SIZE = 1000;

const YES_NO = { true: "Yes", false: "No" } as const;

/** Filters that are always visible. */
export const FILTERS = [
  { name: "search", label: "Name contains" },
  { name: "type", label: "Type", values: ["secret", "key", "certificate"] },
  { name: "status", label: "Status", values: STATUSES },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
] as const satisfies AssetFilter[];

/** Filters behind "More filters". */
export const MORE_FILTERS = [
  { name: "owner", label: "Owner", placeholder: "Full owner tag" },
  { name: "subscription", label: "Subscription ID" },
  { name: "tag", label: "Tag", placeholder: "Name or name=value" },
  { name: "enabled", label: "Enabled", values: YES_NO },
  {
    name: "source",
    label: "Source",
    values: { keyVault: "Key vaults", entra: "Entra applications", b2c: "B2C tenants" },
  },
  { name: "counted", label: "Included in totals and score", values: YES_NO },
  { name: "expiresAfter", label: "Expires after", type: "date" },
  { name: "expiresBefore", label: "Expires before", type: "date" },
  { name: "sort", label: "Sort by", values: { name: "Name", expiresOn: "Expiry date" } },
] as const satisfies AssetFilter[];

type AssetFilter = Filter & { name: keyof Filters };

/** Returns the filters that the page's address sets. */
export const filtersOf = (params: URLSearchParams): Filters => givenFilters(params, [...FILTERS, ...MORE_FILTERS]);

/**
 * Returns the query of one page. The first page has no cursor. A page that the table no longer uses is dropped from memory
 * immediately, so that memory use does not grow with the number of assets.
 */
export const pageOf = (filters: Filters, cursor: string | undefined) =>
  api.queryOptions(
    "get",
    "/api/assets/discovery/assets",
    { params: { query: { ...filters, limit: MAX_PAGE_SIZE, ...(cursor !== undefined && { cursor }) } } },
    { gcTime: 0 },
  );
