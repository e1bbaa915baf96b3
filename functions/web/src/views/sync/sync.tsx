import { Text } from "@fluentui/react-components";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { LapsedProData } from "../../parts/lapsed-pro-data.tsx";
import { View } from "../../parts/view.tsx";
import { NewRecord } from "./new-record.tsx";
import { Providers } from "./providers.tsx";
import { Records } from "./records.tsx";

/** The Sync page: the syncs of vault secrets to other secret stores, and the providers of these stores. */
export default function Sync() {
  return (
    <View title="Sync">
      <Card title="Copies of key vault secrets">
        <Text>A sync copies one key vault secret to another secret store, and keeps the copy up to date.</Text>
        <FeatureGate
          operation="createSyncRecord"
          isQuiet
          description="Syncs secrets from your key vaults to AWS, other key vaults, HashiCorp Vault, Google Cloud, GitHub Actions and Kubernetes."
        >
          <NewRecord />
        </FeatureGate>
        <LapsedProData>
          <Records />
        </LapsedProData>
      </Card>
      <Card title="Target providers">
        <FeatureGate
          operation="listSyncProviders"
          description="Configures the credentials for the secret stores that the service syncs to."
        >
          <Providers />
        </FeatureGate>
      </Card>
    </View>
  );
}
