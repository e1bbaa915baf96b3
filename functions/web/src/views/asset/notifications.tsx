import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { DELIVERY_STATUSES, METHODS } from "../../parts/notification-texts.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

/** The reason of a notification, by the kind of its alert. */
const REASONS: Partial<Record<Schemas["AlertItem"]["kind"], string>> = {
  renewed: "Renewed",
  recovered: "Resolved",
  escalated: "Not acknowledged",
};

const COLUMNS: Column<Schemas["AlertHistoryEntry"]>[] = [
  {
    title: "Sent",
    cell: ({ id, createdAt }) => (
      <Link href={createHref(`/alerts/history/${id}`)}>
        <Instant at={createdAt} />
      </Link>
    ),
  },
  {
    title: "Reason",
    // With `asset_id`, an entry has only items about this asset. The first one's reason stands for all.
    cell: ({ items: [item], createdAt }) => item && (REASONS[item.kind] ?? reasonOf(item, createdAt)),
  },
  { title: "Rule", cell: ({ ruleName }) => ruleName },
  { title: "Channel", cell: ({ deliveryMethod }) => METHODS[deliveryMethod] },
  { title: "Status", cell: ({ status, error }) => `${DELIVERY_STATUSES[status]} ${error ?? ""}` },
];

/**
 * Returns why a rule notified about an expiry. Alerts about expired assets and about late renewals both have a threshold of 0
 * days. The expiry date at the time of the notification tells them apart.
 */
const reasonOf = ({ thresholdDays, expiresOn }: Schemas["AlertItem"], createdAt: string): string => {
  if (thresholdDays !== 0) return `Less than ${thresholdDays} days left`;
  return expiresOn !== null && expiresOn > createdAt ? "Renewal is late" : "Expired";
};

/** The card of an asset's page with the notifications about it: about its current expiry date, and about resolved alerts. */
export function Notifications({ assetId }: { assetId: string }) {
  const query = { asset_id: assetId, limit: 50 };
  const list = api.useInfiniteQuery("get", "/alerts/history", { params: { query } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Notifications about this asset"
      empty={
        <>
          No alert rule notified about the current expiry date of this asset.{" "}
          <Link href={createHref("/alerts")}>Show the alert rules</Link>
        </>
      }
    />
  );
}
