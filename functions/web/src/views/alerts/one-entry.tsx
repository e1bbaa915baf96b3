import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Item } from "./item.tsx";

type Recipient = Schemas["AlertRecipient"];

/** One message of the history, with all it tells: where the links of mails and cards lead. */
export default function OneEntry() {
  const { entryId = "" } = useParams();
  const entry = api.useQuery("get", "/alerts/history/{entry_id}", { params: { path: { entry_id: entryId } } });
  return (
    <Answer of={entry}>
      {({ ruleId, ruleName, test, status, createdAt, recipients, items }) => (
        <View title={ruleName}>
          <Text>
            {status}, made <Instant at={createdAt} relative />.{" "}
            <Link href={createHref("/alerts", {})}>To the alerts</Link>
          </Text>
          <Card title="To whom">
            <ul>
              {recipients.map((one) => (
                <li key={`${one.recipient} ${one.owner} ${one.reason}`}>
                  <Outcome {...one} />
                </li>
              ))}
            </ul>
          </Card>
          <Card title="What it tells">
            {!test && (
              <div>
                <Operate
                  operation="acknowledgeAlerts"
                  title="Acknowledge all of it"
                  action="Acknowledge"
                  submit={async (form, acknowledge) => {
                    const body = { ruleId, historyId: entryId, ...given({ note: typed(form, "note") }) };
                    const { acknowledged } = await acknowledge({ body });
                    return `${acknowledged.toLocaleString()} acknowledged. What has ended is not counted.`;
                  }}
                >
                  <TextField name="note" label="Note" hint="Such as who is at it" />
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
    </Answer>
  );
}

function Outcome({ recipient, status, owner, reason, error, itemsTotal, notBefore, waitsFor }: Recipient) {
  return (
    <>
      {recipient}: {status}, {itemsTotal.toLocaleString()} of the items. {owner && `A tag names the owner ${owner}.`}{" "}
      {reason && `Not told to an owner: ${reason}.`} {error} {waitsFor}{" "}
      {notBefore && (
        <>
          It waits until <Instant at={notBefore} />.
        </>
      )}
    </>
  );
}
