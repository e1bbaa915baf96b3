import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { consumerTitle, evidenceText, REFRESHES, STRENGTHS } from "../../parts/dependency-texts.ts";
import { QueryResult } from "../../parts/query-result.tsx";

const COLUMNS: Column<Schemas["Dependency"]>[] = [
  { title: "Used by", cell: ({ resource }) => consumerTitle(resource) },
  { title: "Evidence", cell: ({ strength, evidence }) => `${STRENGTHS[strength]}: ${evidenceText(evidence)}` },
  {
    title: "Effect of a new version",
    cell: ({ refresh, pinned }) => `${REFRESHES[refresh.how]}${pinned === null ? "" : ", references a fixed version"}`,
  },
];

/** The card of an asset's page with its consumers. */
export function Dependencies({ asset }: { asset: Schemas["AssetDetails"] }) {
  const isDetectable = asset.source === "keyVault" || (asset.source === "entra" && asset.type === "secret");
  return isDetectable ? <Uses asset={asset} /> : <Undetectable asset={asset} />;
}

/** Why the service can't find consumers of this kind of asset, and what to check instead. */
function Undetectable({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const radius = api.useQuery("get", "/api/assets/dependencies/blast-radius/{secret_id}", {
    params: { path: { secret_id: id } },
  });
  return (
    <QueryResult of={radius}>
      {({ coverage }) => (
        <Text>
          {coverage.items.map(({ message, remedy }) => `${message} ${remedy}`).join(" ")}{" "}
          <Link href={createHref(`/dependencies/${encodeURIComponent(id)}`)}>Blast radius</Link>
        </Text>
      )}
    </QueryResult>
  );
}

/** The first 50 consumers, and a link to the blast radius with all of them. */
function Uses({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const uses = api.useQuery("get", "/api/assets/dependencies", { params: { query: { assetId: id, limit: 50 } } });
  return (
    <QueryResult of={uses}>
      {({ items, nextCursor, coverage }) => (
        <>
          {items.length === 0 ? (
            <Text>
              {coverage.lastFullAt === null
                ? "No discovery of dependencies has read all resources yet."
                : "No consumers found by the last dependency discovery."}{" "}
              Consumers outside the monitored resources aren't detected.
            </Text>
          ) : (
            <DataTable
              items={items}
              columns={COLUMNS}
              keyOf={({ resource, evidence }) => `${resource.id} ${evidence}`}
              label="Used by"
            />
          )}
          <Link href={createHref(`/dependencies/${encodeURIComponent(id)}`)}>
            {nextCursor === null ? "Show the effect of a rotation" : "Show all consumers and the effect of a rotation"}
          </Link>
        </>
      )}
    </QueryResult>
  );
}
