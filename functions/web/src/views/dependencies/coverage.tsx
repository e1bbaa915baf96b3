import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const SOURCES: Record<string, string> = {
  azure: "Azure",
  devops: "Azure DevOps",
  sync: "Sync",
  logs: "Logs",
  literals: "Plaintext copies in settings",
};

const COLUMNS: Column<Schemas["NotLookedInto"]>[] = [
  { title: "Scope", cell: ({ scope }) => scope },
  { title: "Source", cell: ({ source }) => (source === null ? "" : (SOURCES[source] ?? source)) },
  { title: "Reason", cell: ({ message }) => message },
  { title: "Remediation", cell: ({ remedy }) => remedy },
  { title: "Since", cell: ({ since }) => since && <Instant at={since} relative /> },
];

/** Scopes that dependency discovery could not read, with the role that is missing. */
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
      label="Not read"
      empty="Dependency discovery read everything."
    />
  );
}
