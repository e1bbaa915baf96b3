import type { AppConfigurationClient } from "@azure/app-configuration";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget } from "./failure.ts";
import type { Identity } from "./identity.ts";

/** Reads the service's own settings from an Azure App Configuration store. */
export interface AppConfiguration {
  /**
   * Returns the store's values as unchecked text, by setting key without the prefix.
   * @throws {CloudFailure} if the store can't be read in time.
   */
  read(): Promise<ReadonlyMap<string, string>>;
}

/** Prefix of a setting's key in the store, such as in `credential-lifecycle:logLevel`. The keys have no label. */
const KEY_PREFIX = "credential-lifecycle:";

/** Keys without a label: https://learn.microsoft.com/azure/azure-app-configuration/rest-api-key-value#filtering */
const NO_LABEL = "\0";

/** Milliseconds that a read may take, including its one retry. Requests wait for the read. */
const READ_TIMEOUT_MS = 5_000;

/** Matches `Endpoint=https://name.azconfig.io;Id=…;Secret=…`. */
const CONNECTION_STRING = /^Endpoint=https:\/\/[^;]+;Id=[^;]+;Secret=[^;]+$/;

/**
 * Opens the store that `APP_CONFIGURATION_CONNECTION_STRING` or `APP_CONFIGURATION_ENDPOINT` names. The endpoint is read with
 * the service's identity, which needs the role App Configuration Data Reader. Returns undefined if neither is set.
 *
 * @throws {Error} if the connection string is invalid.
 */
export function createAppConfiguration(deps: { config: Config; identity: Identity }): AppConfiguration | undefined {
  const { APP_CONFIGURATION_CONNECTION_STRING: connectionString, APP_CONFIGURATION_ENDPOINT: endpoint } = deps.config;
  if (!connectionString && !endpoint) return undefined;
  if (connectionString && !CONNECTION_STRING.test(connectionString)) {
    throw new Error("APP_CONFIGURATION_CONNECTION_STRING must look like Endpoint=https://…;Id=…;Secret=…");
  }
  let client: Promise<AppConfigurationClient> | undefined;
  const target: CallTarget = {
    operation: "read settings",
    resource: "App Configuration",
    grant: "the role App Configuration Data Reader on the store",
  };

  async function connect(): Promise<AppConfigurationClient> {
    const { AppConfigurationClient } = await import("@azure/app-configuration");
    const options = { retryOptions: { maxRetries: 1, retryDelayInMs: 200 } };
    return connectionString
      ? new AppConfigurationClient(connectionString, options)
      : new AppConfigurationClient(endpoint!, await deps.identity.credential(), options);
  }

  return {
    async read() {
      client ??= connect();
      const values = new Map<string, string>();
      try {
        const settings = (await client).listConfigurationSettings({
          keyFilter: `${KEY_PREFIX}*`,
          labelFilter: NO_LABEL,
          fields: ["key", "value"],
          abortSignal: AbortSignal.timeout(READ_TIMEOUT_MS),
        });
        for await (const { key, value } of settings) {
          if (value !== undefined) values.set(key.slice(KEY_PREFIX.length), value.trim());
        }
      } catch (error) {
        throw asCloudFailure(error, target);
      }
      return values;
    },
  };
}
