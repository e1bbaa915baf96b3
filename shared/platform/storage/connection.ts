import type { TokenCredential } from "@azure/core-auth";

/**
 * How to reach the storage account: with its key or a shared access signature, or as a managed identity (https only).
 * `credential` is asked for once per table and queue, so it should give back the same one each time.
 */
export type StorageConnection =
  | { connectionString: string }
  | { tableServiceUri: string; queueServiceUri: string; credential: () => Promise<TokenCredential> };

/** The name of the storage account, by which one deployment's state is told from another's. */
export function storageAccount(connection: StorageConnection): string {
  if ("tableServiceUri" in connection) return new URL(connection.tableServiceUri).hostname.split(".")[0]!;
  // An emulator's account where the string only says that it is one; with a shared access signature only the endpoint tells.
  const parts = partsOf(connection.connectionString);
  const endpoint = parts.get("tableendpoint");
  return parts.get("accountname") ?? (endpoint ? new URL(endpoint).hostname.split(".")[0]! : "devstoreaccount1");
}

/** True when the table endpoint is plain http, as an emulator's is; the SDK refuses that unless it is told. */
export function usesPlainHttp(connectionString: string): boolean {
  const parts = partsOf(connectionString);
  if (parts.get("usedevelopmentstorage") === "true") return true;
  const endpoint = parts.get("tableendpoint");
  return endpoint ? endpoint.startsWith("http://") : parts.get("defaultendpointsprotocol") === "http";
}

/** The settings of a connection string, names and values in lower case. */
const partsOf = (connectionString: string): Map<string, string> =>
  new Map(
    connectionString.split(";").map((part) => {
      const [name = "", value = ""] = part.split(/=(.*)/s);
      return [name.trim().toLowerCase(), value.trim().toLowerCase()];
    }),
  );
