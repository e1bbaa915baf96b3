import type { Role } from "../../api/access.ts";

export const ROLES = ["user", "auditor", "operator", "admin"] as const satisfies Role[];

/** What each may, in a few words. */
export const ROLE_WORDS: Record<Role, string> = {
  user: "user: reads",
  auditor: "auditor: reads, the audit log too",
  operator: "operator: reads, scans, snoozes, exempts",
  admin: "admin: everything",
};
