import type { Schemas } from "../../api/client.ts";

type State = Schemas["B2cTenant"]["state"];

export const STATES = {
  new: "New",
  discovering: "Refreshing",
  discovered: "Up to date",
  partial: "Partially read",
  failing: "Failing",
} as const satisfies Record<State, string>;

export const STATE_COLORS = {
  new: "informative",
  discovering: "brand",
  discovered: "success",
  partial: "warning",
  failing: "danger",
} as const satisfies Record<State, string>;
