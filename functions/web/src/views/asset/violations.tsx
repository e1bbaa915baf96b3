import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { SeverityBadge } from "../../parts/status.tsx";

const COLUMNS: Column<Schemas["Violation"]>[] = [
  { title: "Severity", cell: ({ severity }) => <SeverityBadge severity={severity} /> },
  {
    title: "Check that fails",
    wide: true,
    cell: ({ title, evidence, exempted, remediation }) => (
      <>
        <strong>{title}</strong>
        {exempted && " (exempted)"}
        <Text block>{evidence}</Text>
        <Copyable label="What mends it" text={remediation.cli} />
      </>
    ),
  },
  { title: "Since", cell: ({ firstSeenAt }) => <Instant at={firstSeenAt} relative /> },
];

export function Violations({ asset: { id, vaultName } }: { asset: Schemas["AssetDetails"] }) {
  const query = { resource: id, limit: 100 };
  const list = api.useInfiniteQuery("get", "/compliance/violations", { params: { query } }, BY_CURSOR);
  return (
    <>
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={(one) => one.id}
        label="Violations of this asset"
        none="None is known."
      />
      {vaultName !== null && (
        <Link href={createHref("/compliance", { vault: vaultName })}>All violations in {vaultName}</Link>
      )}
    </>
  );
}
