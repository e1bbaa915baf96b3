import { Link, Text } from "@fluentui/react-components";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { View } from "../../parts/view.tsx";
import { CredentialTable } from "./credential-table.tsx";
import { Discover } from "./discover.tsx";

/** The Credentials page: client secrets of applications, keys of Azure resources and database logins in one list. */
export default function Credentials() {
  return (
    <View title="Credentials">
      <FeatureGate
        operation="listRotationCredentials"
        description="Lists client secrets of applications, and the keys of Azure resources and database logins that vault secrets store, with the state of their rotation."
      >
        <Card title="Find credentials">
          <Text>
            Finds the vault secrets that store keys of Azure resources. Client secrets are read with{" "}
            <Link href={createHref("/rotation")}>Refresh applications on the Rotation page</Link>.
          </Text>
          <Discover />
        </Card>
        <Card title="Credentials">
          <CredentialTable />
        </Card>
      </FeatureGate>
    </View>
  );
}
