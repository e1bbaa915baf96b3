// Reads the settings of an app when the host starts: host.json, local.settings.json and app settings (environment variables).

import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { parseTimeSpan } from "./schedule.ts";

/** Members of host.json that this host supports: https://learn.microsoft.com/azure/azure-functions/functions-host-json */
export interface HostJson {
  routePrefix: string;
  /** Maximum number of running and waiting requests. Further requests get a 429. Default: Infinity. */
  maxOutstandingRequests: number;
  /** Maximum number of running requests. Further requests wait. Default: Infinity. */
  maxConcurrentRequests: number;
  queues: QueueSettings;
  /** Maximum duration of an invocation in milliseconds. Infinity if the setting is `-1`. */
  functionTimeout: number;
  /** `logging.logLevel`: the lowest level that is logged, by log category. */
  logLevels: Record<string, string>;
}

export interface QueueSettings {
  batchSize: number;
  newBatchThreshold: number;
  maxDequeueCount: number;
  /** Seconds until a failed message is visible again. */
  visibilityTimeout: number;
  /** Longest delay between two polls of an empty queue, in milliseconds. */
  maxPollingInterval: number;
  messageEncoding: "base64" | "none";
}

/**
 * The platform's default, except on the plans Consumption (5 minutes) and Flex Consumption (none):
 * functions-host-json#functiontimeout.
 */
const DEFAULT_FUNCTION_TIMEOUT_MS = 30 * 60_000;
/** https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings */
const MAX_BATCH_SIZE = 32;
/** Defaults of `maxPollingInterval`. */
const DEFAULT_POLLING_INTERVAL_MS = { Development: 2_000, Production: 60_000 };
const OVERRIDE_PREFIX = "AzureFunctionsJobHost__";

export type Environment = "Development" | "Production";

type Json = { [key: string]: Json } | Json[] | string | number | boolean | null;

/**
 * Reads host.json.
 * @throws Error that names the invalid setting
 */
export async function readHostJson(appFolder: string, environment: Environment): Promise<HostJson> {
  const host = await readJson(join(appFolder, "host.json"));
  if (host === undefined) throw new Error(`there is no host.json in ${appFolder}`);
  if (member(host, "version") !== "2.0") throw new Error('host.json: "version" must be "2.0"');
  applyOverrides(host);

  const http = member(host, "extensions", "http");
  const queues = member(host, "extensions", "queues");
  const batchSize = readInteger(queues, "batchSize", 16);
  if (batchSize < 1 || batchSize > MAX_BATCH_SIZE)
    throw new Error(`host.json: batchSize must be 1 to ${MAX_BATCH_SIZE}`);
  const encoding = readString(queues, "messageEncoding", "base64").toLowerCase();
  if (encoding !== "base64" && encoding !== "none")
    throw new Error('host.json: messageEncoding must be "base64" or "none"');
  const timeout = member(host, "functionTimeout");
  return {
    routePrefix: readString(http, "routePrefix", "api").replaceAll(/^\/+|\/+$/g, ""),
    maxOutstandingRequests: unlimitedIfMinusOne(readInteger(http, "maxOutstandingRequests", -1)),
    maxConcurrentRequests: unlimitedIfMinusOne(readInteger(http, "maxConcurrentRequests", -1)),
    queues: {
      batchSize,
      // The platform multiplies the value by the instance's cores. The smallest instance has one.
      newBatchThreshold: readInteger(queues, "newBatchThreshold", Math.floor(batchSize / 2)),
      maxDequeueCount: readInteger(queues, "maxDequeueCount", 5),
      visibilityTimeout: readTimeSpan(queues, "visibilityTimeout", 0) / 1000,
      maxPollingInterval: readTimeSpan(queues, "maxPollingInterval", DEFAULT_POLLING_INTERVAL_MS[environment]),
      messageEncoding: encoding,
    },
    functionTimeout:
      timeout === "-1" || timeout === -1
        ? Number.POSITIVE_INFINITY
        : readTimeSpan(host, "functionTimeout", DEFAULT_FUNCTION_TIMEOUT_MS),
    logLevels: readStrings(member(host, "logging", "logLevel"), "logging.logLevel"),
  };
}

/** Sets environment variables from `Values` of local.settings.json. A variable that is already set wins. */
export async function applyLocalSettings(appFolder: string): Promise<void> {
  const local = await readJson(join(appFolder, "local.settings.json"));
  if (local === undefined) return;
  if (member(local, "IsEncrypted") === true) throw new Error("local.settings.json: encrypted values are not supported");
  for (const [name, value] of Object.entries(readStrings(member(local, "Values"), "Values"))) {
    process.env[name] ??= value;
  }
}

/** Sets the environment variables that the platform sets for an app. A variable that is already set wins. */
export function applyPlatformSettings(appFolder: string, port: number, environment: Environment): void {
  const values = {
    AZURE_FUNCTIONS_ENVIRONMENT: environment,
    AzureWebJobsScriptRoot: appFolder,
    FUNCTIONS_EXTENSION_VERSION: "~4",
    FUNCTIONS_WORKER_RUNTIME: "node",
    WEBSITE_HOSTNAME: `localhost:${port}`,
  };
  for (const [name, value] of Object.entries(values)) process.env[name] ??= value;
}

/**
 * Returns the host ID, which distinguishes this app from others in the same storage account. Default: the name of the app's
 * folder.
 */
export function hostId(appFolder: string): string {
  return (process.env.AzureFunctionsWebHost__hostid ?? basename(appFolder))
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]/g, "-");
}

/**
 * Replaces each `%NAME%` in the value by the app setting NAME.
 * @throws Error if the setting is missing.
 */
export function resolveSettings(value: string): string {
  return value.replaceAll(/%([^%]+)%/g, (_, name: string) => {
    const setting = process.env[name];
    if (setting === undefined) throw new Error(`'%${name}%' does not resolve to a value: the setting is missing`);
    return setting;
  });
}

async function readJson(file: string): Promise<Json | undefined> {
  let content: string;
  try {
    content = await readFile(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return JSON.parse(content.replace(/^\uFEFF/, "")) as Json;
  } catch (error) {
    throw new Error(`${file} is not JSON: ${(error as Error).message}`);
  }
}

/**
 * Overrides values of host.json by app settings: `AzureFunctionsJobHost__extensions__http__routePrefix` sets
 * `extensions.http.routePrefix`.
 * https://learn.microsoft.com/azure/azure-functions/functions-host-json#override-hostjson-values
 */
function applyOverrides(host: Json): void {
  for (const [name, value] of Object.entries(process.env)) {
    if (!name.startsWith(OVERRIDE_PREFIX) || value === undefined) continue;
    let current = host as { [key: string]: Json };
    const keys = name.slice(OVERRIDE_PREFIX.length).split("__");
    const lastKey = keys.pop()!;
    for (const key of keys) {
      current[key] ??= {};
      current = current[key] as { [key: string]: Json };
    }
    current[lastKey] = /^-?\d+$/.test(value) ? Number(value) : value;
  }
}

/** Returns a nested member. Undefined if a member on the path is missing or not an object. */
function member(value: Json | undefined, ...path: string[]): Json | undefined {
  let current = value;
  for (const key of path) {
    current = typeof current === "object" && current !== null && !Array.isArray(current) ? current[key] : undefined;
  }
  return current;
}

function readInteger(value: Json | undefined, key: string, fallback: number): number {
  const setting = member(value, key) ?? fallback;
  if (!Number.isInteger(setting)) throw new Error(`host.json: ${key} must be a whole number`);
  return setting as number;
}

function unlimitedIfMinusOne(value: number): number {
  return value === -1 ? Number.POSITIVE_INFINITY : value;
}

function readString(value: Json | undefined, key: string, fallback: string): string {
  const setting = member(value, key) ?? fallback;
  if (typeof setting !== "string") throw new Error(`host.json: ${key} must be text`);
  return setting;
}

/** Returns the milliseconds of a TimeSpan. */
function readTimeSpan(value: Json | undefined, key: string, fallback: number): number {
  const setting = member(value, key);
  if (setting === undefined) return fallback;
  const parsed = typeof setting === "string" ? parseTimeSpan(setting) : undefined;
  if (parsed === undefined || parsed < 0) throw new Error(`host.json: ${key} must be a TimeSpan such as "00:00:30"`);
  return parsed;
}

function readStrings(value: Json | undefined, name: string): Record<string, string> {
  const entries = Object.entries(value ?? {});
  if (entries.some(([, each]) => typeof each !== "string")) throw new Error(`${name}: every value must be text`);
  return Object.fromEntries(entries) as Record<string, string>;
}
