import type { Incoming, Operation } from "./http.ts";
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

/** IDs of the two resources that no subscription lists. */
export const MAIL_RESOURCE = "/subscriptions/stand-in/providers/Microsoft.Communication/communicationServices/acme";
export const CONFIGURATION_RESOURCE =
  "/subscriptions/stand-in/providers/Microsoft.AppConfiguration/configurationStores/acme";

const SECRETS = "Microsoft.KeyVault/vaults/secrets";
const [KEYS, CERTIFICATES] = ["Microsoft.KeyVault/vaults/keys/read", "Microsoft.KeyVault/vaults/certificates/read"];

/** The required action of each operation: https://learn.microsoft.com/azure/role-based-access-control/permissions */
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
const DATA_ACTIONS: Record<string, string> = {
  "keyvault.listSecrets": `${SECRETS}/readMetadata/action`,
  "keyvault.listSecretVersions": `${SECRETS}/readMetadata/action`,
  "keyvault.getSecret": `${SECRETS}/getSecret/action`,
  "keyvault.setSecret": `${SECRETS}/setSecret/action`,
  "keyvault.updateSecret": `${SECRETS}/update/action`,
  "keyvault.deleteSecret": `${SECRETS}/delete`,
  "keyvault.recoverSecret": `${SECRETS}/recover/action`,
  "keyvault.purgeSecret": `${SECRETS}/purge/action`,
  "keyvault.listDeletedSecrets": `${SECRETS}/readMetadata/action`,
  "keyvault.getDeletedSecret": `${SECRETS}/readMetadata/action`,
  "keyvault.listKeys": KEYS,
  "keyvault.listKeyVersions": KEYS,
  "keyvault.getKey": KEYS,
  "keyvault.getRotationPolicy": "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
  "keyvault.listCertificates": CERTIFICATES,
  "keyvault.listCertificateVersions": CERTIFICATES,
  "keyvault.getCertificate": CERTIFICATES,
  "keyvault.getCertificatePolicy": CERTIFICATES,
  "appconfiguration.list": "Microsoft.AppConfiguration/configurationStores/keyValues/read",
  "appconfiguration.get": "Microsoft.AppConfiguration/configurationStores/keyValues/read",
};

/** Returns the action that a role must allow for an operation of Azure Resource Manager. Undefined if none is required. */
export const actionOf = (operation: string): string | undefined => ACTIONS[operation];

/**
 * Evaluates role assignments. Until role assignments are set, everything is allowed that the company's declaration does not
 * deny.
 */
export class Authorization {
  readonly #resources: VaultStore;
  #assignments: readonly Assignment[] | undefined;

  constructor(resources: VaultStore) {
    this.#resources = resources;
  }

  allowOnly(assignments: readonly Assignment[] | undefined): void {
    this.#assignments = assignments;
  }

  /** Returns whether a subscription appears in the list: the caller has a role at the subscription or at something in it. */
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
    return this.#assignments?.some((one) => within(id, one.scope.toLowerCase()) && allows(one.actions, action)) ?? true;
  }

  /** Role assignments apply to tokens only. An access key allows everything. */
  refuses(request: Incoming, operation: Operation): boolean {
    if (this.#assignments === undefined || operation.anonymous) return false;
    if (bearerToken(request.headers.authorization) === undefined) return false;
    const [action, dataAction] = [operation.action ?? actionOf(operation.name), DATA_ACTIONS[operation.name]];
    if (action === undefined && dataAction === undefined) return false;
    const scope = this.#scopeOf(operation).toLowerCase();
    return !this.#assignments.some(
      (one) =>
        within(scope, one.scope.toLowerCase()) &&
        (action === undefined ? allows(one.dataActions, dataAction!) : allows(one.actions, action)),
    );
  }

  #scopeOf({ name, vault, subscription, resource }: Operation): string {
    if (resource !== undefined) return resource;
    if (name.startsWith("mail.")) return MAIL_RESOURCE;
    if (name.startsWith("appconfiguration.")) return CONFIGURATION_RESOURCE;
    const found = vault === undefined ? undefined : this.#resources.vault(vault);
    return found?.id ?? `/subscriptions/${subscription}`;
  }
}

const within = (scope: string, outer: string): boolean => scope === outer || scope.startsWith(`${outer}/`);

function allows(granted: readonly string[], action: string): boolean {
  return granted.some((one) => {
    const pattern = one.split("*").map((part) => part.replace(/[.\\^$+?()[\]{}|]/g, "\\$&"));
    return new RegExp(`^${pattern.join(".*")}$`, "i").test(action);
  });
}
