import type { Identity } from "../shared/platform/azure/identity.ts";
import type { Config } from "../shared/platform/config/config.ts";
import type { StorageConnection } from "../shared/platform/storage/connection.ts";

/** The platform's own storage settings: a connection string, else the account's name or addresses with the identity. */
export function storageConnection(config: Config, identity: Identity): StorageConnection {
  if (config.AzureWebJobsStorage) return { connectionString: config.AzureWebJobsStorage };
  const { AzureWebJobsStorage__accountName: account, cloud } = config;
  const service = (kind: "table" | "queue") => `https://${account}.${kind}.${cloud.storageSuffix}`;
  return {
    tableServiceUri: config.AzureWebJobsStorage__tableServiceUri ?? service("table"),
    queueServiceUri: config.AzureWebJobsStorage__queueServiceUri ?? service("queue"),
    credential: () => identity.credential(),
  };
}
