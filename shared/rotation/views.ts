import type * as z from "zod";
import { entityTag } from "../platform/http/conditional-requests.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Policy } from "./policies-api.ts";
import type { PolicyRecord } from "./policy.ts";

/** Returns a stored policy as the API shows it. */
export const policyView = (row: Row<PolicyRecord>): z.infer<typeof Policy> => ({
  appId: row.appId,
  automatic: row.automatic,
  expiryDays: row.expiryDays ?? null,
  overlapDays: row.overlapDays,
  updateKeyVaults: row.updateKeyVaults,
  targets: row.targets,
  maintenanceWindow: row.maintenanceWindow ?? null,
  state: row.attention ? "needsAttention" : "active",
  attention: row.attention ?? null,
  updatedAt: row.updatedAt,
  updatedBy: row.updatedBy,
  etag: entityTag(row),
});
