import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { METHODS } from "../../parts/notification-texts.ts";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Item, itemTitle } from "./item.tsx";
import { Preview } from "./preview.tsx";
import { filtersText, frequencyOf, hasThresholds, TYPES } from "./rule-texts.ts";

/** The page of one alert rule: its settings as text, a preview of its next notification, and its open alerts. */
export default function OneRule() {
  const { ruleId = "" } = useParams();
  const params = { path: { rule_id: ruleId } };
  const rule = api.useQuery("get", "/alerts/rules/{rule_id}", { params });
  const preview = api.useQuery("get", "/alerts/rules/{rule_id}/preview", { params });
  return (
    <QueryResult of={rule}>
      {(data) => (
        <View title={data.name}>
          <Text>
            {TYPES[data.alertType]}
            {hasThresholds(data.alertType) && `, ${data.thresholds.join(", ")} days before expiry`}. {filterOf(data)}
            Sent by {METHODS[data.deliveryMethod]} to {data.recipients.join(", ") || data.webhookHost},{" "}
            {frequencyOf(data)}. {escalationOf(data)} {data.enabled ? "" : "This rule is disabled. "}
            <Link href={createHref("/alerts")}>All alerts</Link>
          </Text>
          <Card title="Preview of the next notification">
            <QueryResult of={preview}>{(previewData) => <Preview of={previewData} />}</QueryResult>
          </Card>
          <Card title="Open alerts">
            <Open ruleId={ruleId} />
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

/** Returns the filters of a rule as a sentence. Empty without filters. */
const filterOf = ({ filters }: Schemas["AlertRule"]): string => {
  const text = filtersText(filters);
  return text === "" ? "" : `Only for ${text}. `;
};

/** Returns the escalation of a rule as a sentence: to the recipients of another rule (`ruleId`) or to addresses. */
function escalationOf({ escalation }: Schemas["AlertRule"]): string {
  if (escalation === null) return "";
  const to = escalation.ruleId === null ? escalation.recipients.join(", ") : "the recipients of another rule";
  return `Alerts without acknowledgment are escalated after ${counted(escalation.afterDays, "day")} to ${to}.`;
}

/** The table of open alerts: items that the rule notified about, and whose problem is not resolved. */
function Open({ ruleId }: { ruleId: string }) {
  const params = { path: { rule_id: ruleId }, query: { limit: 100 } };
  const list = api.useInfiniteQuery("get", "/alerts/rules/{rule_id}/open", { params }, BY_CURSOR);
  const columns: Column<Schemas["OpenAlert"]>[] = [
    { title: "Alert", cell: ({ item }) => <Item item={item} /> },
    { title: "First notified", cell: ({ since }) => <Instant at={since} relative /> },
    { title: "Last notified", cell: ({ toldAt }) => <Instant at={toldAt} relative /> },
    {
      title: "Acknowledged",
      cell: ({ acknowledgement }) =>
        acknowledgement && (
          <>
            by {acknowledgement.acknowledgedBy} <Instant at={acknowledgement.acknowledgedAt} relative />
            {acknowledgement.note && `: ${acknowledgement.note}`}
          </>
        ),
    },
    { title: "", cell: (alert) => <Acknowledge ruleId={ruleId} alert={alert} /> },
  ];
  const total = list.data?.pages[0]?.total;
  return (
    <>
      {total !== undefined && total !== null && total > 0 && (
        <Text>
          {counted(total, "open alert")}, the earliest expiry first. Acknowledge tells other users that you take care of
          an alert, and stops its escalation until you remove the acknowledgment. The alert stays open until its problem
          is resolved.
        </Text>
      )}
      <PagedTable
        of={list}
        columns={columns}
        keyOf={({ item: { kind, id } }) => `${kind} ${id}`}
        label="Open alerts"
        empty="No open alerts. All problems that this rule notified about are resolved."
      />
    </>
  );
}

/** The button that acknowledges an open alert, or removes the acknowledgment. */
function Acknowledge({ ruleId, alert: { item, acknowledgement } }: { ruleId: string; alert: Schemas["OpenAlert"] }) {
  if (acknowledgement)
    return (
      <Operate
        operation="deleteAlertAcknowledgement"
        title="Remove acknowledgment"
        about={itemTitle(item)}
        action="Remove acknowledgment"
        submit={(_, remove) => remove({ params: { path: { acknowledgement_id: acknowledgement.id } } })}
      >
        <Text>
          The alert counts as not acknowledged again. If the rule has an escalation, the alert can be escalated.
        </Text>
      </Operate>
    );
  return (
    <Operate
      operation="acknowledgeAlerts"
      title="Acknowledge"
      about={itemTitle(item)}
      action="Acknowledge"
      submit={(form, acknowledge) =>
        acknowledge({ body: { ruleId, itemId: item.id, ...withoutEmpty({ note: fieldText(form, "note") }) } })
      }
    >
      <Text>The alert is not escalated. Other users see that you take care of the alert.</Text>
      <TextField name="note" label="Note" hint="Example: Anna is working on it" />
    </Operate>
  );
}
