import type { Schemas } from "../../api/client.ts";

type State = Schemas["B2cTenant"]["state"];

type TenantType = NonNullable<Schemas["B2cTenant"]["tenantType"]>;

export const TENANT_TYPES = {
  b2c: "Azure AD B2C",
  external: "External ID",
  workforce: "Workforce",
} as const satisfies Record<TenantType, string>;

/** How much of the tenant the last refresh read. It says nothing about the expiry of its credentials. */
export const STATES = {
  new: "Not read yet",
  discovering: "Refresh in progress",
  discovered: "All credentials read",
  partial: "Some credentials not read",
  failing: "Can't be read",
} as const satisfies Record<State, string>;

export const STATE_COLORS = {
  new: "informative",
  discovering: "brand",
  // Not green: credentials that were read can have expired.
  discovered: "informative",
  partial: "warning",
  failing: "danger",
} as const satisfies Record<State, string>;
