import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { DELIVERY_STATUSES, RECIPIENT_STATUSES } from "../../parts/notification-texts.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Item } from "./item.tsx";

type Recipient = Schemas["AlertRecipient"];

/** One notification with its recipients and items. Links in mails and chat messages open this view. */
export default function OneEntry() {
  const { entryId = "" } = useParams();
  const entry = api.useQuery("get", "/alerts/history/{entry_id}", { params: { path: { entry_id: entryId } } });
  return (
    <QueryResult of={entry}>
      {({ ruleId, ruleName, test, status, createdAt, recipients, items }) => (
        <View title={ruleName}>
          <Text>
            {DELIVERY_STATUSES[status]}, created <Instant at={createdAt} relative />.{" "}
            <Link href={createHref("/alerts", {})}>All alerts</Link>
          </Text>
          <Card title="Recipients">
            <ul>
              {recipients.map((one) => (
                <li key={`${one.recipient} ${one.owner} ${one.reason}`}>
                  <Outcome {...one} />
                </li>
              ))}
            </ul>
          </Card>
          <Card title="Items">
            {!test && (
              <div>
                <Operate
                  operation="acknowledgeAlerts"
                  title="Acknowledge all"
                  action="Acknowledge"
                  submit={async (form, acknowledge) => {
                    const body = { ruleId, historyId: entryId, ...given({ note: typed(form, "note") }) };
                    const { acknowledged } = await acknowledge({ body });
                    return `${acknowledged.toLocaleString()} acknowledged. Items that are already resolved are not counted.`;
                  }}
                >
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

function Outcome({ recipient, status, owner, reason, error, itemsTotal, notBefore, waitsFor }: Recipient) {
  return (
    <>
      {recipient}: {RECIPIENT_STATUSES[status]}, {itemsTotal.toLocaleString()} items.{" "}
      {owner && `Owner in the tags: ${owner}.`} {reason && `Not sent to an owner: ${reason}.`} {error} {waitsFor}{" "}
      {notBefore && (
        <>
          Delayed until <Instant at={notBefore} />.
        </>
      )}
    </>
  );
}
