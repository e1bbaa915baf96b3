import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
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
import { StateBadge } from "./state-badge.tsx";
import { targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

/** One sync record: its status, a plan of the next run, and its history. */
export default function OneRecord() {
  const { recordId = "" } = useParams();
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
        <View title={`${data.sourceVault}/${data.sourceSecret}`}>
          <Text>
            Target: {targetText(data)}. <Link href={createHref("/sync", {})}>All sync records</Link>
          </Text>
          <Actions record={data} />
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
        Last synced: <Instant at={lastSyncedAt} relative />. Last checked: <Instant at={lastCheckedAt} relative />.
        Checked every {scheduleHours === 1 ? "hour" : `${scheduleHours} hours`}
        {nextRunAt && (
          <>
            , next check <Instant at={nextRunAt} relative />
          </>
        )}
        .
      </Text>
    </>
  );
}

function Actions({ record }: { record: SyncRecord }) {
  const { recordId, etag, targetName } = record;
  const params = { path: { record_id: recordId } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <div>
      <Operate
        operation="runSyncRecord"
        title="Sync now"
        action="Sync now"
        preview={{
          operation: "planSyncRecord",
          action: "Show plan",
          first: true,
          load: async (_, plan) => <Plan of={await plan({ params })} />,
        }}
        submit={(_, run) => run({ params })}
      >
        <Text>Compares both secrets and overwrites {targetName} if it differs.</Text>
      </Operate>{" "}
      <Operate
        operation="updateSyncRecord"
        title="Edit"
        action="Save"
        submit={(form, change) =>
          change({ params: conditionalParams, body: { ...recordOf(form), confirmVaults: form.has("confirmVaults") } })
        }
      >
        <RecordFields record={record} />
        {record.failure?.code === "otherPlace" && record.failure.side !== "service" && (
          <CheckField
            name="confirmVaults"
            label="Confirm key vaults"
            hint="Accepts the key vaults that have these names now. Find out who created them first."
          />
        )}
      </Operate>{" "}
      <Operate
        operation="deleteSyncRecord"
        title="Delete sync"
        action="Delete sync"
        submit={async (form, remove) => {
          await remove({
            params: { ...conditionalParams, query: { removeTarget: form.has("removeTarget") ? "true" : "false" } },
          });
          location.hash = createHref("/sync", {});
        }}
      >
        <Text>Stops the sync. The source secret is not changed.</Text>
        <CheckField name="removeTarget" label={`Also delete ${targetName} in the target`} />
      </Operate>
    </div>
  );
}

const EVENTS = {
  created: "Created",
  updated: "Updated",
  mended: "Drift corrected",
  driftFound: "Drift found",
  failed: "Failed",
  recovered: "Recovered",
  removed: "Removed",
} as const satisfies Record<Schemas["SyncHistoryEntry"]["kind"], string>;

const HISTORY: Column<Schemas["SyncHistoryEntry"]>[] = [
  { title: "Time", cell: ({ at }) => <Instant at={at} /> },
  { title: "Event", cell: ({ kind }) => EVENTS[kind] },
  { title: "Version", cell: ({ sourceVersion }) => sourceVersion },
  { title: "Error", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

function History({ recordId }: { recordId: string }) {
  const params = { path: { record_id: recordId }, query: { limit: 50 } };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records/{record_id}/history", { params }, BY_CURSOR);
  return (
    <PagedTable of={list} columns={HISTORY} keyOf={({ entryId }) => entryId} label="History" empty="No runs yet." />
  );
}
