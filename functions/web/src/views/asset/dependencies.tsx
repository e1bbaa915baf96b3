import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { kindOf, REFRESHES, STRENGTHS } from "../../parts/dependency-words.ts";
import { isolated } from "../../parts/isolated.ts";

const COLUMNS: Column<Schemas["Dependency"]>[] = [
  { title: "Used by", cell: ({ resource }) => `${isolated(resource.name)} (${kindOf(resource)})` },
  { title: "How", cell: ({ strength, evidence }) => `${STRENGTHS[strength]}: ${isolated(evidence)}` },
  {
    title: "On a new version",
    cell: ({ refresh, pinned }) => `${REFRESHES[refresh.how]}${pinned === null ? "" : ", pinned"}`,
  },
];

export function Dependencies({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const uses = api.useQuery("get", "/api/assets/dependencies", { params: { query: { assetId: id, limit: 50 } } });
  return (
    <Answer of={uses}>
      {({ items, nextCursor }) => (
        <>
          {items.length === 0 ? (
            <Text>No use is known.</Text>
          ) : (
            <DataTable
              items={items}
              columns={COLUMNS}
              keyOf={({ resource, evidence }) => `${resource.id} ${evidence}`}
              label="Who uses it"
            />
          )}
          <Link href={createHref(`/dependencies/${encodeURIComponent(id)}`)}>
            {nextCursor === null ? "What a rotation would do" : "All of them, and what a rotation would do"}
          </Link>
        </>
      )}
    </Answer>
  );
}
