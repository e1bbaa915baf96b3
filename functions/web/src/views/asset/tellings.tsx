import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";

const LOOKED_THROUGH = 200;

const columnsOf = (assetId: string): Column<Schemas["AlertHistoryEntry"]>[] => [
  { title: "When", cell: ({ createdAt }) => <Instant at={createdAt} /> },
  { title: "Rule", cell: ({ id, ruleName }) => <Link href={createHref(`/alerts/history/${id}`)}>{ruleName}</Link> },
  { title: "By", cell: ({ deliveryMethod }) => deliveryMethod },
  { title: "State", cell: ({ status, error }) => `${status} ${error ?? ""}` },
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
        <Text>The rule says nothing of this asset until then, but that it was renewed or has gone.</Text>
        <SnoozeFields />
      </Operate>
    ),
  },
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
              <DataTable items={own} columns={columnsOf(id)} keyOf={(one) => one.id} label="Alerts that told of it" />
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
