import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { History } from "./history.tsx";
import { Owners } from "./owners.tsx";
import { Rules } from "./rules.tsx";
import { Snoozes } from "./snoozes.tsx";

/** Who is told of what, what was told, and what is silenced. */
export default function Alerts() {
  return (
    <View title="Alerts">
      <Card title="Rules">
        <Rules />
      </Card>
      <Card title="History">
        <History />
      </Card>
      <Card title="Snoozes">
        <Snoozes />
      </Card>
      <Card title="Owners">
        <Owners />
      </Card>
    </View>
  );
}
