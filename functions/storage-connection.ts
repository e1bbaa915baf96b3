import type { Identity } from "../shared/platform/azure/identity.ts";
import type { Config } from "../shared/platform/config/config.ts";
import type { StorageConnection } from "../shared/platform/storage/connection.ts";

/**
 * Returns the storage connection from the platform's settings: a connection string, or the account's name or URIs with the
 * identity.
 */
export function storageConnection(config: Config, identity: Identity): StorageConnection {
  if (config.AzureWebJobsStorage) return { connectionString: config.AzureWebJobsStorage };
  const { AzureWebJobsStorage__accountName: account, cloud } = config;
  const uriOf = (kind: "table" | "queue") => `https://${account}.${kind}.${cloud.storageSuffix}`;
  return {
    tableServiceUri: config.AzureWebJobsStorage__tableServiceUri ?? uriOf("table"),
    queueServiceUri: config.AzureWebJobsStorage__queueServiceUri ?? uriOf("queue"),
    credential: () => identity.credential(),
  };
}
