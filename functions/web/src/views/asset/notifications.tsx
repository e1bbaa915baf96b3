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
const SEARCHED_NOTIFICATIONS = 200;

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
        action="Snooze asset"
        appearance="transparent"
        submit={(form, create) => create({ body: { ...snoozeOf(form), ruleId, assetId } })}
      >
        <Text>
          Until the date, this alert rule sends no notifications about this asset, except that the asset was renewed or
          deleted.
        </Text>
        <SnoozeFields />
      </Operate>
    ),
  },
];

/**
 * The card of an asset's page with the recent notifications about it. The API has no filter for assets, and its list contains
 * only the first items of each notification. A notification that names the asset later is therefore missing here.
 */
export function Notifications({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const history = api.useQuery("get", "/alerts/history", { params: { query: { limit: SEARCHED_NOTIFICATIONS } } });
  return (
    <QueryResult of={history}>
      {({ items, nextCursor }) => {
        const aboutAsset = items.filter((entry) => entry.items.some((item) => item.id === id));
        /** Whether a notification has more items than the list contains. */
        const isShortened = items.some((entry) => entry.itemsTotal > entry.items.length);
        return (
          <>
            {aboutAsset.length === 0 ? (
              <Text>No notifications about this asset among the most recent ones.</Text>
            ) : (
              <DataTable items={aboutAsset} columns={columnsOf(id)} keyOf={(entry) => entry.id} label="Notifications" />
            )}
            {(nextCursor !== null || isShortened) && (
              <Text>
                Only the first alerts of the last {items.length} notifications were searched for this asset.{" "}
                <Link href={createHref("/alerts")}>All notifications</Link>
              </Text>
            )}
          </>
        );
      }}
    </QueryResult>
  );
}
