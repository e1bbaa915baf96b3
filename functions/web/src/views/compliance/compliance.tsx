import { Link, Text } from "@fluentui/react-components";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Exemptions } from "./exemptions.tsx";
import { Frameworks } from "./frameworks.tsx";
import { Violations } from "./violations.tsx";

/** The Compliance page: framework scores, violations with their remediation, and exemptions. */
export default function Compliance() {
  return (
    <View title="Compliance">
      <Card title="Frameworks">
        <Text>
          A framework is a published standard with controls. Expand a framework to see the result of each control.
        </Text>
        <Frameworks />
      </Card>
      <Card title="Violations">
        <Violations />
      </Card>
      <Card title="Certificates">
        <Text>
          Public certificates may be valid for ever fewer days, so they are renewed more often.{" "}
          <Link href={createHref("/compliance/readiness", {})}>Show which certificates are ready</Link>
        </Text>
      </Card>
      <Card title="Exemptions">
        <Exemptions />
      </Card>
    </View>
  );
}
