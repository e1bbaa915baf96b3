import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { View } from "../../parts/view.tsx";
import { Coverage } from "./coverage.tsx";
import { DependencyTable } from "./dependency-table.tsx";
import { Discover } from "./discover.tsx";

/** The Dependencies page: the consumers of each asset, and the scopes that discovery could not read. */
export default function Dependencies() {
  return (
    <View title="Dependencies">
      <FeatureGate
        operation="listDependencies"
        description="Shows the resources that use each secret, key and certificate, and the effect of a rotation on each of them."
      >
        <Card title="Consumers">
          <Discover />
          <DependencyTable />
        </Card>
        <Card title="Could not be searched for consumers">
          <Coverage />
        </Card>
      </FeatureGate>
    </View>
  );
}
