import type { B2c } from "../b2c/b2c.ts";
import { readRow } from "../dependencies/azure/resource-rows.ts";
import type { Devops } from "../devops/devops.ts";
import { createApiManagement } from "../platform/azure/api-management.ts";
import type { AppConfiguration } from "../platform/azure/app-configuration.ts";
import { createAppConfigurationReferences } from "../platform/azure/app-configuration-references.ts";
import { createAppService } from "../platform/azure/app-service.ts";
import { createArm } from "../platform/azure/arm.ts";
import type { CallLimits } from "../platform/azure/calls.ts";
import { createContainerApps } from "../platform/azure/container-apps.ts";
import { createDataFactory } from "../platform/azure/data-factory.ts";
import { asCloudFailure, CloudFailure } from "../platform/azure/failure.ts";
import { createFrontDoor } from "../platform/azure/front-door.ts";
import { createGraph, type GraphApplication } from "../platform/azure/graph.ts";
import type { Identity } from "../platform/azure/identity.ts";
import { createKeyVaults, type ListedAsset, type VaultClient } from "../platform/azure/key-vault.ts";
import { createLogAnalytics } from "../platform/azure/log-analytics.ts";
import type { MailSender } from "../platform/azure/mail.ts";
import { createResourceGraph, toQueryLiteral } from "../platform/azure/resource-graph.ts";
import { createResourceManager, type VaultResource } from "../platform/azure/resource-manager.ts";
import { createRoleAssignments, readAssignmentRecord } from "../platform/azure/role-assignments.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { createSql } from "../platform/azure/sql.ts";
import { createVaultSecrets } from "../platform/azure/vault-secrets.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { StorageConnection } from "../platform/storage/connection.ts";
import { isUnclear, SigningKeysMissing } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { SyncFailure } from "../sync/providers/provider.ts";
import type { Sync } from "../sync/sync.ts";
import type { Principal } from "./commands.ts";
import { type Action, type OwnRoles, ownRolesOrFailure, readOwnRoles } from "./own-roles.ts";
import { type Added, notProven, type Result } from "./result.ts";

/** The modules whose calls the doctor makes. */
export interface DoctorDeps {
  config: Config;
  identity: Identity;
  log: Logger;
  clock: Clock;
  licensed(): Promise<boolean>;
  /** The subscriptions to watch: `named`, and with `all` every one that the identity can see. */
  watched(): Promise<{ all: boolean; named: readonly string[] }>;
  /** How the storage account is reached. */
  connection: StorageConnection;
  /** One read of a table, and of a queue. */
  readTable(): Promise<unknown>;
  readQueue(): Promise<unknown>;
  serviceKeyVault: ServiceKeyVault | undefined;
  appConfiguration: AppConfiguration | undefined;
  mail: MailSender | undefined;
  devops: Devops;
  b2c: B2c;
  sync: Pick<Sync, "configurations">;
  /** The delivery methods of the alert rules, such as `webhook`. */
  alertChannels(): Promise<ReadonlySet<string>>;
  /** Whether single sign-on is configured. */
  ssoConfigured(): Promise<boolean>;
}

/** Number of watched subscriptions, of their vaults, and of B2C tenants, whose calls are made. */
export const SAMPLE = { subscriptions: 3, vaults: 5, tenants: 3 };

/** Time limit of a check. The platform requires a response within 230 seconds. */
export const CHECK_TIMEOUT_MS = 120 * SECOND_MS;

/** A call is sent once more if there was no response, and not again after a response that tells the service to wait. */
const LIMITS: Partial<CallLimits> = {
  throttledTries: 1,
  concurrencyTries: 1,
  unreachableTries: 2,
  requestTimeoutMs: 15 * SECOND_MS,
};

/** One check: the sampled resources, each read once, and the helpers with which calls report what they found. */
export type Doctor = ReturnType<typeof createContext>;

/** Creates the context of one check. Sends no request. */
export function createContext(deps: DoctorDeps, caller: Caller) {
  const services = { ...deps, limits: LIMITS };
  const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS);
  const arm = createArm(services);
  const clients = {
    resourceManager: createResourceManager(services),
    keyVaults: createKeyVaults(services),
    vaultSecrets: createVaultSecrets(services),
    resourceGraph: createResourceGraph(arm),
    roles: createRoleAssignments(arm),
    readAssignment: (id: string) => readAssignmentRecord(arm, id),
    graph: createGraph(services),
    logAnalytics: createLogAnalytics(services),
    appService: createAppService(arm),
    apiManagement: createApiManagement(arm),
    frontDoor: createFrontDoor(arm),
    dataFactory: createDataFactory(arm),
    sql: createSql(arm),
    containerApps: createContainerApps(arm),
    appConfigurationReferences: createAppConfigurationReferences(services),
  };
  const memo = createMemo();

  const principal = () =>
    memo("principal", async (): Promise<Principal | undefined> => {
      const { objectId, credentialType } = await deps.identity.describe();
      return objectId === undefined
        ? undefined
        : { objectId, type: credentialType === "developerSignIn" ? "User" : "ServicePrincipal" };
    }).catch(undefinedAfterFailure);

  const listed = () => memo("subscriptions", () => clients.resourceManager.subscriptions(signal));

  /** Returns the sampled subscriptions and the number of watched ones. A list that can't be read is reported by its own call. */
  const subscriptions = () =>
    memo("sample", async () => {
      // If the service can't read its own tables, the check continues with what the environment names.
      const { all, named } = await deps.watched().catch((error: unknown) => {
        if (!isStoreFailure(error)) throw error;
        return { all: true, named: deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase()) };
      });
      const seen = all ? ((await listed().catch(undefinedAfterFailure))?.subscriptions ?? []) : [];
      const ids = [...new Set([...named, ...seen.map(({ subscriptionId }) => subscriptionId.toLowerCase())])].sort();
      return { checked: spread(ids, SAMPLE.subscriptions), total: ids.length };
    });

  /** Returns the first page of a subscription's vaults. */
  const vaultsOf = (subscriptionId: string) =>
    memo(`vaults ${subscriptionId}`, async () => {
      const page = await firstPage(clients.resourceManager.vaults(subscriptionId, signal));
      return page?.vaults ?? [];
    });

  /** Returns the sampled vaults, spread over the sampled subscriptions, and the number of vaults that were seen. */
  const vaults = () =>
    memo("vaults", async () => {
      const found: VaultResource[] = [];
      for (const id of (await subscriptions()).checked)
        found.push(...((await vaultsOf(id).catch(undefinedAfterFailure)) ?? []));
      return { checked: spread(found, SAMPLE.vaults), total: found.length };
    });

  /** Returns the first page of one of a vault's lists. */
  const firstOf = (kind: "secrets" | "keys" | "certificates", vault: VaultResource) =>
    memo(`${kind} ${vault.id}`, () =>
      withVault(vault, (client) => firstPage(client[kind](signal) as AsyncGenerator<ListedAsset[]>)),
    );

  async function withVault<T>(vault: VaultResource, work: (client: VaultClient) => Promise<T>): Promise<T> {
    const client = clients.keyVaults.open(vault);
    try {
      return await work(client);
    } finally {
      await client.close();
    }
  }

  /** Returns the identity's roles in a subscription, or why they can't be read. */
  const rolesIn = (subscriptionId: string) =>
    memo(`roles ${subscriptionId}`, async (): Promise<OwnRoles | CloudFailure | undefined> => {
      const objectId = (await principal())?.objectId;
      if (objectId === undefined) return undefined;
      return await ownRolesOrFailure(readOwnRoles(clients.roles, { subscriptionId, objectId, signal }));
    });

  /** Returns one resource of a type in the sampled subscriptions. Undefined if there is none, or none that can be read. */
  const resourceOf = (type: string) =>
    memo(`resource ${type}`, async () => {
      const { checked } = await subscriptions();
      if (checked.length === 0) return undefined;
      const query = `resources
| where type =~ ${toQueryLiteral(type)}
| project id, type, properties
| order by id asc
| limit 1`;
      const page = await firstPage(clients.resourceGraph.query(query, checked, signal));
      return page?.flatMap((row) => readRow(row) ?? [])[0];
    });

  /**
   * Makes a call and reports how it went.
   *
   * @param commandFor - The command of the fix if the identity lacks the permission.
   */
  async function attempt(
    resource: string,
    work: () => Promise<Added>,
    commandFor?: () => string | undefined,
  ): Promise<Result> {
    try {
      return { outcome: "works", resource, ...(await work()) };
    } catch (error) {
      return resultOf(error, resource, signal.aborted, commandFor);
    }
  }

  /** As `attempt`, for one resource of a type. Without such a resource, the identity's roles decide. */
  async function onResource(
    type: string,
    actions: readonly string[],
    work: (id: string, properties: unknown) => Promise<unknown>,
    commandFor: (subscriptionId: string) => string,
  ): Promise<Result[]> {
    const found = await resourceOf(type).catch(undefinedAfterFailure);
    if (!found) return await inSubscriptions(actions, commandFor);
    const subscriptionId = found.id.split("/")[2] ?? "";
    const one = async () => void (await work(found.id, found.properties));
    return [await attempt(found.id, one, () => commandFor(subscriptionId))];
  }

  /** Reports for each sampled subscription whether the identity's roles permit these actions in all of it. */
  async function inSubscriptions(
    actions: readonly string[],
    commandFor: (subscriptionId: string) => string,
  ): Promise<Result[]> {
    const { checked } = await subscriptions();
    if (checked.length === 0) return [notProven("the subscriptions", NO_SUBSCRIPTION)];
    return await Promise.all(
      checked.map(async (id): Promise<Result> => {
        const resource = `subscription ${id}`;
        const roles = await rolesIn(id);
        if (roles === undefined || roles instanceof CloudFailure) return notProven(resource, rolesUnknown(roles));
        const missing = actions.filter((action) => !roles.permit({ action }));
        if (missing.length === 0) return { outcome: "works", resource, detail: "A role of the identity permits it." };
        return {
          outcome: "permissionMissing",
          resource,
          detail: `No role of the identity permits ${missing.join(", ")} in the subscription.`,
          command: commandFor(id),
        };
      }),
    );
  }

  /**
   * Reports where the identity's roles permit an action. Used for writes, which a check must not try.
   *
   * @param on - `name`: only on the resource of this name. `except`: not on the resource of this name.
   */
  async function whereHeld(
    action: Action,
    { name, except }: { name?: string | undefined; except?: string | undefined },
    command: string,
  ): Promise<Result[]> {
    const { checked } = await subscriptions();
    const resource = name ?? "the sampled subscriptions";
    const found: string[] = [];
    let unknown: Result | undefined = checked.length === 0 ? notProven(resource, NO_SUBSCRIPTION) : undefined;
    for (const id of checked) {
      const roles = await rolesIn(id);
      if (roles === undefined || roles instanceof CloudFailure) unknown ??= notProven(resource, rolesUnknown(roles));
      else found.push(...roles.scopesWith(action));
    }
    const isNamed = (scope: string, one: string) => scope.endsWith(`/${one.toLowerCase()}`);
    const scopes = [...new Set(found)].filter(
      (scope) => (name === undefined || isNamed(scope, name)) && (except === undefined || !isNamed(scope, except)),
    );
    if (scopes.length > 0) {
      const more = scopes.length > 3 ? ` and ${scopes.length - 3} more` : "";
      return [{ outcome: "works", resource, detail: `Permitted in ${scopes.slice(0, 3).join(", ")}${more}.` }];
    }
    if (unknown) return [unknown];
    // The resource of this name can be in a subscription whose roles were not read.
    if (name !== undefined)
      return [notProven(resource, "A check does not write, and the resource is in none of the sampled subscriptions.")];
    const missing = Object.values(action)[0];
    return [
      {
        outcome: "permissionMissing",
        resource,
        detail: `No role of the identity permits ${missing} anywhere in these subscriptions.`,
        command,
      },
    ];
  }

  return {
    deps,
    config: deps.config,
    caller,
    signal,
    clients,
    principal,
    listed,
    subscriptions,
    vaultsOf,
    vaults,
    firstOf,
    withVault,
    rolesIn,
    resourceOf,
    attempt,
    onResource,
    inSubscriptions,
    whereHeld,
    licensed: () => memo("licensed", () => deps.licensed()),
    /** Returns the first page of applications, with their owners. */
    applications: () =>
      memo(
        "applications",
        async (): Promise<GraphApplication[]> => (await firstPage(clients.graph.applications(signal))) ?? [],
      ),
    /** Returns the application permissions of Microsoft Graph in the identity's token. */
    graphPermissions: () =>
      memo("graphPermissions", async () => (await clients.graph.grantedPermissions()).permissions),
    devopsTest: () => memo("devops", () => deps.devops.test()),
    alertChannels: () => memo("alertChannels", () => deps.alertChannels()),
    /** Tests the connection of some registered tenants. Each test is recorded in the audit log, as one that a person starts. */
    tenantTests: () =>
      memo("tenants", async () => {
        const { items } = await deps.b2c.list({ limit: SAMPLE.tenants, offset: 0, cursor: undefined });
        return await Promise.all(
          items.map(async ({ row: { tenantId, tenantDomain } }) => {
            return { domain: tenantDomain, checks: (await deps.b2c.test(tenantId, caller)).checks };
          }),
        );
      }),
  };
}

const NO_SUBSCRIPTION = "No subscription can be seen.";

const rolesUnknown = (failure: CloudFailure | undefined): string =>
  failure
    ? `The identity's roles can't be read: ${failure.message}`
    : "The service could not sign in, so its roles are unknown.";

/** Returns whether the service's own tables could not be read, or were read without the key that verifies their rows. */
export const isStoreFailure = (error: unknown): error is Error =>
  error instanceof Problem ||
  error instanceof CloudFailure ||
  error instanceof SigningKeysMissing ||
  (error instanceof Error && (error.name === "RestError" || isUnclear(error)));

/** Returns a function that shares the result of each piece of work, also a failure, so that each request is sent once. */
function createMemo() {
  const results = new Map<string, Promise<unknown>>();
  return <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const known = results.get(key) ?? work();
    results.set(key, known);
    return known as Promise<T>;
  };
}

function undefinedAfterFailure(error: unknown): undefined {
  if (!(error instanceof CloudFailure)) throw error;
  return undefined;
}

export async function firstPage<T>(pages: AsyncGenerator<T>): Promise<T | undefined> {
  const first = await pages.next();
  await pages.return(undefined);
  return first.done ? undefined : first.value;
}

/** Returns `count` of the items, evenly spread. */
function spread<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  return Array.from({ length: count }, (_, index) => items[Math.floor((index * items.length) / count)]!);
}

const UNREACHABLE = new Set(["unreachable", "firewall", "timedOut", "foreignHost"]);

/** Returns what a failed call means. Errors of this program are thrown. */
export function resultOf(
  error: unknown,
  resource: string,
  isLate = false,
  commandFor?: () => string | undefined,
): Result {
  if (error instanceof SyncFailure) {
    const outcome =
      error.code === "accessDenied" ? "permissionMissing" : error.code === "unreachable" ? "unreachable" : "failed";
    return { outcome, resource, detail: error.message, remedy: error.remedy };
  }
  const failure = asCloudFailure(error, { operation: "make the call", resource });
  if (failure.code === "timedOut" && isLate)
    return notProven(resource, `The check ended after ${CHECK_TIMEOUT_MS / SECOND_MS} seconds.`);
  const { message: detail, remedy } = failure;
  if (failure.code === "accessDenied") {
    const command = commandFor?.();
    return { outcome: "permissionMissing", resource, detail, remedy, ...(command !== undefined && { command }) };
  }
  return { outcome: UNREACHABLE.has(failure.code) ? "unreachable" : "failed", resource, detail, remedy };
}
