import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type SyncPlan = Schemas["SyncPlan"];

const ACTIONS: Record<SyncPlan["action"], string> = {
  none: "No change. The target is up to date.",
  write: "Writes the secret's value to the target.",
  restore: "Makes the version with this value current again in the target.",
  report: "No change. The difference is reported.",
  blocked: "The sync can't run.",
};

/** The plan of the next run. */
export const Plan = ({ of: { action, reason, undelete, adopt, failure } }: { of: SyncPlan }) => (
  <>
    <Text block weight="semibold">
      {ACTIONS[action]}
    </Text>
    <Text block>{reason}</Text>
    {undelete && <Text block>The deleted target secret is recovered first.</Text>}
    {adopt && <Text block>The target secret was not created by this service. Its value is overwritten.</Text>}
    {failure && (
      <Text block>
        {failure.message} {failure.remedy}
      </Text>
    )}
  </>
);
