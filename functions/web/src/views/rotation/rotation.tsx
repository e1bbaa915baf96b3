import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { LapsedProData } from "../../parts/lapsed-pro-data.tsx";
import { View } from "../../parts/view.tsx";
import { Applications } from "./applications.tsx";
import { Rotations } from "./rotations.tsx";

/** The Rotation page: the applications with their credentials, and all rotations, which stay readable without a license. */
export default function Rotation() {
  return (
    <View title="Rotation">
      <Card title="Applications of Microsoft Entra">
        <FeatureGate
          operation="listApplications"
          description="Replaces client secrets of applications and secrets in key vaults. The old client secret is deleted only after all known consumers use the new one."
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
