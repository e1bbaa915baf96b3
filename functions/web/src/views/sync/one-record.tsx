import { Link, Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Plan } from "./plan.tsx";
import { RecordFields, recordOf } from "./record-fields.tsx";
import { lastComparedAt, StateBadge } from "./state-badge.tsx";
import { targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

/** The page of one sync record: its status, its actions, and its history. */
export default function OneRecord() {
  const { recordId = "" } = useParams();
  const mayDelete = useMay()("deleteSyncRecord");
  const params = { path: { record_id: recordId } };
  const record = api.useQuery(
    "get",
    "/api/automation/sync/records/{record_id}",
    { params },
    pollUntil<SyncRecord>(({ state }) => state !== "pending" && state !== "new"),
  );
  return (
    <QueryResult of={record}>
      {(data) => (
        <View title={`Sync of ${data.sourceVault}/${data.sourceSecret}`}>
          <Text>
            Source:{" "}
            <Link
              href={createHref(`/inventory/${encodeURIComponent(`${data.sourceVault}.secret.${data.sourceSecret}`)}`)}
            >
              {data.sourceVault}/{data.sourceSecret}
            </Link>
            . Target: {targetText(data)}. <Link href={createHref("/sync")}>All syncs</Link>
          </Text>
          <Actions record={data} />
          {mayDelete && (
            <Text size={200}>When you delete the sync, you choose whether the copy in the target stays.</Text>
          )}
          <Card title="Status">
            <State record={data} />
          </Card>
          <Card title="History">
            <History recordId={recordId} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

/** The status of the sync with the times of its runs. */
function State({
  record: { state, failure, lastCheckedAt, lastSyncedAt, nextRunAt, scheduleHours },
}: {
  record: SyncRecord;
}) {
  return (
    <>
      <div>
        <StateBadge state={state} />
      </div>
      {failure && (
        <Text>
          {failure.message} {failure.remedy}
        </Text>
      )}
      <Text>
        Last copied to the target: <Instant at={lastSyncedAt} relative />. Last compared:{" "}
        <Instant at={lastComparedAt({ lastCheckedAt, lastSyncedAt })} relative />. Compared every{" "}
        {scheduleHours === 1 ? "hour" : `${scheduleHours} hours`}
        {nextRunAt && (
          <>
            , next time <Instant at={nextRunAt} relative />
          </>
        )}
        .
      </Text>
    </>
  );
}

/** The buttons that run, edit and delete the sync. A run must be previewed first, with the operation that plans it. */
function Actions({ record }: { record: SyncRecord }) {
  const { recordId, etag } = record;
  const params = { path: { record_id: recordId } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <ButtonRow>
      <Operate
        operation="runSyncRecord"
        title="Sync now"
        action="Sync now"
        preview={{
          operation: "planSyncRecord",
          action: "Preview sync",
          isRequired: true,
          load: async (_, plan) => <Plan of={await plan({ params })} />,
        }}
        submit={(_, run) => run({ params })}
      >
        <Text>
          Compares {record.sourceVault}/{record.sourceSecret} with the copy in the target ({targetText(record)}). If
          their values differ, the copy gets the source value. The preview shows what would happen. The sync starts only
          when you select Sync now.
        </Text>
      </Operate>
      <Operate
        operation="updateSyncRecord"
        title="Edit sync"
        action="Save sync"
        submit={(form, change) =>
          change({ params: conditionalParams, body: { ...recordOf(form), confirmVaults: form.has("confirmVaults") } })
        }
      >
        <RecordFields record={record} />
        {/* `otherPlace`: the source or target vault is not the one that the sync used before. With the side `service`, the
            provider's configuration has changed instead, which this confirmation can't fix. */}
        {record.failure?.code === "otherPlace" && record.failure.side !== "service" && (
          <CheckField
            name="confirmVaults"
            label="Use the new key vaults that have these names now"
            hint="A key vault was deleted and created again under the same name. Find out who created it before you accept it."
          />
        )}
      </Operate>
      <Operate
        operation="deleteSyncRecord"
        title="Delete sync"
        action="Delete sync"
        submit={async (form, remove) => {
          await remove({
            params: { ...conditionalParams, query: { removeTarget: form.has("removeTarget") } },
          });
          location.hash = createHref("/sync");
        }}
      >
        <Text>
          Stops the sync and deletes its configuration. You can't undo this. The source secret is not changed. The copy
          stays in the target unless you delete it too.
        </Text>
        <CheckField name="removeTarget" label={`Also delete the copy in the target (${targetText(record)})`} />
      </Operate>
    </ButtonRow>
  );
}

/** Events in the history of a sync. Drift is a change of the copy by another client. */
const EVENTS = {
  created: "Copy created",
  updated: "Copy updated",
  mended: "Changed copy overwritten",
  driftFound: "Copy was changed, not overwritten",
  failed: "Sync failed",
  recovered: "Sync works again",
  removed: "Sync deleted",
} as const satisfies Record<Schemas["SyncHistoryEntry"]["kind"], string>;

const HISTORY: Column<Schemas["SyncHistoryEntry"]>[] = [
  { title: "Time", cell: ({ at }) => <Instant at={at} /> },
  { title: "Event", cell: ({ kind }) => EVENTS[kind] },
  { title: "Source version", cell: ({ sourceVersion }) => sourceVersion },
];

const ERROR: (typeof HISTORY)[number] = {
  title: "Error",
  cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}`,
};

/** The table of events of the sync. */
function History({ recordId }: { recordId: string }) {
  const params = { path: { record_id: recordId }, query: { limit: 50 } };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records/{record_id}/history", { params }, BY_CURSOR);
  const hasErrors = list.data?.pages.some(({ items }) => items.some(({ failure }) => failure !== null)) ?? false;
  return (
    <PagedTable
      of={list}
      columns={hasErrors ? [...HISTORY, ERROR] : HISTORY}
      keyOf={({ entryId }) => entryId}
      label="History"
      empty="This sync has not run yet."
    />
  );
}
