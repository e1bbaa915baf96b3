import { Link, Text } from "@fluentui/react-components";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { View } from "../../parts/view.tsx";
import { CredentialTable } from "./credential-table.tsx";

/** The Credentials page: client secrets of applications and keys of Azure resources in one list. */
export default function Credentials() {
  return (
    <View title="Credentials">
      <FeatureGate
        operation="listRotationCredentials"
        description="Lists client secrets of applications and the keys of Azure resources that vault secrets store, with the state of their rotation."
      >
        <Card title="Client secrets and keys">
          <Text>
            Client secrets of applications, and keys of Azure resources that vault secrets store. Find credentials finds
            the keys. To read client secrets again, select{" "}
            <Link href={createHref("/rotation")}>Refresh applications</Link> on the Rotation page.
          </Text>
          <CredentialTable />
        </Card>
      </FeatureGate>
    </View>
  );
}
