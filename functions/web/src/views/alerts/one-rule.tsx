import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Item } from "./item.tsx";
import { Preview } from "./preview.tsx";
import { filtersText, hasThresholds, METHODS, sent, TYPES } from "./rule-words.ts";

/** One rule: what it would tell, and what it has told that has not ended. */
export default function OneRule() {
  const { ruleId = "" } = useParams();
  const params = { path: { rule_id: ruleId } };
  const rule = api.useQuery("get", "/alerts/rules/{rule_id}", { params });
  const preview = api.useQuery("get", "/alerts/rules/{rule_id}/preview", { params });
  return (
    <Answer of={rule}>
      {(data) => (
        <View title={data.name}>
          <Text>
            {TYPES[data.alertType]}
            {hasThresholds(data.alertType) && `, ${data.thresholds.join(", ")} days before`}. {confinedTo(data)}
            By {METHODS[data.deliveryMethod]} {data.recipients.join(", ") || data.webhookHost}, {sent(data)}.{" "}
            {escalated(data)} {data.enabled ? "" : "It is switched off. "}
            <Link href={createHref("/alerts", {})}>To the alerts</Link>
          </Text>
          <Card title="What it would tell now">
            <Answer of={preview}>{(found) => <Preview of={found} />}</Answer>
          </Card>
          <Card title="Told and not ended">
            <Open ruleId={ruleId} />
          </Card>
        </View>
      )}
    </Answer>
  );
}

const confinedTo = ({ filters }: Schemas["AlertRule"]): string => {
  const text = filtersText(filters);
  return text === "" ? "" : `Only ${text}. `;
};

function escalated({ escalation }: Schemas["AlertRule"]): string {
  if (escalation === null) return "";
  const to = escalation.ruleId === null ? escalation.recipients.join(", ") : "as another rule tells";
  return `What nobody acknowledges goes after ${escalation.afterDays} days to ${to}.`;
}

function Open({ ruleId }: { ruleId: string }) {
  const params = { path: { rule_id: ruleId }, query: { limit: 100 } };
  const list = api.useInfiniteQuery("get", "/alerts/rules/{rule_id}/open", { params }, BY_CURSOR);
  const columns: Column<Schemas["OpenAlert"]>[] = [
    { title: "What", cell: ({ item }) => <Item item={item} /> },
    { title: "Told first", cell: ({ since }) => <Instant at={since} relative /> },
    { title: "Told last", cell: ({ toldAt }) => <Instant at={toldAt} relative /> },
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
  return (
    <PagedTable
      of={list}
      columns={columns}
      keyOf={({ item: { kind, id } }) => `${kind} ${id}`}
      label="Told and not ended"
      none="Nothing that it told is open."
    />
  );
}

function Acknowledge({ ruleId, alert: { item, acknowledgement } }: { ruleId: string; alert: Schemas["OpenAlert"] }) {
  if (acknowledgement)
    return (
      <Operate
        operation="deleteAlertAcknowledgement"
        title="Take back"
        about={item.id}
        action="Take back"
        appearance="transparent"
        submit={(_, remove) => remove({ params: { path: { acknowledgement_id: acknowledgement.id } } })}
      >
        <Text>It is escalated again if the rule escalates.</Text>
      </Operate>
    );
  return (
    <Operate
      operation="acknowledgeAlerts"
      title="Acknowledge"
      about={item.id}
      action="Acknowledge"
      appearance="transparent"
      submit={(form, acknowledge) =>
        acknowledge({ body: { ruleId, itemId: item.id, ...given({ note: typed(form, "note") }) } })
      }
    >
      <TextField name="note" label="Note" hint="Such as who is at it" />
    </Operate>
  );
}
