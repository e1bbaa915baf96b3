// Evaluates Azure role assignments in the simulated cloud, so that tests can run the service with only the roles of a
// deployment.

import type { IncomingRequest, Operation } from "./http.ts";
import { bearerToken } from "./tokens.ts";
import type { VaultStore } from "./vaults/vault-store.ts";

/** A role assignment: the actions that a role allows at a scope. */
export interface Assignment {
  /** ID of a subscription or a resource. */
  scope: string;
  /** Actions, with `*` as wildcard: https://learn.microsoft.com/azure/role-based-access-control/role-definitions */
  actions: readonly string[];
  dataActions: readonly string[];
}

/** IDs of the resources for mail and App Configuration. No subscription lists them. */
export const MAIL_RESOURCE = "/subscriptions/stand-in/providers/Microsoft.Communication/communicationServices/acme";
export const CONFIGURATION_RESOURCE =
  "/subscriptions/stand-in/providers/Microsoft.AppConfiguration/configurationStores/acme";

const SECRETS_PREFIX = "Microsoft.KeyVault/vaults/secrets";
const READ_KEYS = "Microsoft.KeyVault/vaults/keys/read";
const CERTIFICATES_PREFIX = "Microsoft.KeyVault/vaults/certificates";
const READ_CERTIFICATES = `${CERTIFICATES_PREFIX}/read`;

/**
 * The control-plane action that an operation requires: https://learn.microsoft.com/azure/role-based-access-control/permissions
 */
const ACTIONS: Record<string, string> = {
  "arm.getSubscription": "Microsoft.Resources/subscriptions/read",
  "arm.listLocations": "Microsoft.Resources/subscriptions/locations/read",
  "arm.listActivityLogAlerts": "Microsoft.Insights/activityLogAlerts/read",
  "arm.listKeys": "Microsoft.KeyVault/vaults/keys/read",
  "arm.listSecrets": "Microsoft.KeyVault/vaults/secrets/read",
  "arm.listVaults": "Microsoft.KeyVault/vaults/read",
  "arm.getVault": "Microsoft.KeyVault/vaults/read",
  "arm.diagnosticSettings": "Microsoft.Insights/diagnosticSettings/read",
  "mail.send": "Microsoft.Communication/CommunicationServices/write",
  "mail.getOperation": "Microsoft.Communication/CommunicationServices/read",
};
/** The data action that an operation requires. */
const DATA_ACTIONS: Record<string, string> = {
  "keyvault.listSecrets": `${SECRETS_PREFIX}/readMetadata/action`,
  "keyvault.listSecretVersions": `${SECRETS_PREFIX}/readMetadata/action`,
  "keyvault.getSecret": `${SECRETS_PREFIX}/getSecret/action`,
  "keyvault.setSecret": `${SECRETS_PREFIX}/setSecret/action`,
  "keyvault.updateSecret": `${SECRETS_PREFIX}/update/action`,
  "keyvault.deleteSecret": `${SECRETS_PREFIX}/delete`,
  "keyvault.recoverSecret": `${SECRETS_PREFIX}/recover/action`,
  "keyvault.purgeSecret": `${SECRETS_PREFIX}/purge/action`,
  "keyvault.listDeletedSecrets": `${SECRETS_PREFIX}/readMetadata/action`,
  "keyvault.getDeletedSecret": `${SECRETS_PREFIX}/readMetadata/action`,
  "keyvault.listKeys": READ_KEYS,
  "keyvault.listKeyVersions": READ_KEYS,
  "keyvault.getKey": READ_KEYS,
  "keyvault.getRotationPolicy": "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
  "keyvault.listCertificates": READ_CERTIFICATES,
  "keyvault.listCertificateVersions": READ_CERTIFICATES,
  "keyvault.getCertificate": READ_CERTIFICATES,
  "keyvault.getCertificatePolicy": READ_CERTIFICATES,
  "keyvault.createCertificate": `${CERTIFICATES_PREFIX}/create/action`,
  "keyvault.getCertificateOperation": READ_CERTIFICATES,
  "keyvault.updateCertificateOperation": `${CERTIFICATES_PREFIX}/update/action`,
  "keyvault.deleteCertificateOperation": `${CERTIFICATES_PREFIX}/update/action`,
  "keyvault.mergeCertificate": `${CERTIFICATES_PREFIX}/create/action`,
  "appconfiguration.list": "Microsoft.AppConfiguration/configurationStores/keyValues/read",
  "appconfiguration.get": "Microsoft.AppConfiguration/configurationStores/keyValues/read",
};

/** Returns the action that a role must allow for an operation of Azure Resource Manager. Undefined if none is required. */
export const actionOf = (operation: string): string | undefined => ACTIONS[operation];

/**
 * Evaluates role assignments. Until a test sets role assignments, only the company's declaration can deny access (`denied`).
 */
export class Authorization {
  readonly #resources: VaultStore;
  /** Undefined until a test sets role assignments. */
  #assignments: readonly Assignment[] | undefined;

  constructor(resources: VaultStore) {
    this.#resources = resources;
  }

  /** Sets the role assignments, which then apply to all tokens. Undefined removes them. */
  allowOnly(assignments: readonly Assignment[] | undefined): void {
    this.#assignments = assignments;
  }

  /**
   * Returns the service's own role assignments that apply to a subscription or to something in it. Until a test sets role
   * assignments, the service has every permission.
   */
  assignmentsIn(subscriptionId: string): readonly Assignment[] {
    const scope = `/subscriptions/${subscriptionId}`;
    const all = this.#assignments ?? [{ scope, actions: ["*"], dataActions: ["*"] }];
    return all.filter((one) => within(one.scope.toLowerCase(), scope.toLowerCase()));
  }

  /** Returns whether a subscription is listed: the caller has a role at the subscription or at a resource in it. */
  canSeeSubscription(subscriptionId: string): boolean {
    const scope = `/subscriptions/${subscriptionId}`.toLowerCase();
    return this.#assignments?.some((one) => within(one.scope.toLowerCase(), scope)) ?? true;
  }

  /** Whether role assignments are evaluated. */
  get restricted(): boolean {
    return this.#assignments !== undefined;
  }

  /** Returns whether a role allows an action on a resource. */
  allows(scope: string, action: string): boolean {
    const id = scope.toLowerCase();
    return (
      this.#assignments?.some((one) => within(id, one.scope.toLowerCase()) && includesAction(one.actions, action)) ??
      true
    );
  }

  /** Returns whether the roles deny a request. They apply to tokens only: an access key allows everything. */
  denies(request: IncomingRequest, operation: Operation): boolean {
    if (this.#assignments === undefined || operation.anonymous) return false;
    if (bearerToken(request.headers.authorization) === undefined) return false;
    const [action, dataAction] = [operation.action ?? actionOf(operation.name), DATA_ACTIONS[operation.name]];
    // Operations without an entry, such as the list of subscriptions, need no role.
    if (action === undefined && dataAction === undefined) return false;
    const scope = this.#scopeOf(operation).toLowerCase();
    return !this.#assignments.some(
      (one) =>
        within(scope, one.scope.toLowerCase()) &&
        (action === undefined ? includesAction(one.dataActions, dataAction!) : includesAction(one.actions, action)),
    );
  }

  /** Returns the ID of the resource that an operation concerns. */
  #scopeOf({ name, vault, subscription, resource }: Operation): string {
    if (resource !== undefined) return resource;
    if (name.startsWith("mail.")) return MAIL_RESOURCE;
    if (name.startsWith("appconfiguration.")) return CONFIGURATION_RESOURCE;
    const vaultRecord = vault === undefined ? undefined : this.#resources.vault(vault);
    return vaultRecord?.id ?? `/subscriptions/${subscription}`;
  }
}

/** Returns whether a scope is `outer` or below it. */
const within = (scope: string, outer: string): boolean => scope === outer || scope.startsWith(`${outer}/`);

/** Returns whether one of the granted actions, with `*` as wildcard, matches the action. */
function includesAction(granted: readonly string[], action: string): boolean {
  return granted.some((one) => {
    const pattern = one.split("*").map((part) => part.replace(/[.\\^$+?()[\]{}|]/g, "\\$&"));
    return new RegExp(`^${pattern.join(".*")}$`, "i").test(action);
  });
}
