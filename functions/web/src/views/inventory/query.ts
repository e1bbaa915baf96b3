import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { type Filter, givenFilters } from "../../parts/filters.tsx";
import { STATUSES } from "../../parts/status.tsx";

type Query = NonNullable<paths["/api/assets/discovery/assets"]["get"]["parameters"]["query"]>;
export type Filters = Omit<Query, "limit" | "offset" | "cursor" | "format">;
export type Asset = Schemas["Asset"];

export type Page = Schemas["AssetList"];

/** As many as the API gives at once. */
const PAGE = 1000;

const YES_NO = { true: "yes", false: "no" } as const;

export const FILTERS = [
  { name: "search", label: "Name contains" },
  { name: "type", label: "Type", values: ["secret", "key", "certificate"] },
  { name: "status", label: "Status", values: STATUSES },
  { name: "vault", label: "Vault" },
] as const satisfies AssetFilter[];

export const MORE_FILTERS = [
  { name: "owner", label: "Owner" },
  { name: "subscription", label: "Subscription id" },
  { name: "tag", label: "Tag (name or name=value)" },
  { name: "enabled", label: "Enabled", values: YES_NO },
  {
    name: "source",
    label: "From",
    values: { keyVault: "key vaults", entra: "applications of Entra", b2c: "B2C tenants" },
  },
  { name: "counted", label: "Part of the figures", values: YES_NO },
  { name: "expiresAfter", label: "Ends after", type: "date" },
  { name: "expiresBefore", label: "Ends before", type: "date" },
  { name: "sort", label: "Sorted by", values: { name: "name", expiresOn: "end" } },
] as const satisfies AssetFilter[];

type AssetFilter = Filter & { name: keyof Filters };

export const filtersOf = (params: URLSearchParams): Filters => givenFilters(params, [...FILTERS, ...MORE_FILTERS]);

/**
 * One page by its cursor; the first has none. A page that is no longer looked at is forgotten at once, so that memory does not grow
 * with the estate.
 */
export const pageOf = (filters: Filters, cursor: string | undefined) =>
  api.queryOptions(
    "get",
    "/api/assets/discovery/assets",
    { params: { query: { ...filters, limit: PAGE, ...(cursor !== undefined && { cursor }) } } },
    { gcTime: 0 },
  );
