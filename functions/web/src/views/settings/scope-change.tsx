import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type Change = NonNullable<Schemas["FeatureSetting"]["scopeChange"]>;

/** Preview of a change of `watchAll`: the assets that would leave the inventory or return to it. */
export function ScopeChange({ of: change }: { of: Change | undefined }) {
  if (!change) return <Text>No assets are affected.</Text>;
  return (
    <>
      <ScopePart title="No longer monitored" of={change.leaves} />
      <ScopePart title="Monitored again" of={change.returns} />
      {change.warning && <Text block>{change.warning}</Text>}
    </>
  );
}

const ScopePart = ({
  title,
  of: { subscriptions, vaults, assets, largest },
}: {
  title: string;
  of: Change["leaves"];
}) => (
  <>
    <Text block weight="semibold">
      {title}: {subscriptions.toLocaleString()} subscriptions, {vaults.toLocaleString()} vaults,{" "}
      {assets.toLocaleString()} assets
    </Text>
    <ul>
      {largest.map(({ subscriptionId, name, assets: count }) => (
        <li key={subscriptionId}>
          {name ?? subscriptionId}: {count.toLocaleString()} assets
        </li>
      ))}
    </ul>
  </>
);
