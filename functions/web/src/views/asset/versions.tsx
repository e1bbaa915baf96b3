import { Badge, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";

type Version = Schemas["AssetVersion"];

/** Read from the vault now, the newest first. */
export function Versions({ asset: { id, version: current } }: { asset: Schemas["AssetDetails"] }) {
  const versions = api.useQuery("get", "/api/assets/discovery/assets/{asset_id}/versions", {
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
    { title: "Made", cell: ({ createdOn }) => <Instant at={createdOn} /> },
    { title: "Valid from", cell: ({ notBefore }) => notBefore && <Instant at={notBefore} /> },
    { title: "Ends", cell: ({ expiresOn }) => <Instant at={expiresOn} /> },
    { title: "Changed", cell: ({ updatedOn }) => <Instant at={updatedOn} /> },
    { title: "Enabled", cell: ({ enabled }) => (enabled ? "yes" : "no") },
  ];
  return (
    <Answer of={versions}>
      {({ versions, complete }) => (
        <>
          <DataTable items={versions} columns={columns} keyOf={({ version }) => version} label="Versions" />
          {!complete && <Text>There are more; the newest {versions.length} are shown.</Text>}
        </>
      )}
    </Answer>
  );
}
