import { Card } from "../../parts/card.tsx";
import { View } from "../../parts/view.tsx";
import { Subscriptions } from "./subscriptions.tsx";
import { VaultTable } from "./vault-table.tsx";

/** Subscriptions and vaults, with their access problems. */
export default function Vaults() {
  return (
    <View title="Vaults and subscriptions">
      <Card title="Subscriptions">
        <Subscriptions />
      </Card>
      <Card title="Vaults">
        <VaultTable />
      </Card>
    </View>
  );
}
