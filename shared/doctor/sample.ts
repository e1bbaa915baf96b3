import { readRow } from "../dependencies/azure/resource-rows.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ListedAsset, VaultClient } from "../platform/azure/key-vault.ts";
import { toQueryLiteral } from "../platform/azure/resource-graph.ts";
import type { VaultResource } from "../platform/azure/resource-manager.ts";
import { type Clients, type DoctorDeps, isStoreFailure } from "./clients.ts";
import type { Principal } from "./commands.ts";
import { type OwnRoles, ownRolesOrFailure, readOwnRoles } from "./own-roles.ts";

// The watched resources for which one check makes its calls. Each is read at most once in a check.

/**
 * Maximum number of watched subscriptions, of their vaults, of B2C tenants, and of the targets of a sync provider. With these, a
 * check sends about 150 requests.
 */
export const SAMPLE = { subscriptions: 3, vaults: 5, tenants: 3, targets: 3 };

export type Sample = ReturnType<typeof createSample>;

/** Creates the sample of one check. Sends no request before one of its functions is called. */
export function createSample(deps: DoctorDeps, clients: Clients, signal: AbortSignal) {
  const memo = createMemo();

  /** Returns the service's identity. Undefined if the service can't sign in. */
  const principal = () =>
    memo("principal", async (): Promise<Principal | undefined> => {
      const { objectId, credentialType } = await deps.identity.describe();
      return objectId === undefined
        ? undefined
        : { objectId, type: credentialType === "developerSignIn" ? "User" : "ServicePrincipal" };
    }).catch(undefinedAfterFailure);

  /** Returns the subscriptions that the identity can list. */
  const listed = () => memo("subscriptions", () => clients.resourceManager.subscriptions(signal));

  /**
   * Returns the sampled subscriptions and the number of watched ones. A list that can't be read is reported by its own call.
   */
  const subscriptions = () =>
    memo("watched subscriptions", async () => {
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

  /** Runs `work` with a client of the vault, and closes the client. */
  async function withVault<T>(vault: VaultResource, work: (client: VaultClient) => Promise<T>): Promise<T> {
    const client = clients.keyVaults.open(vault);
    try {
      return await work(client);
    } finally {
      await client.close();
    }
  }

  /** Returns the identity's roles in a subscription, or why they can't be read. Undefined if the service can't sign in. */
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

  return { memo, principal, listed, subscriptions, vaultsOf, vaults, firstOf, withVault, rolesIn, resourceOf };
}

/**
 * Returns a function that runs the work of a key once, and returns its result for each further call with the key. A failure is
 * shared too, so that each request is sent once.
 */
function createMemo() {
  const results = new Map<string, Promise<unknown>>();
  return <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const known = results.get(key) ?? work();
    results.set(key, known);
    return known as Promise<T>;
  };
}

/** Turns a failure of the cloud into undefined: `.catch(undefinedAfterFailure)`. The check of the failed call reports it. */
export function undefinedAfterFailure(error: unknown): undefined {
  if (!(error instanceof CloudFailure)) throw error;
  return undefined;
}

/** Returns the first page of a list. Requests no further page. */
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
