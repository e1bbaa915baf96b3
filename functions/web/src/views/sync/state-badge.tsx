import { Badge } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";

type State = Schemas["SyncRecord"]["state"];

/** States of a sync. `drifted`: another client changed the target, and the sync only reports it. */
export const STATES = {
  new: "Not synced yet",
  inSync: "In sync",
  pending: "Sync pending",
  drifted: "Target was changed",
  failing: "Failing",
  paused: "Disabled",
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

/**
 * Returns when the copy was last compared with the source. A run compares before it copies, so the time of a copy is later than that
 * of its comparison.
 */
export const lastComparedAt = ({
  lastCheckedAt,
  lastSyncedAt,
}: Pick<Schemas["SyncRecord"], "lastCheckedAt" | "lastSyncedAt">): string | null =>
  lastCheckedAt !== null && lastSyncedAt !== null && Date.parse(lastSyncedAt) > Date.parse(lastCheckedAt)
    ? lastSyncedAt
    : lastCheckedAt;
