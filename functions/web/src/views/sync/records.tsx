import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { STATES, StateBadge } from "./state.tsx";
import { targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

const FILTERS = [{ name: "state", label: "State", values: STATES }];

const COLUMNS: Column<SyncRecord>[] = [
  {
    title: "Secret",
    cell: ({ recordId, sourceVault, sourceSecret }) => (
      <Link href={createHref(`/sync/${recordId}`, {})}>
        {sourceVault}/{sourceSecret}
      </Link>
    ),
  },
  { title: "To", cell: targetText },
  {
    title: "State",
    cell: StateBadge,
  },
  { title: "Copied", cell: ({ lastSyncedAt }) => <Instant at={lastSyncedAt} relative /> },
  { title: "Looked at", cell: ({ lastCheckedAt }) => <Instant at={lastCheckedAt} relative /> },
  { title: "Failure", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

/** The copies and how they are. */
export function Records() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ recordId }) => recordId}
        label="Copies"
        none="Nothing is copied."
      />
    </>
  );
}
