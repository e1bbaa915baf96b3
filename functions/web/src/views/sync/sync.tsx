import { Card } from "../../parts/card.tsx";
import { Kept } from "../../parts/kept.tsx";
import { Offered } from "../../parts/offered.tsx";
import { View } from "../../parts/view.tsx";
import { NewRecord } from "./new-record.tsx";
import { Providers } from "./providers.tsx";
import { Records } from "./records.tsx";

/** Copies of vault secrets in other stores. */
export default function Sync() {
  return (
    <View title="Sync">
      <Card title="Copies">
        <Offered
          operation="createSyncRecord"
          isQuiet
          what="Secrets of your key vaults are copied to AWS, other key vaults, HashiCorp Vault, Google Cloud, GitHub Actions and Kubernetes, and kept the same."
        >
          <NewRecord />
        </Offered>
        <Kept>
          <Records />
        </Kept>
      </Card>
      <Card title="Providers">
        <Offered
          operation="listSyncProviders"
          what="The stores that secrets are copied to, and how the service signs in there."
        >
          <Providers />
        </Offered>
      </Card>
    </View>
  );
}
