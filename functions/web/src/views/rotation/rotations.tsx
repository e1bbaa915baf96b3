import { Badge, Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { statusTextOf, subjectOf } from "../../parts/rotation-texts.ts";

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
    title: "Secret",
    // The API type allows null only because a dry run has no ID. Rows of the history always have one.
    cell: (rotation) =>
      rotation.rotationId === null ? (
        rotation.appName
      ) : (
        <Link href={createHref(`/rotation/${rotation.rotationId}`)}>{subjectOf(rotation)}</Link>
      ),
  },
  {
    title: "Status",
    cell: ({ status, keyKind, needsConfirmation }) => (
      <Badge appearance="tint" color={COLORS[status] ?? "informative"}>
        {statusTextOf({ status, keyKind })}
        {needsConfirmation && ", waiting for confirmation"}
      </Badge>
    ),
  },
  { title: "Started", cell: ({ createdAt }) => <Instant at={createdAt} relative /> },
  { title: "Requested by", cell: ({ requestedBy, automatic }) => (automatic ? "Rotation policy" : requestedBy) },
  { title: "Error", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

/** The table of all rotations, those in progress and those that have ended, on the Rotation page. */
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
      empty="No rotations yet. To start one, open an application and select Rotate secret."
    />
  );
}
