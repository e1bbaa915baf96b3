import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { counted } from "../../parts/plural.ts";

type Change = NonNullable<Schemas["FeatureSetting"]["scopeChange"]>;

/**
 * Preview of a change of the setting `watchAll` (Monitor all subscriptions): the assets that would leave the inventory or
 * return to it. Shown in the form of this setting and in the forms that reset settings.
 */
export function ScopeChange({ of: change }: { of: Change | undefined }) {
  if (!change) return <Text>No assets leave the inventory or return to it.</Text>;
  return (
    <>
      <ScopePart title="No longer monitored" of={change.leaves} />
      <ScopePart title="Monitored again" of={change.returns} />
      {change.warning && <Text block>{change.warning}</Text>}
    </>
  );
}

/** One direction of the change, with its totals and the subscriptions that contain the most assets. */
const ScopePart = ({
  title,
  of: { subscriptions, vaults, assets, largest },
}: {
  title: string;
  of: Change["leaves"];
}) => (
  <>
    <Text block weight="semibold">
      {title}: {counted(subscriptions, "subscription")}, {counted(vaults, "vault")}, {counted(assets, "asset")}
    </Text>
    <ul>
      {largest.map(({ subscriptionId, name, assets: count }) => (
        <li key={subscriptionId}>
          {name ?? subscriptionId}: {counted(count, "asset")}
        </li>
      ))}
    </ul>
  </>
);
