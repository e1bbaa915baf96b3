import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { ApiSentence, Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { SeverityBadge } from "../../parts/status.tsx";

const COLUMNS: Column<Schemas["Violation"]>[] = [
  { title: "Severity of the violation", cell: ({ severity }) => <SeverityBadge severity={severity} /> },
  {
    title: "Failed check",
    wide: true,
    cell: ({ title, evidence, exempted, remediation }) => (
      <>
        <strong>{title}</strong>
        {exempted && " (exempt)"}
        <Text block>
          <ApiSentence text={evidence} />
        </Text>
        <Copyable label="Fix with Azure CLI" text={remediation.cli} />
      </>
    ),
  },
  { title: "First found", cell: ({ firstSeenAt }) => <Instant at={firstSeenAt} relative /> },
];

/** The card of an asset's page with the checks that it fails. */
export function Violations({ asset: { id, vaultName } }: { asset: Schemas["AssetDetails"] }) {
  const query = { resource: id, limit: 100 };
  const list = api.useInfiniteQuery("get", "/compliance/violations", { params: { query } }, BY_CURSOR);
  return (
    <>
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={(violation) => violation.id}
        label="Violations of this asset"
        empty="No violations. All checks of this asset pass."
      />
      {vaultName !== null && (
        <Link href={createHref("/compliance", { vault: vaultName })}>All violations in {vaultName}</Link>
      )}
    </>
  );
}
