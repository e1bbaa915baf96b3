import { Badge } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type State = Schemas["SyncRecord"]["state"];

export const STATES = {
  new: "New",
  inSync: "In sync",
  pending: "Pending",
  drifted: "Drifted",
  failing: "Failing",
  paused: "Paused",
} as const satisfies Record<State, string>;

const COLORS = {
  new: "informative",
  inSync: "success",
  pending: "informative",
  drifted: "warning",
  failing: "danger",
  paused: "subtle",
} as const satisfies Record<State, string>;

/** The status of a sync record. */
export const StateBadge = ({ state }: { state: State }) => (
  <Badge appearance="tint" color={COLORS[state]}>
    {STATES[state]}
  </Badge>
);
