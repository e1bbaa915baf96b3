import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { kindOf, REFRESHES, STRENGTHS } from "../../parts/dependency-texts.ts";
import { isolated } from "../../parts/isolated.ts";
import { QueryResult } from "../../parts/query-result.tsx";

const COLUMNS: Column<Schemas["Dependency"]>[] = [
  { title: "Used by", cell: ({ resource }) => `${isolated(resource.name)} (${kindOf(resource)})` },
  { title: "Evidence", cell: ({ strength, evidence }) => `${STRENGTHS[strength]}: ${isolated(evidence)}` },
  {
    title: "After a new version",
    cell: ({ refresh, pinned }) => `${REFRESHES[refresh.how]}${pinned === null ? "" : ", pinned to a version"}`,
  },
];

export function Dependencies({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const uses = api.useQuery("get", "/api/assets/dependencies", { params: { query: { assetId: id, limit: 50 } } });
  return (
    <QueryResult of={uses}>
      {({ items, nextCursor }) => (
        <>
          {items.length === 0 ? (
            <Text>No consumers found.</Text>
          ) : (
            <DataTable
              items={items}
              columns={COLUMNS}
              keyOf={({ resource, evidence }) => `${resource.id} ${evidence}`}
              label="Used by"
            />
          )}
          <Link href={createHref(`/dependencies/${encodeURIComponent(id)}`)}>
            {nextCursor === null ? "Blast radius of a rotation" : "All consumers and the blast radius of a rotation"}
          </Link>
        </>
      )}
    </QueryResult>
  );
}
