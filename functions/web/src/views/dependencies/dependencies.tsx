import { Text } from "@fluentui/react-components";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { View } from "../../parts/view.tsx";
import { Coverage } from "./coverage.tsx";
import { DependencyTable } from "./dependency-table.tsx";

/** The Dependencies page: the consumers of each asset, and the scopes that discovery could not read. */
export default function Dependencies() {
  return (
    <View title="Dependencies">
      <FeatureGate
        operation="listDependencies"
        description="Shows the resources that use each secret, key and certificate, and the effect of a rotation on each of them."
      >
        <Card title="Consumers">
          <Text>
            A consumer is a resource, user, group or application that uses a secret, key or certificate, or that may
            read it. The list shows what happens to each consumer when the asset gets a new version.
          </Text>
          <DependencyTable />
        </Card>
        <Card title="Could not be searched for consumers">
          <Coverage />
        </Card>
      </FeatureGate>
    </View>
  );
}
