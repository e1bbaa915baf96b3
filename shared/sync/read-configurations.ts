import { Problem, retryLater } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { type ProviderDependencies, SyncFailure } from "./providers/provider.ts";
import { type AnyProvider, PROVIDERS, providerOf } from "./providers/providers.ts";
import { CONFIGURATION_PREFIX, Configurations, configurationKey, type ProviderConfiguration, SYNC } from "./record.ts";

// Reads the stored configurations of providers, and checks a configuration with its provider.

/** Timeout for checking a configuration. */
const CHECK_MS = 30 * SECOND_MS;
/** Retry-After in seconds if a busy provider gave none. */
const RETRY_SECONDS = 10;

/** @throws {Problem} notFound for an unknown provider */
export function requireProvider(id: string): AnyProvider {
  const provider = providerOf(id);
  if (provider) return provider;
  const ids = PROVIDERS.map((value) => value.id).join(", ");
  throw new Problem("notFound", `There is no sync provider ${id.slice(0, 64)}. There are ${ids}.`);
}

/** Returns the stored row. `broken`: the row exists, but its signature is invalid. */
export async function readConfiguration(
  tables: Tables,
  id: string,
): Promise<{ row: Row<ProviderConfiguration> | undefined; broken?: StorageCorrupt }> {
  try {
    return { row: await tables.get(Configurations, SYNC, configurationKey(id)) };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { row: undefined, broken: error };
  }
}

/**
 * Lists the configurations, and counts the unreadable ones. The answer to the current GET request names the unreadable ones, so that
 * an administrator can delete or replace them.
 */
export async function readConfigurations(
  tables: Tables,
): Promise<{ configurations: Row<ProviderConfiguration>[]; unreadable: number }> {
  const configurations: Row<ProviderConfiguration>[] = [];
  let unreadable = 0;
  const onCorrupt = (row: StorageCorrupt) => {
    countLeftOut(row, row.rowKey.slice(CONFIGURATION_PREFIX.length));
    unreadable++;
  };
  const range = { partitionKey: SYNC, from: CONFIGURATION_PREFIX, before: keyEnd(CONFIGURATION_PREFIX), onCorrupt };
  for await (const rows of tables.pages(Configurations, range)) configurations.push(...rows);
  return { configurations, unreadable };
}

/** Checks a configuration with a call without side effects. @throws {Problem} invalidRequest, unavailable */
export async function checkConfiguration(
  provider: AnyProvider,
  settings: Record<string, unknown>,
  secret: Record<string, unknown>,
  providers: ProviderDependencies,
): Promise<void> {
  try {
    // Passes a copy, because SDKs modify their arguments.
    await provider.check(settings, { ...secret }, providers, AbortSignal.timeout(CHECK_MS));
  } catch (error) {
    if (!(error instanceof SyncFailure)) throw error;
    const detail = `Nothing was changed. ${error.message} ${error.remedy}`;
    if (error.code === "throttled") throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
    throw new Problem("invalidRequest", detail, {
      errors: [{ path: "body", message: `does not work: ${error.message}` }],
      members: { failure: error.code },
    });
  }
}
