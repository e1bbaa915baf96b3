import { Card } from "../../parts/card.tsx";
import { Kept } from "../../parts/kept.tsx";
import { Offered } from "../../parts/offered.tsx";
import { View } from "../../parts/view.tsx";
import { Applications } from "./applications.tsx";
import { Rotations } from "./rotations.tsx";

/** What applications sign in with, and how their secrets are replaced. */
export default function Rotation() {
  return (
    <View title="Rotation">
      <Card title="Applications">
        <Offered
          operation="listApplications"
          what="Secrets of applications and of key vaults are replaced step by step: the new one is proven and given to everybody who uses it before the old one goes."
        >
          <Applications />
        </Offered>
      </Card>
      <Card title="Rotations">
        <Kept>
          <Rotations />
        </Kept>
      </Card>
    </View>
  );
}
