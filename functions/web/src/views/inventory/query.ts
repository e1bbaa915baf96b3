import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { daysWithin, expiresWithin, WITHIN } from "../../parts/expires-within.ts";
import { type Filter, givenFilters } from "../../parts/filters.tsx";
import { STATUS_TEXTS } from "../../parts/status.tsx";

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
  { name: "status", label: "Status", values: STATUS_TEXTS },
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
] as const satisfies AssetFilter[];

type AssetFilter = Filter & { name: keyof Filters };

/** Filters in the address that only quick filters and links of other views set. */
const QUICK: AssetFilter[] = [
  { name: "hasOwner", label: "Has an owner" },
  { name: "b2cTenant", label: "B2C tenant" },
];

/** Names in the address that the filter bar has no field for, and that its "Clear filters" removes. */
export const WITHOUT_FIELD = [WITHIN, ...QUICK.map(({ name }) => name)];

/** The orders that the API reads from an index. Other columns can't be sorted. */
export type Sort = NonNullable<Filters["sort"]>;

/** Returns the filters and the order that the page's address sets. */
export function filtersOf(params: URLSearchParams): Filters {
  const days = daysWithin(params);
  const filters: Filters = {
    ...(days !== undefined && expiresWithin(days)),
    ...givenFilters(params, [...FILTERS, ...MORE_FILTERS, ...QUICK]),
  };
  return { ...filters, sort: canSortByName(filters) && params.get("sort") === "name" ? "name" : "expiresOn" };
}

/** Returns whether the list can be in the order of names. Filters of the expiry read the index by expiry. */
export const canSortByName = ({ status, expiresAfter, expiresBefore }: Filters): boolean =>
  status === undefined && expiresAfter === undefined && expiresBefore === undefined;

/** Returns whether a filter is set. The order does not count as a filter. */
export const isFiltered = ({ sort: _, ...filters }: Filters): boolean => Object.keys(filters).length > 0;

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
