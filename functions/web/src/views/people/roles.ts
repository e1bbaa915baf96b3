import type { Role } from "../../api/access.ts";

export const ROLES = ["user", "auditor", "operator", "admin"] as const satisfies Role[];

/** Each role with its permissions. */
export const ROLE_TEXTS: Record<Role, string> = {
  user: "User: read access",
  auditor: "Auditor: read access, including the audit log",
  operator: "Operator: read access, starting scans and syncs, canceling rotations, snoozes and exemptions",
  admin: "Admin: full access",
};
