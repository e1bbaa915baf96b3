import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";

const LOOKED_THROUGH = 200;

const COLUMNS: Column<Schemas["AlertHistoryEntry"]>[] = [
  { title: "When", cell: ({ createdAt }) => <Instant at={createdAt} /> },
  { title: "Rule", cell: ({ id, ruleName }) => <Link href={createHref(`/alerts/history/${id}`)}>{ruleName}</Link> },
  { title: "By", cell: ({ deliveryMethod }) => deliveryMethod },
  { title: "State", cell: ({ status, error }) => `${status} ${error ?? ""}` },
];

/** Of the last deliveries those that name this asset among their first items, which are what the list has. */
export function Tellings({ asset: { id } }: { asset: Schemas["AssetDetails"] }) {
  const history = api.useQuery("get", "/alerts/history", { params: { query: { limit: LOOKED_THROUGH } } });
  return (
    <Answer of={history}>
      {({ items, nextCursor }) => {
        const own = items.filter((entry) => entry.items.some((item) => item.id === id));
        const shortened = items.some((entry) => entry.itemsTotal > entry.items.length);
        return (
          <>
            {own.length === 0 ? (
              <Text>None.</Text>
            ) : (
              <DataTable items={own} columns={COLUMNS} keyOf={(one) => one.id} label="Alerts that told of it" />
            )}
            {(nextCursor !== null || shortened) && (
              <Text>
                Looked for in the last {items.length} deliveries, in the first items of each:{" "}
                <Link href={createHref("/alerts")}>all that was told</Link>.
              </Text>
            )}
          </>
        );
      }}
    </Answer>
  );
}
