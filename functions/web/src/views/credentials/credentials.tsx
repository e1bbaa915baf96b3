import { Link, Text } from "@fluentui/react-components";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { MATCH_MEANING } from "../../parts/rotation-texts.ts";
import { View } from "../../parts/view.tsx";
import { CredentialTable } from "./credential-table.tsx";

/** The Credentials page: client secrets of applications, keys of Azure resources and database logins in one list. */
export default function Credentials() {
  return (
    <View title="Credentials">
      <FeatureGate
        operation="listRotationCredentials"
        description="Lists client secrets of applications, and the keys of Azure resources and database logins that vault secrets store, with the state of their rotation."
      >
        <Card title="Client secrets, keys and database logins">
          <Text>
            Client secrets of applications, keys of Azure resources that vault secrets store, and registered logins of
            databases. Find credentials finds the keys. To read client secrets again, select{" "}
            <Link href={createHref("/rotation")}>Refresh applications</Link> on the Rotation page.
          </Text>
          <Text>{MATCH_MEANING}</Text>
          <CredentialTable />
        </Card>
      </FeatureGate>
    </View>
  );
}
