import { Badge } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type State = Schemas["SyncRecord"]["state"];

export const STATES = {
  new: "new",
  inSync: "the same",
  pending: "due",
  drifted: "changed there",
  failing: "failing",
  paused: "paused",
} as const satisfies Record<State, string>;

const COLORS = {
  new: "informative",
  inSync: "success",
  pending: "informative",
  drifted: "warning",
  failing: "danger",
  paused: "subtle",
} as const satisfies Record<State, string>;

/** How a copy is. */
export const StateBadge = ({ state }: { state: State }) => (
  <Badge appearance="tint" color={COLORS[state]}>
    {STATES[state]}
  </Badge>
);
