import pMap from "p-map";
import type { CloudFailure } from "../platform/azure/failure.ts";
import type { RoleAssignments } from "../platform/azure/role-assignments.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { ENGINES } from "../rotation/database-logins/engines.ts";
import { KEY_KINDS } from "../rotation/resource-keys/kinds.ts";
import { type OwnRoles, ownRolesOrFailure, readOwnRoles } from "./own-roles.ts";

/** What the service's identity may do with the keys, or the servers of logins, of one kind. */
interface KindPermissions {
  /** Scopes at which roles permit all actions of the kind, in lower case. Scopes inside of them are left out. */
  scopes: string[];
  /** Actions that no role permits at the scope with the most actions. Empty if `scopes` has an entry. */
  missing: string[];
}

export interface KeyPermissions {
  /** By name of the kind. */
  kinds: Map<string, KindPermissions>;
  /** Sentences about subscriptions whose role assignments could not be read. */
  coverage: string[];
}

/** https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling */
const SUBSCRIPTIONS_AT_ONCE = 4;
const TIMEOUT_MS = MINUTE_MS;

/**
 * Reads which keys of Azure resources the service's roles permit it to rotate now, and which database servers to read. Makes one request for each monitored
 * subscription, and one for each role.
 */
export async function readKeyPermissions(deps: {
  roles: RoleAssignments;
  /** Returns the monitored subscriptions. @throws {CloudFailure} */
  units(): Promise<string[]>;
  ownObjectId(): Promise<string | undefined>;
}): Promise<KeyPermissions> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const objectId = await deps.ownObjectId();
  if (objectId === undefined)
    return summarize([], ["The service's token names no identity, so its roles are unknown."]);
  const read = await pMap(
    await deps.units(),
    async (subscriptionId) => ({
      subscriptionId,
      roles: await ownRolesOrFailure(readOwnRoles(deps.roles, { subscriptionId, objectId, signal })),
    }),
    { concurrency: SUBSCRIPTIONS_AT_ONCE },
  );
  const isFailure = (roles: OwnRoles | CloudFailure): roles is CloudFailure => roles instanceof Error;
  return summarize(
    read.flatMap(({ subscriptionId, roles }) => (isFailure(roles) ? [] : [{ subscriptionId, roles }])),
    read.flatMap(({ roles }) => (isFailure(roles) ? [`${roles.message} ${roles.remedy}`] : [])),
  );
}

interface Subscription {
  subscriptionId: string;
  roles: OwnRoles;
}

function summarize(subscriptions: readonly Subscription[], coverage: string[]): KeyPermissions {
  const rotated = [...KEY_KINDS.filter(({ reportOnly }) => reportOnly === undefined), ...ENGINES];
  return { kinds: new Map(rotated.map((kind) => [kind.name, permissionsOf(kind, subscriptions)])), coverage };
}

function permissionsOf(
  { actions }: { actions: readonly string[] },
  subscriptions: readonly Subscription[],
): KindPermissions {
  // What is missing at each scope at which a role permits one of the actions.
  const missingByScope = new Map<string, string[]>();
  for (const { subscriptionId, roles } of subscriptions) {
    const whole = `/subscriptions/${subscriptionId}`.toLowerCase();
    // A role above the subscription permits its actions in the whole subscription.
    const scopesByAction = actions.map((action) =>
      roles.scopesWith({ action }).map((scope) => (isAtOrBelow(scope, whole) ? scope : whole)),
    );
    for (const scope of scopesByAction.flat()) {
      const isMissing = (_: string, index: number) => !scopesByAction[index]!.some((one) => isAtOrBelow(scope, one));
      missingByScope.set(scope, actions.filter(isMissing));
    }
  }
  const complete = [...missingByScope].flatMap(([scope, missing]) => (missing.length === 0 ? [scope] : []));
  const least = [...missingByScope.values()].sort((one, other) => one.length - other.length)[0];
  return {
    scopes: complete.filter((scope) => !complete.some((one) => one !== scope && isAtOrBelow(scope, one))).sort(),
    missing: [...(least ?? actions)],
  };
}

/** Returns whether a scope is another one, or inside of it. Both are in lower case. */
const isAtOrBelow = (scope: string, other: string): boolean => scope === other || scope.startsWith(`${other}/`);
