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
];

/** Shown only if a sync has an error. */
const ERROR: Column<SyncRecord> = {
  title: "Error",
  cell: ({ failure }) => (failure ? `${failure.message} ${failure.remedy}` : "None"),
};

/** The table of sync records with their status, on the Sync page. */
export function Records() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records", { params: { query } }, BY_CURSOR);
  const [page] = list.data?.pages ?? [];
  const hasErrors = list.data?.pages.some(({ items }) => items.some(({ failure }) => failure !== null)) ?? false;
  return (
    <>
      {page && <Totals of={page} isFiltered={Object.keys(query).length > 1} />}
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={hasErrors ? [...COLUMNS, ERROR] : COLUMNS}
        keyOf={({ recordId }) => recordId}
        label="Syncs"
        empty="No syncs match the filter. Select Create sync to copy a key vault secret to another secret store."
      />
    </>
  );
}

/** The number of syncs, and in the first page the numbers of those that are not in sync and that are disabled. */
function Totals({
  of: { items, total, totalAtLeast, nextCursor },
  isFiltered,
}: {
  of: Schemas["SyncRecordList"];
  isFiltered: boolean;
}) {
  const count = total ?? Math.max(totalAtLeast ?? 0, items.length);
  return (
    <Text>
      {total === null && nextCursor !== null && "At least "}
      {counted(count, "sync", "syncs")}
      {isFiltered ? " with this status." : statesText(items, nextCursor === null)}
    </Text>
  );
}

/** Returns how many syncs are not in sync or disabled. `isComplete`: `items` are all syncs. */
function statesText(items: readonly SyncRecord[], isComplete: boolean): string {
  const paused = items.filter(({ state }) => state === "paused").length;
  const notInSync = items.filter(({ state }) => state !== "inSync" && state !== "paused").length;
  const others = [
    { number: notInSync, text: "not in sync" },
    { number: paused, text: "disabled" },
  ].filter(({ number }) => number > 0);
  if (others.length === 0) return isComplete && items.length > 0 ? ", all in sync." : ".";
  return `, ${others.map(({ number, text }) => `${isComplete ? "" : "at least "}${number.toLocaleString()} ${text}`).join(" and ")}.`;
}
