import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { lastComparedAt, STATES, StateBadge } from "./state-badge.tsx";
import { targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

const FILTERS = [{ name: "state", label: "Status", values: STATES }];

const COLUMNS: Column<SyncRecord>[] = [
  {
    title: "Sync of",
    cell: ({ recordId, sourceVault, sourceSecret }) => (
      <Link href={createHref(`/sync/${recordId}`)}>
        {sourceVault}/{sourceSecret}
      </Link>
    ),
  },
  { title: "Target", cell: targetText },
  {
    title: "Status",
    cell: StateBadge,
  },
  { title: "Last copied", cell: ({ lastSyncedAt }) => <Instant at={lastSyncedAt} relative /> },
  { title: "Last compared", cell: (record) => <Instant at={lastComparedAt(record)} relative /> },
  { title: "Error", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

/** The table of sync records with their status, on the Sync page. */
export function Records() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records", { params: { query } }, BY_CURSOR);
  const [page] = list.data?.pages ?? [];
  return (
    <>
      {page && <Totals of={page} isFiltered={Object.keys(query).length > 1} />}
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ recordId }) => recordId}
        label="Syncs"
        empty="No syncs match the filter. Select Create sync to copy a key vault secret to another secret store."
      />
    </>
  );
}

/** The number of syncs, and of those in the first page that are not in sync. */
function Totals({
  of: { items, total, totalAtLeast, nextCursor },
  isFiltered,
}: {
  of: Schemas["SyncRecordList"];
  isFiltered: boolean;
}) {
  const count = total ?? Math.max(totalAtLeast ?? 0, items.length);
  const notInSync = items.filter(({ state }) => state !== "inSync" && state !== "paused").length;
  return (
    <Text>
      {total === null && nextCursor !== null && "At least "}
      {counted(count, "sync", "syncs")}
      {isFiltered
        ? " with this status."
        : `, ${nextCursor === null ? "" : "at least "}${notInSync.toLocaleString()} of them not in sync.`}
    </Text>
  );
}
