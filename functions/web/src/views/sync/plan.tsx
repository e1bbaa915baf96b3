import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type SyncPlan = Schemas["SyncPlan"];

const ACTIONS: Record<SyncPlan["action"], string> = {
  none: "Nothing would be written.",
  write: "The secret's value would be written.",
  restore: "The version that holds the value would be made current again.",
  report: "Nothing would be written, and the difference told of.",
  blocked: "It can't be done as things are.",
};

/** What a run would do. */
export const Plan = ({ of: { action, reason, undelete, adopt, failure } }: { of: SyncPlan }) => (
  <>
    <Text block weight="semibold">
      {ACTIONS[action]}
    </Text>
    <Text block>{reason}</Text>
    {undelete && <Text block>What is deleted there would be brought back first.</Text>}
    {adopt && <Text block>What is there is not ours and would be taken over: its value is overwritten.</Text>}
    {failure && (
      <Text block>
        {failure.message} {failure.remedy}
      </Text>
    )}
  </>
);
