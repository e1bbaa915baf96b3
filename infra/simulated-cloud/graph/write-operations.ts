// Write operations of the simulated Microsoft Graph: add and remove client secrets.

import { type Answer, type Incoming, jsonObject } from "../http.ts";
import { badRequest, concurrent, denied, notFound, policyViolation, tooLarge, tooManySecrets } from "./errors.ts";
import { ownersOf, passwordJson } from "./json.ts";
import { violatedRestriction } from "./policies.ts";
import { find, type GraphCall } from "./read-operations.ts";
import type { ApplicationRecord } from "./records.ts";

const DAY = 86_400;

/**
 * Limit for audiences with personal accounts: https://learn.microsoft.com/entra/identity-platform/supported-accounts-validation
 */
const PERSONAL = { mostSecrets: 2, longestName: 90 };

/** Approximate limit of credentials over all collections of an application, from the same page. */
const MOST_ITEMS = 1_000;

/** https://learn.microsoft.com/graph/api/application-addpassword */
export function addPassword(call: GraphCall, id: string): Answer {
  const application = writable(call, id);
  if ("status" in application) return application;
  const asked = askedFor(call.request, call.directory.clock.seconds());
  if (typeof asked === "string") return badRequest(asked);
  const personal = /Personal/.test(application.audience);
  if (personal && application.secrets.length >= PERSONAL.mostSecrets) return tooManySecrets.twoPasswords();
  if (personal && (asked.displayName?.length ?? 0) > PERSONAL.longestName) {
    return badRequest(`The display name is longer than ${PERSONAL.longestName} characters.`);
  }
  if (application.secrets.length + application.keys.length + application.owners.length >= MOST_ITEMS) return tooLarge();
  const broken = violatedRestriction(call.directory, application, asked.expiresOn - asked.startsOn);
  if (broken === "addition") return policyViolation.typePolicy();
  if (broken === "lifetime") return policyViolation.lifetimePolicy();
  const made = call.directory.addSecret(application, { ...asked, madeBy: "graph" });
  const context = `${call.origin}/v1.0/$metadata#microsoft.graph.passwordCredential`;
  return { status: 200, body: { "@odata.context": context, ...passwordJson(made, true) } };
}

/** https://learn.microsoft.com/graph/api/application-removepassword */
export function removePassword(call: GraphCall, id: string): Answer {
  const application = writable(call, id);
  if ("status" in application) return application;
  const keyId = jsonObject(call.request)?.keyId;
  if (typeof keyId !== "string") return badRequest("A value is required for property 'keyId'.");
  const seen = call.directory.settings.writesLag ? find(call, id) : application;
  const known = !("status" in seen) && seen.secrets.some((secret) => secret.keyId === keyId.toLowerCase());
  if (!known || !call.directory.removeSecret(application, keyId.toLowerCase())) {
    return badRequest(`No password credential found with keyId.`);
  }
  return { status: 204 };
}

/** Returns the current application, without lag, if the caller may change it. */
function writable(call: GraphCall, id: string): ApplicationRecord | Answer {
  const { directory, caller } = call;
  const appId = /^\(appId='([^']*)'\)$/.exec(id)?.[1];
  const application = directory.currentState(appId ?? id);
  if (application === undefined) return notFound(appId ?? id);
  const owns = ownersOf(application, directory.service).some((owner) => owner.id === caller);
  const permissions = directory.permissionsOf(caller);
  const may =
    permissions.includes("Application.ReadWrite.All") ||
    (permissions.includes("Application.ReadWrite.OwnedBy") && owns);
  if (!may) return denied();
  return directory.tooSoon() ? concurrent.concurrentViolation409() : application;
}

/** Parses the requested secret of a body, or returns the error. A secret is valid for two years by default. */
function askedFor(request: Incoming, now: number) {
  const body = jsonObject(request);
  if (body === undefined) return "Unable to read JSON request payload.";
  const credential = body.passwordCredential ?? {};
  if (typeof credential !== "object" || Array.isArray(credential)) return "Invalid value for 'passwordCredential'.";
  const { displayName = null, startDateTime, endDateTime, ...others } = credential as Record<string, unknown>;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) return `A property '${unknown}' can't be set on a new password credential.`;
  if (displayName !== null && typeof displayName !== "string") return "Invalid value for 'displayName'.";
  const startsOn = secondsOf(startDateTime) ?? now;
  const end = new Date(startsOn * 1000);
  const expiresOn = secondsOf(endDateTime) ?? end.setUTCFullYear(end.getUTCFullYear() + 2) / 1000;
  if (Number.isNaN(startsOn) || Number.isNaN(expiresOn)) return "Cannot convert a value to type 'Edm.DateTimeOffset'.";
  if (expiresOn <= startsOn || expiresOn <= now) return "Key credential end date is invalid.";
  if (expiresOn - startsOn > 100 * 365 * DAY) return "Key credential end date is invalid.";
  return { displayName, startsOn, expiresOn };
}

/** Parses a date. Undefined if it is missing, NaN if it is not a date with a time zone. */
function secondsOf(value: unknown): number | undefined {
  if (value === undefined || value === null) return undefined;
  const matches = typeof value === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(value);
  return matches ? Math.floor(Date.parse(value) / 1000) : Number.NaN;
}
