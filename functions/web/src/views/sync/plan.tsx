import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type SyncPlan = Schemas["SyncPlan"];

/** Actions of a run. `report`: the sync only reports changes of the copy, as configured. */
const ACTIONS: Record<SyncPlan["action"], string> = {
  none: "No change. The target is up to date.",
  write: "Copies the source value to the target.",
  restore: "Makes the earlier target version with the source value the current version again.",
  report: "No change. The target differs from the source, which is only reported.",
  blocked: "The sync can't run now.",
};

/**
 * The plan of the next run, as the preview of "Sync now". `undelete`: the target secret is deleted and would be recovered.
 * `adopt`: the target secret was not created by this sync.
 */
export const Plan = ({ of: { action, reason, undelete, adopt, failure } }: { of: SyncPlan }) => (
  <>
    <Text block weight="semibold">
      {ACTIONS[action]}
    </Text>
    <Text block>{reason}</Text>
    {undelete && <Text block>Recovers the deleted target secret first.</Text>}
    {adopt && (
      <Text block>The target secret exists already and was not created by this sync. Its value is overwritten.</Text>
    )}
    {failure && (
      <Text block>
        {failure.message} {failure.remedy}
      </Text>
    )}
  </>
);
