import { randomUUID } from "node:crypto";
import type { Row } from "./kql.ts";
import type { ArmOptions } from "./request-context.ts";
import type { ArmResource, Properties } from "./resource-store.ts";
import { roleAssignmentResource } from "./role-assignments.ts";
import { vaultResource } from "./vault-resource.ts";

/** Returns the rows of a table for these subscriptions. Without `subscriptions`: for all that the caller can see. */
type Source = (options: ArmOptions, subscriptions: readonly string[] | undefined) => Generator<Row>;

/** The tables of Resource Graph by name. Each contains only the rows that the caller may read. */
export const TABLES: Record<string, Source | undefined> = {
  *resources(options, wanted) {
    for (const subscription of visibleSubscriptions(options, wanted)) {
      for (const name of options.resources.subscriptions.get(subscription)!.vaults) yield* vaultRow(options, name);
      for (const { type, read } of options.store.resourcesIn(subscription)) {
        if (type.graph) yield* resourceRow(options, subscription, type.type, read);
      }
      yield* userIdentityRows(options, subscription);
    }
  },
  *resourcechanges(options, wanted) {
    const visible = new Set(visibleSubscriptions(options, wanted));
    const until = visibleUntil(options);
    for (const [index, change] of options.store.changes.entries()) {
      if (!visible.has(change.subscriptionId) || change.at > until) continue;
      if (!options.authorization.allows(change.id, `${change.type}/read`)) continue;
      const name = `${change.at.toFixed(0)}_${index}`;
      yield {
        id: `${change.id}/providers/Microsoft.Resources/changes/${name}`,
        name,
        type: "microsoft.resources/changes",
        tenantId: options.store.tenantId,
        kind: "",
        location: "",
        resourceGroup: change.id.split("/")[4]!.toLowerCase(),
        subscriptionId: change.subscriptionId,
        properties: {
          targetResourceId: change.id,
          targetResourceType: change.type,
          changeType: change.changeType,
          changeAttributes: {
            timestamp: new Date(change.at).toISOString(),
            changesCount: 1,
            correlationId: randomUUID(),
          },
          changes: {},
        },
      };
    }
  },
  *authorizationresources(options, wanted) {
    const visible = new Set(visibleSubscriptions(options, wanted));
    for (const assignment of options.store.access.assignments) {
      const [, first, subscriptionId = ""] = assignment.scope.split("/");
      // An assignment at a management group has no subscription. Every query returns it.
      const isManagementGroup = first !== "subscriptions";
      if (isManagementGroup ? visible.size === 0 : !visible.has(subscriptionId)) continue;
      if (!options.authorization.allows(assignment.scope, "Microsoft.Authorization/roleAssignments/read")) continue;
      yield {
        ...roleAssignmentResource(assignment),
        type: "microsoft.authorization/roleassignments",
        tenantId: options.store.tenantId,
        subscriptionId: isManagementGroup ? "" : subscriptionId,
      };
    }
  },
};

/** Returns the subscriptions whose resources the caller may read. Denied subscriptions are skipped without an error. */
function visibleSubscriptions(
  { resources, authorization }: ArmOptions,
  wanted: readonly string[] | undefined,
): string[] {
  return [...resources.subscriptions.values()]
    .filter(
      ({ id, declared }) => !declared.denied && authorization.canSeeSubscription(id) && (wanted?.includes(id) ?? true),
    )
    .map(({ id }) => id);
}

function* vaultRow(options: ArmOptions, name: string): Generator<Row> {
  const vault = options.resources.vault(name)!;
  if (!options.authorization.allows(vault.id, "Microsoft.KeyVault/vaults/read")) return;
  const readers = options.store.access.readersOf(vault);
  yield {
    ...(vaultResource(vault, options.store.tenantId, options.vaultUri(vault), readers) as Row),
    type: "microsoft.keyvault/vaults",
    tenantId: options.store.tenantId,
    subscriptionId: vault.subscriptionId,
    resourceGroup: vault.id.split("/")[4]!.toLowerCase(),
  };
}

const USER_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities";

/** Returns the user-assigned identities of the company's resources. Only identities that a resource names exist. */
function* userIdentityRows({ store, authorization }: ArmOptions, subscriptionId: string): Generator<Row> {
  const identities = [...store.all()].flatMap(({ identity }) => Object.entries(identity?.userAssignedIdentities ?? {}));
  for (const [id, { principalId, clientId }] of new Map(identities)) {
    if (id.split("/")[2]!.toLowerCase() !== subscriptionId || !authorization.allows(id, `${USER_IDENTITY}/read`))
      continue;
    yield {
      id,
      name: id.split("/").at(-1),
      type: USER_IDENTITY.toLowerCase(),
      tenantId: store.tenantId,
      subscriptionId,
      resourceGroup: id.split("/")[4]!.toLowerCase(),
      properties: { tenantId: store.tenantId, principalId, clientId },
    };
  }
}

/**
 * Creates a row whose columns are computed on first access, because queries read only some rows of many. Type and subscription
 * are available at once.
 */
function* resourceRow(
  options: ArmOptions,
  subscriptionId: string,
  type: string,
  read: () => ArmResource,
): Generator<Row> {
  const { authorization } = options;
  if (authorization.restricted && !authorization.allows(read().id, `${type}/read`)) return;
  let columns: Properties | undefined;
  const row = () => (columns ??= laggedRow(options, read()));
  // With a lag, new resources are not visible yet. Only stored resources can be new.
  if (options.consumers.graphSettings.lagSeconds > 0 && Object.keys(row()).length === 0) return;
  const cheapColumns: Row = { type: type.toLowerCase(), subscriptionId };
  yield new Proxy(cheapColumns, {
    get: (_, name: string) => (name in cheapColumns ? cheapColumns[name] : row()[name]),
    has: (_, name) => name in row(),
    ownKeys: () => Object.keys(row()),
    getOwnPropertyDescriptor: (_, name: string) => ({ value: row()[name], enumerable: true, configurable: true }),
  });
}

/** Returns the simulated time up to which Resource Graph shows changes. */
const visibleUntil = ({ consumers }: ArmOptions): number => consumers.now() - consumers.graphSettings.lagSeconds * 1000;

/**
 * Returns the row that Resource Graph shows with the configured lag. Empty if the resource did not exist then. Earlier states
 * are ordered from oldest to newest, so the first that was still valid at the time applies.
 */
function laggedRow(options: ArmOptions, resource: ArmResource): Properties {
  const until = visibleUntil(options);
  return resource.earlierStates.find((one) => one.until > until)?.toGraphRow ?? options.store.toGraphRow(resource);
}
