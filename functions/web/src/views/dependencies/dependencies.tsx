import { Card } from "../../parts/card.tsx";
import { Offered } from "../../parts/offered.tsx";
import { View } from "../../parts/view.tsx";
import { Coverage } from "./coverage.tsx";
import { Discover } from "./discover.tsx";
import { Uses } from "./uses.tsx";

/** Who uses which asset, and what could not be looked into. */
export default function Dependencies() {
  return (
    <View title="Dependencies">
      <Offered
        operation="listDependencies"
        what="Who uses which secret, key and certificate, what a rotation would do to each, and what could not be looked into."
      >
        <Card title="Who uses what">
          <Discover />
          <Uses />
        </Card>
        <Card title="What could not be looked into">
          <Coverage />
        </Card>
      </Offered>
    </View>
  );
}
