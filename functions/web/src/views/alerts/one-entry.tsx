import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { DELIVERY_STATUSES, RECIPIENT_STATUSES } from "../../parts/notification-texts.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Item } from "./item.tsx";

type Recipient = Schemas["AlertRecipient"];

/** The page of one notification with its recipients and items. Links in mails and chat messages open this page. */
export default function OneEntry() {
  const { entryId = "" } = useParams();
  const entry = api.useQuery("get", "/alerts/history/{entry_id}", { params: { path: { entry_id: entryId } } });
  return (
    <QueryResult of={entry}>
      {({ ruleId, ruleName, test, status, createdAt, recipients, items }) => (
        <View title={`Notification of rule ${isolated(ruleName)}`}>
          <Text>
            {DELIVERY_STATUSES[status]}, created <Instant at={createdAt} relative />.{" "}
            <Link href={createHref("/alerts")}>All alerts</Link>
          </Text>
          {status === "inDoubt" && <Held entryId={entryId} />}
          <Card title="Recipients">
            <ul>
              {recipients.map((recipient) => (
                <li key={`${recipient.recipient} ${recipient.owner} ${recipient.reason}`}>
                  <Outcome {...recipient} />
                </li>
              ))}
            </ul>
          </Card>
          <Card title="Alerts">
            {/* A test notification contains example alerts, which can't be acknowledged. */}
            {!test && (
              <div>
                <Operate
                  operation="acknowledgeAlerts"
                  title="Acknowledge all"
                  action="Acknowledge all"
                  submit={async (form, acknowledge) => {
                    const body = { ruleId, historyId: entryId, ...withoutEmpty({ note: fieldText(form, "note") }) };
                    const { acknowledged } = await acknowledge({ body });
                    return `${acknowledged.toLocaleString()} acknowledged. Alerts that are already resolved are not counted.`;
                  }}
                >
                  <Text>
                    The alerts of this notification are not escalated. Other users see that you take care of them.
                  </Text>
                  <TextField name="note" label="Note" hint="Example: Anna is working on it" />
                </Operate>
              </div>
            )}
            <ul>
              {items.map((item) => (
                <li key={`${item.kind} ${item.id}`}>
                  <Item item={item} />
                </li>
              ))}
            </ul>
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

/** The buttons that decide on a notification that a restore of the tables holds. */
function Held({ entryId }: { entryId: string }) {
  const params = { path: { entry_id: entryId } };
  return (
    <div>
      <Text block>
        The tables were restored from a backup. The service may have sent this notification before, so it waits for your
        decision.
      </Text>
      <Operate
        operation="sendHeldAlert"
        title="Send notification"
        action="Send notification"
        submit={(_, send) => send({ params })}
      >
        <Text>The recipients get the notification again if the service sent it before the restore.</Text>
      </Operate>
      <Operate
        operation="dropHeldAlert"
        title="Drop notification"
        action="Drop notification"
        submit={(_, drop) => drop({ params })}
      >
        <Text>The notification is not sent. You can't undo this.</Text>
      </Operate>
    </div>
  );
}

/** The outcome of the notification to one recipient. `waitsFor`: why a mail rate limit delays it. */
function Outcome({ recipient, status, owner, reason, error, itemsTotal, notBefore, waitsFor }: Recipient) {
  return (
    <>
      {recipient}: {RECIPIENT_STATUSES[status]}, {counted(itemsTotal, "alert")}.{" "}
      {owner && `Owner according to the owner tag: ${owner}.`} {reason && `Not sent to an owner: ${reason}.`} {error}{" "}
      {waitsFor}{" "}
      {notBefore && (
        <>
          Delayed until <Instant at={notBefore} />.
        </>
      )}
    </>
  );
}
