import { connectedCalls } from "./calls/connected.ts";
import { graphCalls } from "./calls/graph.ts";
import { optionCalls } from "./calls/options.ts";
import { ownCalls } from "./calls/own.ts";
import { watchedCalls } from "./calls/watched.ts";
import type { OutgoingCall } from "./outgoing-call.ts";

/**
 * Every outgoing call of the service: the feature that needs it, the permission, where it is documented, and how to check it. A
 * test compares docs/permissions.md and docs/permissions-options.md with this table.
 */
export const CALLS: readonly OutgoingCall[] = [
  ...ownCalls,
  ...watchedCalls,
  ...optionCalls,
  ...graphCalls,
  ...connectedCalls,
];
