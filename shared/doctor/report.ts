import { asCloudFailure, CloudFailure } from "../platform/azure/failure.ts";
import { SECOND_MS } from "../platform/time.ts";
import { SyncFailure } from "../sync/providers/provider.ts";
import type { Action } from "./own-roles.ts";
import { type Added, notProven, type Result } from "./result.ts";
import { type Sample, undefinedAfterFailure } from "./sample.ts";

// The ways in which the check of a call finds its results: by making the call, or by the roles of the service's identity.

/** Time limit of a check. The platform requires a response within 230 seconds. */
export const CHECK_TIMEOUT_MS = 120 * SECOND_MS;
export const CHECK_TIMED_OUT = `The check ended after ${CHECK_TIMEOUT_MS / SECOND_MS} seconds.`;

/** Creates the functions with which the calls of one check report their results. */
export function createReports({ subscriptions, rolesIn, resourceOf }: Sample, signal: AbortSignal) {
  /**
   * Makes a call. The result is `works` with what `work` adds, or what the failure means.
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

  /**
   * Makes a call for one resource of a type, like `attempt`. If the sampled subscriptions have no such resource, reports whether
   * the identity's roles permit `actions`.
   */
  async function onResource(
    type: string,
    actions: readonly string[],
    work: (id: string, properties: unknown) => Promise<unknown>,
    commandFor: (subscriptionId: string) => string,
  ): Promise<Result[]> {
    const found = await resourceOf(type).catch(undefinedAfterFailure);
    if (!found) return await inSubscriptions(actions, commandFor);
    const subscriptionId = found.id.split("/")[2] ?? "";
    const call = async () => void (await work(found.id, found.properties));
    return [await attempt(found.id, call, () => commandFor(subscriptionId))];
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
   * Reports where the identity's roles permit an action. Used for writes, which a check must not try. `works` if a role permits
   * it anywhere in the sampled subscriptions.
   *
   * With `name`, only roles on the resource of this name count. With its resource ID `id`, roles at a scope above it count too,
   * and it is certain whether a role is missing. With `except`, roles on the resource of this name don't count.
   */
  async function whereHeld(
    action: Action,
    { name, id, except }: { name?: string | undefined; id?: string | undefined; except?: string | undefined },
    command: string,
  ): Promise<Result[]> {
    const subscriptionOfId = id?.split("/")[2]?.toLowerCase();
    const checked = subscriptionOfId === undefined ? (await subscriptions()).checked : [subscriptionOfId];
    const resource = name ?? "the sampled subscriptions";
    const scopesThatPermit: string[] = [];
    let unknown: Result | undefined = checked.length === 0 ? notProven(resource, NO_SUBSCRIPTION) : undefined;
    for (const subscriptionId of checked) {
      const roles = await rolesIn(subscriptionId);
      if (roles === undefined || roles instanceof CloudFailure) unknown ??= notProven(resource, rolesUnknown(roles));
      else scopesThatPermit.push(...roles.scopesWith(action));
    }
    const isNamed = (scope: string, resourceName: string) => scope.endsWith(`/${resourceName.toLowerCase()}`);
    const contains = (scope: string, resourceId: string) => `${resourceId.toLowerCase()}/`.startsWith(`${scope}/`);
    // The list also has the roles at the subscription and at its management groups.
    const containsSubscription = (scope: string) => !scope.startsWith(`/subscriptions/${subscriptionOfId}/`);
    const isOn = (scope: string) =>
      id !== undefined
        ? containsSubscription(scope) || contains(scope, id)
        : name === undefined || isNamed(scope, name);
    const scopes = [...new Set(scopesThatPermit)].filter(
      (scope) => isOn(scope) && (except === undefined || !isNamed(scope, except)),
    );
    if (scopes.length > 0) {
      const more = scopes.length > 3 ? ` and ${scopes.length - 3} more` : "";
      return [{ outcome: "works", resource, detail: `Permitted in ${scopes.slice(0, 3).join(", ")}${more}.` }];
    }
    if (unknown) return [unknown];
    const missing = Object.values(action)[0];
    // The resource of this name can be in a subscription whose roles were not read.
    if (name !== undefined && id === undefined) {
      const detail = `A check does not write, and no role on ${name} in the sampled subscriptions permits ${missing}.`;
      return [{ ...notProven(resource, detail), command }];
    }
    return [
      {
        outcome: "permissionMissing",
        resource,
        detail: `No role of the identity permits ${missing} ${id === undefined ? "anywhere in these subscriptions" : "there"}.`,
        command,
      },
    ];
  }

  return { attempt, onResource, inSubscriptions, whereHeld };
}

const NO_SUBSCRIPTION = "No subscription can be seen.";

const rolesUnknown = (failure: CloudFailure | undefined): string =>
  failure
    ? `The identity's roles can't be read: ${failure.message}`
    : "The service could not sign in, so its roles are unknown.";

const UNREACHABLE = new Set(["unreachable", "firewall", "timedOut", "foreignHost"]);

/**
 * Returns what a failed call means.
 *
 * @param isLate - Whether the time limit of the check has passed: a timeout then says nothing about the call.
 * @throws any error that is no failure of a call, because it is a defect of this program.
 */
function resultOf(error: unknown, resource: string, isLate = false, commandFor?: () => string | undefined): Result {
  if (error instanceof SyncFailure) {
    const outcome =
      error.code === "accessDenied" ? "permissionMissing" : error.code === "unreachable" ? "unreachable" : "failed";
    return { outcome, resource, detail: error.message, remedy: error.remedy };
  }
  const failure = asCloudFailure(error, { operation: "make the call", resource });
  if (failure.code === "timedOut" && isLate) return notProven(resource, CHECK_TIMED_OUT);
  const { message: detail, remedy } = failure;
  if (failure.code === "accessDenied") {
    const command = commandFor?.();
    return { outcome: "permissionMissing", resource, detail, remedy, ...(command !== undefined && { command }) };
  }
  return { outcome: UNREACHABLE.has(failure.code) ? "unreachable" : "failed", resource, detail, remedy };
}
