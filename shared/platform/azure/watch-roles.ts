/**
 * The custom roles of the watch templates, as remedies name them. docs/permissions.md says which call takes which role, and why
 * the built-in role Reader is none of them: it may read everything in the subscription.
 */

/** Creates the custom roles in one subscription and assigns them to the service's identity. */
export const WATCH_TEMPLATE = "infra/azure/watch/subscription.bicep";
/** The same in Terraform. */
const WATCH_MODULE = "infra/terraform/watch";

/** Reads subscriptions, key vaults and their diagnostic settings. In Azure its name ends with the environment and the scope. */
export const INVENTORY_ROLE = "Credential Lifecycle Inventory Reader";
/** Reads the resources that may use key vaults, and role assignments. */
const DEPENDENCY_ROLE = "Credential Lifecycle Dependency Reader";

/** Completes "Give the service's identity …". */
const grantOf = (role: string): string =>
  `the custom role ${role} on the subscription: deploy ${WATCH_TEMPLATE} there, or ${WATCH_MODULE} with Terraform (docs/permissions.md)`;

export const INVENTORY_READER = grantOf(INVENTORY_ROLE);
export const DEPENDENCY_READER = grantOf(DEPENDENCY_ROLE);
