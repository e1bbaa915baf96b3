import { Badge, Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { STATE_COLORS, targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

const STATES = Object.keys(STATE_COLORS) as SyncRecord["state"][];
const ANY_STATE: Record<string, string> = { "": "any", ...Object.fromEntries(STATES.map((one) => [one, one])) };
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
    cell: ({ state }) => (
      <Badge appearance="tint" color={STATE_COLORS[state]}>
        {state}
      </Badge>
    ),
  },
  { title: "Copied", cell: ({ lastSyncedAt }) => <Instant at={lastSyncedAt} relative /> },
  { title: "Looked at", cell: ({ lastCheckedAt }) => <Instant at={lastCheckedAt} relative /> },
  { title: "Failure", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

/** The copies and how they are. */
export function Records() {
  const [params, setParams] = useSearchParams();
  const state = STATES.find((one) => one === params.get("state"));
  const query = { limit: 100, ...(state && { state }) };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records", { params: { query } }, BY_CURSOR);
  return (
    <>
      <ChoiceField
        name="state"
        label="State"
        options={ANY_STATE}
        value={state ?? ""}
        choose={(value) => setParams(value === "" ? {} : { state: value })}
      />
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
