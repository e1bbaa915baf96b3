import { Badge, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Version = Schemas["AssetVersion"];

/** The card of an asset's page with its versions, newest first. The service reads them from the vault for this request. */
export function Versions({ asset: { id, version: current } }: { asset: Schemas["AssetDetails"] }) {
  const query = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}/versions", {
    params: { path: { asset_id: id } },
  });
  const columns: Column<Version>[] = [
    {
      title: "Version",
      cell: ({ version }) => (
        <>
          {version} {version === current && <Badge appearance="tint">current</Badge>}
        </>
      ),
    },
    { title: "Created", cell: ({ createdOn }) => <Instant at={createdOn} /> },
    { title: "Valid from", cell: ({ notBefore }) => notBefore && <Instant at={notBefore} /> },
    { title: "Expires", cell: ({ expiresOn }) => <Instant at={expiresOn} /> },
    { title: "Last modified", cell: ({ updatedOn }) => <Instant at={updatedOn} /> },
    { title: "Enabled", cell: ({ enabled }) => (enabled ? "Yes" : "No") },
  ];
  return (
    <QueryResult of={query}>
      {({ versions, complete }) => (
        <>
          <DataTable items={versions} columns={columns} keyOf={({ version }) => version} label="Versions" />
          {!complete && <Text>Only the newest {versions.length} versions are shown.</Text>}
        </>
      )}
    </QueryResult>
  );
}
