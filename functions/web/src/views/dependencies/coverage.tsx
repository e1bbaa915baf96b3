import { api, type Schemas } from "../../api/client.ts";
import { SOURCES } from "../../parts/dependency-texts.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const COLUMNS: Column<Schemas["NotLookedInto"]>[] = [
  { title: "Resource or scope", cell: ({ scope }) => SOURCES[scope] ?? scope },
  // Null only before the first discovery. The table then has one row, which says that nothing was searched yet.
  { title: "Searched for", cell: ({ source }) => (source === null ? "" : (SOURCES[source] ?? source)) },
  { title: "Reason", cell: ({ message }) => message },
  { title: "How to fix", folds: true, cell: ({ remedy }) => remedy },
  { title: "Since", cell: ({ since }) => since && <Instant at={since} relative /> },
];

/**
 * The table of resources and scopes that dependency discovery could not read, with the reason and the fix, on the Dependencies
 * page.
 */
export function Coverage() {
  const list = api.useInfiniteQuery(
    "get",
    "/api/assets/dependencies/coverage",
    { params: { query: { limit: 100 } } },
    BY_CURSOR,
  );
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ scope, source, code }) => [scope, source, code].join(" ")}
      label="Could not be searched"
      csv
      empty="The last discovery could read all monitored resources."
    />
  );
}
