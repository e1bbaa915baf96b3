import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Exemptions } from "./exemptions.tsx";
import { Frameworks } from "./frameworks.tsx";
import { Violations } from "./violations.tsx";

/** Framework scores, violations with their remediation, and exemptions. */
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
