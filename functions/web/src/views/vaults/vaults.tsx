import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Subscriptions } from "./subscriptions.tsx";
import { VaultTable } from "./vault-table.tsx";

/** The Vaults page: subscriptions and vaults, with their access problems. */
export default function Vaults() {
  return (
    <View title="Vaults">
      <Card title="Subscriptions">
        <Subscriptions />
      </Card>
      <Card title="Vaults">
        <VaultTable />
      </Card>
    </View>
  );
}
