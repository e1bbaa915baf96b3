// Types and helpers of governance-routes.ts, name-routes.ts and policy-routes.ts, which answer by the rules of a subscription.

import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import type { Claims } from "../tokens.ts";
import type { Governance } from "./governance.ts";
import { type ArmOptions, failure, type Route } from "./request-context.ts";
import { subscriptionError } from "./resource-route.ts";

/**
 * A request below a subscription. `path` starts after the subscription, in lower case:
 * `providers/microsoft.authorization/locks`.
 */
export interface GovernanceCall {
  options: ArmOptions;
  request: IncomingRequest;
  subscription: string;
  path: string;
  rules: Governance;
}

/** Creates a route that first checks that the subscription exists and is readable. */
export function governedRoute(
  { options, subscription, path, rules }: GovernanceCall,
  route: Pick<Route, "name" | "versions"> & { action: string; scope?: string },
  answer: (claims: Claims) => ServiceResponse,
): Route {
  const { name, versions, action, scope } = route;
  return {
    name,
    versions,
    action,
    subscription,
    ...(scope !== undefined && { resource: scope }),
    answer: (claims) =>
      subscriptionError(options, subscription, claims, action) ??
      registrationError(path, rules, subscription) ??
      answer(claims),
  };
}

export const noSuchLocation = (location: string): ServiceResponse =>
  failure(400, "InvalidLocation", `The location '${location}' is not available for subscription.`);

/** Returns the error of a resource provider that the subscription is not registered for. Undefined if it is registered. */
function registrationError(
  path: string,
  { unregistered }: Governance,
  subscription: string,
): ServiceResponse | undefined {
  const [, namespace] = /^providers\/([^/]+)\//.exec(path) ?? [];
  const name = unregistered?.find((one) => one.toLowerCase() === namespace);
  return name === undefined
    ? undefined
    : failure(
        409,
        "MissingSubscriptionRegistration",
        `The subscription '${subscription}' is not registered to use namespace '${name}'. See https://aka.ms/rps-not-found for how to register subscriptions.`,
      );
}

/** Returns the object in the body of a request. Undefined if the body has other members than these texts. */
export function textMembers(request: IncomingRequest, ...names: string[]): Record<string, string> | undefined {
  const body = jsonObject(request);
  const isExact =
    body !== undefined &&
    Object.keys(body).length === names.length &&
    names.every((name) => typeof body[name] === "string" && body[name] !== "");
  return isExact ? (body as Record<string, string>) : undefined;
}
