import type { Schemas } from "../../api/client.ts";

export const STATE_COLORS = {
  new: "informative",
  discovering: "brand",
  discovered: "success",
  partial: "warning",
  failing: "danger",
} as const satisfies Record<Schemas["B2cTenant"]["state"], string>;
