import { Badge, Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { STATUSES } from "./words.ts";

type Summary = Schemas["RotationSummary"];

const COLORS: Partial<Record<Summary["status"], "success" | "danger" | "warning">> = {
  completed: "success",
  failed: "danger",
  needsAttention: "danger",
  rolledBack: "warning",
  cancelled: "warning",
};

const COLUMNS: Column<Summary>[] = [
  {
    title: "Of",
    cell: ({ rotationId, appName, appId, assetId }) =>
      rotationId === null ? (
        appName
      ) : (
        <Link href={createHref(`/rotation/${rotationId}`, {})}>{appName ?? assetId ?? appId}</Link>
      ),
  },
  {
    title: "Status",
    cell: ({ status, needsConfirmation }) => (
      <Badge appearance="tint" color={COLORS[status] ?? "informative"}>
        {STATUSES[status]}
        {needsConfirmation && ", waits for a person"}
      </Badge>
    ),
  },
  { title: "Begun", cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
  { title: "By", cell: ({ requestedBy, automatic }) => (automatic ? "its policy" : requestedBy) },
  { title: "Failure", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

export function Rotations() {
  const list = api.useInfiniteQuery(
    "get",
    "/api/automation/rotation/history",
    { params: { query: { limit: 50 } } },
    BY_CURSOR,
  );
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ rotationId, createdAt }) => rotationId ?? createdAt}
      label="Rotations"
      none="Nothing was rotated yet."
    />
  );
}
