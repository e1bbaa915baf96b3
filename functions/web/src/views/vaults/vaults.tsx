import { Link, Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { gapsText, useCoverage } from "../../parts/status-queries.ts";
import { View } from "../../parts/view.tsx";
import { Subscriptions } from "./subscriptions.tsx";
import { VaultTable } from "./vault-table.tsx";

/** The Vaults page: subscriptions and vaults, with their access problems. */
export default function Vaults() {
  const mayCheck = useMay()("checkPermissions");
  // The response that the navigation has already read.
  const { data: coverage } = useCoverage({ staleTime: 300_000 });
  return (
    <View title="Vaults">
      {coverage && !coverage.complete && (
        <Text>
          {gapsText(coverage.gapsTotal)} <Link href={createHref("/")}>Show the gaps on the Overview page</Link>
        </Text>
      )}
      {mayCheck && (
        <Text>
          To see each missing permission and the command that grants it,{" "}
          <Link href={createHref("/permissions")}>check all permissions</Link>.
        </Text>
      )}
      <Card title="Subscriptions">
        <Subscriptions />
      </Card>
      <Card title="Vaults">
        <VaultTable />
      </Card>
    </View>
  );
}
