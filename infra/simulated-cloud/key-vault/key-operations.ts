// Operations that change keys of the simulated Key Vault: rotate a key, and replace its rotation policy.

import { randomBytes } from "node:crypto";
import { jsonObject, type ServiceResponse } from "../http.ts";
import { current, type Key, type KeyPolicy, type KeyVersion } from "../vaults/items.ts";
import { badParameter, forbidden, missing } from "./errors.ts";
import type { VaultCall } from "./request-context.ts";

const DAY_SECONDS = 86_400;
/**
 * Minimum durations of a rotation policy:
 * https://learn.microsoft.com/azure/key-vault/keys/how-to-configure-key-rotation#key-rotation-policy
 */
const MIN_EXPIRY_DAYS = 28;
const MIN_ROTATION_DAYS = 7;

/**
 * Creates a new version of a key by its rotation policy: https://learn.microsoft.com/rest/api/keyvault/keys/rotate-key/rotate-key
 */
export function rotateKey({ options, vault, json, name }: VaultCall): ServiceResponse {
  const key = vault.collections.keys.get(name);
  if (key === undefined) return missingKey(vault.collections.certificates.get(name) !== undefined, name);
  const previous = current(key);
  if (!previous.enabled) return forbidden(`Operation rotate is not allowed on a disabled key: ${name}`, "KeyDisabled");
  const now = options.resources.now();
  const lifetime = expirySecondsOf(key);
  // The dates of the previous version are not copied: the policy decides the expiry date.
  const { expires: _expires, notBefore: _notBefore, ...copied } = previous;
  const version: KeyVersion = {
    ...copied,
    id: randomBytes(16).toString("hex"),
    enabled: true,
    created: now,
    updated: now,
    ...(lifetime !== undefined && { expires: now + lifetime }),
  };
  options.resources.putItem(vault.name, "keys", { ...key, versions: [...key.versions, version] });
  return { status: 200, body: json.bundle("keys", name, version.id) };
}

/**
 * Replaces the rotation policy of a key:
 * https://learn.microsoft.com/rest/api/keyvault/keys/update-key-rotation-policy/update-key-rotation-policy
 */
export function updateRotationPolicy({ options, vault, json, request, name }: VaultCall): ServiceResponse {
  const key = vault.collections.keys.get(name);
  if (key === undefined) return missingKey(vault.collections.certificates.get(name) !== undefined, name);
  const body = jsonObject(request);
  if (body === undefined) return badParameter("The request body is not a JSON object.");
  const now = options.resources.now();
  const parsed = parsePolicy(body);
  if (typeof parsed === "string") return badParameter(parsed);
  const { rotation: _, ...rest } = key;
  const policy: KeyPolicy = { ...parsed, created: key.policy?.created ?? now, updated: now };
  const changed: Key = { ...rest, policy };
  options.resources.putItem(vault.name, "keys", changed);
  return { status: 200, body: json.rotationPolicy(changed) };
}

function missingKey(belongsToCertificate: boolean, name: string): ServiceResponse {
  if (belongsToCertificate)
    return forbidden(`Key ${name} belongs to a certificate and can only be changed with it.`, "ManagedKey");
  return missing("KeyNotFound", `A key with (name/id) ${name} was not found in this key vault.`);
}

/** Returns the lifetime in seconds that the policy gives new versions. */
function expirySecondsOf({ policy, rotation }: Key): number | undefined {
  if (policy !== undefined)
    return policy.expiryTime === undefined ? undefined : daysOf(policy.expiryTime)! * DAY_SECONDS;
  return rotation?.expiryDays === undefined ? undefined : rotation.expiryDays * DAY_SECONDS;
}

/** Returns the days of an ISO 8601 duration of years, months and days. Undefined for any other text. */
function daysOf(text: string): number | undefined {
  const [, years, months, days] = /^P(?=.)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?$/.exec(text) ?? [];
  if (years === undefined && months === undefined && days === undefined) return undefined;
  return Number(years ?? 0) * 365 + Number(months ?? 0) * 30 + Number(days ?? 0);
}

/** Parses the body of a policy, or returns the error. */
function parsePolicy(body: Record<string, unknown>): Pick<KeyPolicy, "expiryTime" | "lifetimeActions"> | string {
  const { attributes = {}, lifetimeActions = [] } = body as { attributes?: unknown; lifetimeActions?: unknown };
  if (!isRecord(attributes)) return "Property 'attributes' must be an object.";
  const { expiryTime } = attributes;
  if (expiryTime !== undefined && expiryTime !== null && typeof expiryTime !== "string")
    return "Property 'expiryTime' must be an ISO 8601 duration.";
  const expiryDays = typeof expiryTime === "string" ? daysOf(expiryTime) : undefined;
  if (typeof expiryTime === "string" && expiryDays === undefined)
    return "Property 'expiryTime' must be an ISO 8601 duration.";
  if (expiryDays !== undefined && expiryDays < MIN_EXPIRY_DAYS)
    return `Property 'expiryTime' must be at least ${MIN_EXPIRY_DAYS} days.`;
  if (!Array.isArray(lifetimeActions)) return "Property 'lifetimeActions' must be a list.";
  const parsed: KeyPolicy["lifetimeActions"] = [];
  for (const given of lifetimeActions as unknown[]) {
    const action = parseAction(given, expiryDays);
    if (typeof action === "string") return action;
    if (parsed.some(({ type }) => type === action.type))
      return `Property 'lifetimeActions' can contain one action of the type ${action.type}.`;
    parsed.push(action);
  }
  return { ...(typeof expiryTime === "string" && { expiryTime }), lifetimeActions: parsed };
}

function parseAction(given: unknown, expiryDays: number | undefined): KeyPolicy["lifetimeActions"][number] | string {
  if (!isRecord(given) || !isRecord(given.trigger) || !isRecord(given.action))
    return "A lifetime action needs a trigger and an action.";
  const name = String(given.action.type).toLowerCase();
  const type = name === "rotate" ? "Rotate" : name === "notify" ? "Notify" : undefined;
  if (type === undefined) return "Property 'type' of a lifetime action must be Rotate or Notify.";
  const { timeAfterCreate, timeBeforeExpiry } = given.trigger;
  const times = [timeAfterCreate, timeBeforeExpiry].filter((time) => time !== undefined && time !== null);
  const [time] = times;
  if (times.length !== 1 || typeof time !== "string")
    return "A trigger needs either 'timeAfterCreate' or 'timeBeforeExpiry'.";
  const days = daysOf(time);
  if (days === undefined) return "The time of a trigger must be an ISO 8601 duration.";
  if (timeBeforeExpiry === time && type === "Rotate" && expiryDays === undefined)
    return "A trigger with 'timeBeforeExpiry' needs an 'expiryTime'.";
  if (type === "Notify") {
    return timeBeforeExpiry === time
      ? { type, timeBeforeExpiry: time }
      : "A Notify action needs the trigger 'timeBeforeExpiry'.";
  }
  if (days < MIN_ROTATION_DAYS) return `The time of a Rotate action must be at least ${MIN_ROTATION_DAYS} days.`;
  if (expiryDays !== undefined && days > expiryDays - MIN_ROTATION_DAYS)
    return `A key must be rotated at least ${MIN_ROTATION_DAYS} days after its creation and before its expiry.`;
  return timeBeforeExpiry === time ? { type, timeBeforeExpiry: time } : { type, timeAfterCreate: time };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
