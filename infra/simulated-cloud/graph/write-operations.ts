// Write operations of the simulated Microsoft Graph: add and remove client secrets.

import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import { badRequest, concurrent, denied, notFound, policyViolation, tooLarge, tooManySecrets } from "./errors.ts";
import { ownersOf, passwordJson } from "./json.ts";
import { violatedRestriction } from "./policies.ts";
import { find, type GraphCall } from "./read-operations.ts";
import type { ApplicationRecord } from "./records.ts";

const DAY_SECONDS = 86_400;

/**
 * Limits for audiences with personal accounts:
 * https://learn.microsoft.com/entra/identity-platform/supported-accounts-validation
 */
const PERSONAL_ACCOUNT_LIMITS = { maxSecrets: 2, maxNameLength: 90 };

/** Approximate limit of the items in all collections of an application, from the same page. */
const MAX_ITEMS = 1_000;

/** Adds a client secret: https://learn.microsoft.com/graph/api/application-addpassword */
export function addPassword(call: GraphCall, id: string): ServiceResponse {
  const application = writableApplication(call, id);
  if ("status" in application) return application;
  const requested = parseRequestedSecret(call.request, call.directory.clock.seconds());
  if (typeof requested === "string") return badRequest(requested);
  const allowsPersonalAccounts = /Personal/.test(application.audience);
  if (allowsPersonalAccounts && application.secrets.length >= PERSONAL_ACCOUNT_LIMITS.maxSecrets)
    return tooManySecrets.twoPasswords();
  if (allowsPersonalAccounts && (requested.displayName?.length ?? 0) > PERSONAL_ACCOUNT_LIMITS.maxNameLength) {
    return badRequest(`The display name is longer than ${PERSONAL_ACCOUNT_LIMITS.maxNameLength} characters.`);
  }
  if (application.secrets.length + application.keys.length + application.owners.length >= MAX_ITEMS) return tooLarge();
  const violation = violatedRestriction(call.directory, application, requested.expiresOn - requested.startsOn);
  if (violation === "addition") return policyViolation.typePolicy();
  if (violation === "lifetime") return policyViolation.lifetimePolicy();
  const secret = call.directory.addSecret(application, { ...requested, madeBy: "graph" });
  const context = `${call.origin}/v1.0/$metadata#microsoft.graph.passwordCredential`;
  return { status: 200, body: { "@odata.context": context, ...passwordJson(secret, true) } };
}

/** Removes a client secret: https://learn.microsoft.com/graph/api/application-removepassword */
export function removePassword(call: GraphCall, id: string): ServiceResponse {
  const application = writableApplication(call, id);
  if ("status" in application) return application;
  const keyId = jsonObject(call.request)?.keyId;
  if (typeof keyId !== "string") return badRequest("A value is required for property 'keyId'.");
  // With `writesLag`, the removal goes to a replica that may not have received the secret yet.
  const replicaState = call.directory.settings.writesLag ? find(call, id) : application;
  const replicaHasSecret =
    !("status" in replicaState) && replicaState.secrets.some((secret) => secret.keyId === keyId.toLowerCase());
  if (!replicaHasSecret || !call.directory.removeSecret(application, keyId.toLowerCase())) {
    return badRequest(`No password credential found with keyId.`);
  }
  return { status: 204 };
}

/** Returns the current application, without lag. Returns the error response if the caller may not change it. */
function writableApplication(call: GraphCall, id: string): ApplicationRecord | ServiceResponse {
  const { directory, caller } = call;
  const appId = /^\(appId='([^']*)'\)$/.exec(id)?.[1];
  const application = directory.currentState(appId ?? id);
  if (application === undefined) return notFound(appId ?? id);
  const owns = ownersOf(application, directory.owningIdentities()).some((owner) => owner.id === caller);
  const permissions = directory.permissionsOf(caller);
  const isAllowed =
    permissions.includes("Application.ReadWrite.All") ||
    (permissions.includes("Application.ReadWrite.OwnedBy") && owns);
  if (!isAllowed) return denied();
  return directory.isTooSoonForWrite() ? concurrent.concurrentViolation409() : application;
}

/** Parses the requested secret in a body, or returns the error message. A secret is valid for two years by default. */
function parseRequestedSecret(request: IncomingRequest, now: number) {
  const body = jsonObject(request);
  if (body === undefined) return "Unable to read JSON request payload.";
  const credential = body.passwordCredential ?? {};
  if (typeof credential !== "object" || Array.isArray(credential)) return "Invalid value for 'passwordCredential'.";
  const { displayName = null, startDateTime, endDateTime, ...otherMembers } = credential as Record<string, unknown>;
  const [unknown] = Object.keys(otherMembers);
  if (unknown !== undefined) return `A property '${unknown}' can't be set on a new password credential.`;
  if (displayName !== null && typeof displayName !== "string") return "Invalid value for 'displayName'.";
  const startsOn = secondsOf(startDateTime) ?? now;
  const end = new Date(startsOn * 1000);
  const expiresOn = secondsOf(endDateTime) ?? end.setUTCFullYear(end.getUTCFullYear() + 2) / 1000;
  if (Number.isNaN(startsOn) || Number.isNaN(expiresOn)) return "Cannot convert a value to type 'Edm.DateTimeOffset'.";
  if (expiresOn <= startsOn || expiresOn <= now) return "Key credential end date is invalid.";
  if (expiresOn - startsOn > 100 * 365 * DAY_SECONDS) return "Key credential end date is invalid.";
  return { displayName, startsOn, expiresOn };
}

/** Parses a date. Undefined if it is missing, NaN if it is not a date with a time zone. */
function secondsOf(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  const matches = typeof value === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(value);
  return matches ? Math.floor(Date.parse(value) / 1000) : Number.NaN;
}
