import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const SOURCES: Record<string, string> = {
  azure: "Azure",
  devops: "Azure DevOps",
  sync: "Sync",
  logs: "Logs",
  literals: "Copies in settings",
};

const COLUMNS: Column<Schemas["NotLookedInto"]>[] = [
  { title: "Where", cell: ({ scope }) => scope },
  { title: "What", cell: ({ source }) => (source === null ? "" : (SOURCES[source] ?? source)) },
  { title: "Why", cell: ({ message }) => message },
  { title: "What mends it", cell: ({ remedy }) => remedy },
  { title: "Since", cell: ({ since }) => since && <Instant at={since} relative /> },
];

/** What could not be read, and which role mends it. */
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
      label="What could not be looked into"
      none="All was looked into."
    />
  );
}
