import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { LapsedProData } from "../../parts/lapsed-pro-data.tsx";
import { View } from "../../parts/view.tsx";
import { Applications } from "./applications.tsx";
import { Rotations } from "./rotations.tsx";

/** Applications with their credentials, and the rotations of their secrets. */
export default function Rotation() {
  return (
    <View title="Rotation">
      <Card title="Applications">
        <FeatureGate
          operation="listApplications"
          description="Rotates application secrets and vault secrets: the service verifies the new secret and updates all consumers before it deletes the old one."
        >
          <Applications />
        </FeatureGate>
      </Card>
      <Card title="Rotations">
        <LapsedProData>
          <Rotations />
        </LapsedProData>
      </Card>
    </View>
  );
}
