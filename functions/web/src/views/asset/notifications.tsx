import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { DELIVERY_STATUSES, METHODS } from "../../parts/notification-texts.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";

/** Number of recent notifications that are searched for the asset. */
const SEARCHED = 200;

const columnsOf = (assetId: string): Column<Schemas["AlertHistoryEntry"]>[] => [
  { title: "Sent", cell: ({ createdAt }) => <Instant at={createdAt} /> },
  { title: "Rule", cell: ({ id, ruleName }) => <Link href={createHref(`/alerts/history/${id}`)}>{ruleName}</Link> },
  { title: "Channel", cell: ({ deliveryMethod }) => METHODS[deliveryMethod] },
  { title: "Status", cell: ({ status, error }) => `${DELIVERY_STATUSES[status]} ${error ?? ""}` },
  {
    title: "",
    cell: ({ ruleId, ruleName }) => (
      <Operate
        operation="createAlertSnooze"
        title="Snooze"
        about={ruleName}
        action="Snooze"
        appearance="transparent"
        submit={(form, create) => create({ body: { ...snoozeOf(form), ruleId, assetId } })}
      >
        <Text>
          Until then, the rule sends no notifications about this asset, except that the asset was renewed or deleted.
        </Text>
        <SnoozeFields />
      </Operate>
    ),
  },
];

/** Recent notifications with this asset among their first items. The list of notifications contains only those items. */
export function Notifications({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const history = api.useQuery("get", "/alerts/history", { params: { query: { limit: SEARCHED } } });
  return (
    <QueryResult of={history}>
      {({ items, nextCursor }) => {
        const own = items.filter((entry) => entry.items.some((item) => item.id === id));
        const shortened = items.some((entry) => entry.itemsTotal > entry.items.length);
        return (
          <>
            {own.length === 0 ? (
              <Text>No recent notifications about this asset.</Text>
            ) : (
              <DataTable items={own} columns={columnsOf(id)} keyOf={(one) => one.id} label="Notifications" />
            )}
            {(nextCursor !== null || shortened) && (
              <Text>
                Shows matches in the first items of the last {items.length} notifications.{" "}
                <Link href={createHref("/alerts")}>All notifications</Link>
              </Text>
            )}
          </>
        );
      }}
    </QueryResult>
  );
}
