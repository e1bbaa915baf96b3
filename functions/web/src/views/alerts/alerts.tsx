import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { History } from "./history.tsx";
import { Owners } from "./owners.tsx";
import { Rules } from "./rules.tsx";
import { Snoozes } from "./snoozes.tsx";

/** The Alerts page: alert rules, sent notifications, snoozes, and the address table of owners. */
export default function Alerts() {
  return (
    <View title="Alerts">
      <Card title="Alert rules">
        <Rules />
      </Card>
      <Card title="Sent notifications">
        <History />
      </Card>
      <Card title="Snoozes">
        <Snoozes />
      </Card>
      <Card title="Owners and their email addresses">
        <Owners />
      </Card>
    </View>
  );
}
