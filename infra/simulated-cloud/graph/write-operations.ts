// Write operations of the simulated Microsoft Graph: add and remove client secrets.

import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import {
  badRequest,
  concurrent,
  denied,
  duplicateFederated,
  notFound,
  policyViolation,
  tooLarge,
  tooManySecrets,
} from "./errors.ts";
import { ownersOf, passwordJson } from "./json.ts";
import { violatedRestriction } from "./policies.ts";
import { find, type GraphCall } from "./read-operations.ts";
import { type ApplicationRecord, newKeyId } from "./records.ts";

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

/** https://learn.microsoft.com/graph/api/resources/federatedidentitycredential */
const MAX_FEDERATED = 20;
const MAX_CLAIM_LENGTH = 600;
const FEDERATED_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_-]{2,119}$/;

/**
 * Adds or updates a federated credential by its name: https://learn.microsoft.com/graph/api/federatedidentitycredential-upsert. Without
 * the header `Prefer: create-if-missing`, only updates.
 */
export function putFederatedCredential(call: GraphCall, id: string, name: string): ServiceResponse {
  const application = writableApplication(call, id);
  if ("status" in application) return application;
  const body = jsonObject(call.request);
  const { issuer, subject, audiences, description: _, ...otherMembers } = body ?? {};
  const [unknown] = Object.keys(otherMembers);
  if (unknown !== undefined) return badRequest(`Property '${unknown}' does not exist as a declared property.`);
  const isClaim = (value: unknown): value is string =>
    typeof value === "string" && value.length > 0 && value.length <= MAX_CLAIM_LENGTH;
  if (!isClaim(issuer) || !URL.canParse(issuer)) return badRequest("Invalid value specified for property 'issuer'.");
  if (!isClaim(subject)) return badRequest("Invalid value specified for property 'subject'.");
  if (!Array.isArray(audiences) || audiences.length !== 1 || !isClaim(audiences[0]))
    return badRequest("Invalid value specified for property 'audiences'.");
  if (!FEDERATED_NAME.test(name)) return badRequest("Invalid value specified for property 'name'.");
  const existing = application.federated.find((one) => one.name === name);
  if (existing === undefined && call.request.headers.prefer !== "create-if-missing") return notFound(name);
  const others = application.federated.filter((one) => one !== existing);
  if (others.some((one) => one.issuer === issuer && one.subject === subject))
    return duplicateFederated(`issuer ${issuer} and subject ${subject}`);
  if (others.length >= MAX_FEDERATED)
    return badRequest(`Only a maximum of ${MAX_FEDERATED} FederatedIdentityCredentials are allowed.`);
  const worksFrom = call.directory.clock.now() + call.directory.settings.signInDelaySeconds * 1000;
  const credential = { id: existing?.id ?? newKeyId(), name, issuer, subject, audience: audiences[0], worksFrom };
  call.directory.put({ ...application, federated: [...others, credential] });
  if (existing !== undefined) return { status: 204 };
  const context = `${call.origin}/v1.0/$metadata#applications('${application.objectId}')/federatedIdentityCredentials/$entity`;
  const { id: newId } = credential;
  const created = { id: newId, name, issuer, subject, audiences, description: null };
  return { status: 201, body: { "@odata.context": context, ...created } };
}

/** Removes a federated credential: https://learn.microsoft.com/graph/api/federatedidentitycredential-delete */
export function removeFederatedCredential(call: GraphCall, id: string, federatedId: string): ServiceResponse {
  const application = writableApplication(call, id);
  if ("status" in application) return application;
  const remaining = application.federated.filter((one) => one.id !== federatedId && one.name !== federatedId);
  if (remaining.length === application.federated.length) return notFound(federatedId);
  call.directory.put({ ...application, federated: remaining });
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
