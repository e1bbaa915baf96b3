import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { CheckField } from "../../parts/fields.tsx";
import { untilOver } from "../../parts/follow.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Plan } from "./plan.tsx";
import { RecordFields, recordOf } from "./record-fields.tsx";
import { StateBadge } from "./state.tsx";
import { targetText } from "./targets.ts";

type SyncRecord = Schemas["SyncRecord"];

/** One copy: how it is, what its next run would do, and what its runs did. */
export default function OneRecord() {
  const { recordId = "" } = useParams();
  const params = { path: { record_id: recordId } };
  const record = api.useQuery(
    "get",
    "/api/automation/sync/records/{record_id}",
    { params },
    untilOver<SyncRecord>(({ state }) => state !== "pending" && state !== "new"),
  );
  return (
    <Answer of={record}>
      {(data) => (
        <View title={`${data.sourceVault}/${data.sourceSecret}`}>
          <Text>
            To {targetText(data)}. <Link href={createHref("/sync", {})}>To the copies</Link>
          </Text>
          <Actions record={data} />
          <Card title="How it is">
            <State record={data} />
          </Card>
          <Card title="History">
            <History recordId={recordId} />
          </Card>
        </View>
      )}
    </Answer>
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
        Copied <Instant at={lastSyncedAt} relative />, looked at <Instant at={lastCheckedAt} relative />, every{" "}
        {scheduleHours === 1 ? "hour" : `${scheduleHours} hours`}
        {nextRunAt && (
          <>
            , next <Instant at={nextRunAt} relative />
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
  const held = { ...params, header: { "If-Match": etag } };
  return (
    <div>
      <Operate
        operation="runSyncRecord"
        title="Copy now"
        action="Copy"
        preview={{
          operation: "planSyncRecord",
          action: "Show what would be done",
          first: true,
          load: async (_, plan) => <Plan of={await plan({ params })} />,
        }}
        submit={(_, run) => run({ params })}
      >
        <Text>Both sides are compared, and {targetName} is written where it differs.</Text>
      </Operate>{" "}
      <Operate
        operation="updateSyncRecord"
        title="Change"
        action="Change"
        submit={(form, change) =>
          change({ params: held, body: { ...recordOf(form), confirmVaults: form.has("confirmVaults") } })
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
        title="Delete"
        action="Delete"
        submit={async (form, remove) => {
          await remove({ params: { ...held, query: { removeTarget: form.has("removeTarget") ? "true" : "false" } } });
          location.hash = createHref("/sync", {});
        }}
      >
        <Text>It is no longer kept the same.</Text>
        <CheckField name="removeTarget" label={`Delete ${targetName} there as well`} />
      </Operate>
    </div>
  );
}

const HISTORY: Column<Schemas["SyncHistoryEntry"]>[] = [
  { title: "When", cell: ({ at }) => <Instant at={at} /> },
  { title: "What", cell: ({ kind }) => kind },
  { title: "Version", cell: ({ sourceVersion }) => sourceVersion },
  { title: "Failure", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

function History({ recordId }: { recordId: string }) {
  const params = { path: { record_id: recordId }, query: { limit: 50 } };
  const list = api.useInfiniteQuery("get", "/api/automation/sync/records/{record_id}/history", { params }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={HISTORY}
      keyOf={({ entryId }) => entryId}
      label="History"
      none="Nothing was done yet."
    />
  );
}
