import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Exemptions } from "./exemptions.tsx";
import { Frameworks } from "./frameworks.tsx";
import { Violations } from "./violations.tsx";

/** What is not as it should be, why it matters, and what mends it. */
export default function Compliance() {
  return (
    <View title="Compliance">
      <Card title="Frameworks">
        <Frameworks />
      </Card>
      <Card title="Violations">
        <Violations />
      </Card>
      <Card title="Exemptions">
        <Exemptions />
      </Card>
    </View>
  );
}
