import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type Change = NonNullable<Schemas["FeatureSetting"]["scopeChange"]>;

/** What a change of `watchAll` would take out of the inventory and bring back. */
export function ScopeChange({ of: change }: { of: Change | undefined }) {
  if (!change) return <Text>Nothing would change.</Text>;
  return (
    <>
      <Moved what="No longer watched" of={change.leaves} />
      <Moved what="Watched again" of={change.returns} />
      {change.warning && <Text block>{change.warning}</Text>}
    </>
  );
}

const Moved = ({ what, of: { subscriptions, vaults, assets, largest } }: { what: string; of: Change["leaves"] }) => (
  <>
    <Text block weight="semibold">
      {what}: {subscriptions.toLocaleString()} subscriptions, {vaults.toLocaleString()} vaults,{" "}
      {assets.toLocaleString()} assets
    </Text>
    <ul>
      {largest.map(({ subscriptionId, name, assets: held }) => (
        <li key={subscriptionId}>
          {name ?? subscriptionId}: {held.toLocaleString()} assets
        </li>
      ))}
    </ul>
  </>
);
