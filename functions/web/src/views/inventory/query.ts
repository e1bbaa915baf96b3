import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";

type Query = NonNullable<paths["/api/assets/discovery/assets"]["get"]["parameters"]["query"]>;
export type Filters = Omit<Query, "limit" | "offset" | "cursor" | "format">;
export type Asset = Schemas["Asset"];

export type Page = Schemas["AssetList"];

/** As many as the API gives at once. */
const PAGE = 1000;

const NAMES = [
  "type",
  "status",
  "vault",
  "subscription",
  "source",
  "counted",
  "search",
  "expiresBefore",
  "expiresAfter",
  "enabled",
  "tag",
  "owner",
  "sort",
] as const satisfies (keyof Filters)[];

/** Those of the address. What the API does not take there it says itself. */
export const filtersOf = (params: URLSearchParams): Filters =>
  Object.fromEntries(
    NAMES.flatMap((name) => {
      const value = params.get(name);
      return value ? [[name, value]] : [];
    }),
  );

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
