import type * as z from "zod";
import type { Actor } from "../platform/http/endpoint.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { AccountView, EntraView, RefusedIdentity, UserView } from "./api.ts";
import { hasSecondFactor } from "./second-factor-record.ts";
import { REFUSALS, type RefusalRecord, type UserRecord, userId } from "./user.ts";

// Conversions of stored users to the form in API responses.

/** Converts the bearer of a token of Entra to the form in API responses. */
export const entraView = ({ username, role }: Actor): z.infer<typeof EntraView> => ({
  id: username,
  username,
  role,
  source: "entra",
});

/** The members of a user that the views need. */
export const VIEWED_MEMBERS = [
  "username",
  "email",
  "role",
  "source",
  "sso",
  "state",
  "mustChangePassword",
  "revision",
  "createdAt",
  "createdBy",
  "updatedAt",
  "lastSignInAt",
  "secondFactor",
] as const satisfies readonly (keyof UserRecord)[];
export type ViewedUser = Pick<UserRecord, (typeof VIEWED_MEMBERS)[number]>;

/** Converts a user to the form in API responses. */
export function userView(user: ViewedUser): UserView {
  return {
    id: userId(user),
    username: user.username,
    email: user.email ?? null,
    role: user.role,
    source: user.source ?? "local",
    state: user.state,
    mustChangePassword: user.mustChangePassword ?? false,
    createdAt: user.createdAt,
    createdBy: user.createdBy,
    updatedAt: user.updatedAt,
    lastSignInAt: user.lastSignInAt ?? null,
    etag: `"${user.revision}"`,
  };
}

/** Converts a user to the form that administrators see. */
export const accountView = (user: ViewedUser, lockedUntil: Date | undefined): AccountView => ({
  ...userView(user),
  sso: user.sso ?? null,
  lockedUntil: lockedUntil?.toISOString() ?? null,
  secondFactorEnrolled: hasSecondFactor(user),
});

/** Converts a blocked identity to the form in API responses. */
export const refusedIdentityView = (row: Row<RefusalRecord>): RefusedIdentity => ({
  id: row.rowKey.slice(REFUSALS.length),
  issuer: row.issuer,
  subject: row.subject,
  username: row.username,
  refusedAt: row.refusedAt,
  refusedBy: row.refusedBy,
});
