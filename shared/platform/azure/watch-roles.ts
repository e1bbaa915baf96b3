/**
 * Names of the custom roles that the infrastructure templates in infra/azure/watch create, for remedies of failures.
 * docs/permissions.md lists the role of each call. The built-in role Reader is not used, because it can read everything in the
 * subscription.
 */

/** Path of the template that creates the custom roles in one subscription and assigns them to the service's identity. */
export const WATCH_TEMPLATE = "infra/azure/watch/subscription.bicep";

/**
 * Role that can read subscriptions, key vaults and their diagnostic settings. In Azure, the role's name ends with the environment
 * and the scope.
 */
export const INVENTORY_ROLE = "Credential Lifecycle Inventory Reader";
/** Role that can read role assignments, and the resources that can use key vaults. */
const DEPENDENCY_ROLE = "Credential Lifecycle Dependency Reader";

/** Completes "Give the service's identity …". Does not contain the path of the template, because the page shows the text too. */
const grantOf = (role: string): string =>
  `the custom role ${role} on the subscription (the deployment template for monitored subscriptions creates and assigns it, see Permissions in the documentation)`;

/** Texts of `CallTarget.grant`: the role that a denied call needs. */
export const INVENTORY_READER = grantOf(INVENTORY_ROLE);
export const DEPENDENCY_READER = grantOf(DEPENDENCY_ROLE);
