import type { TokenCredential } from "@azure/core-auth";

/**
 * How to reach the storage account: a connection string with the account key or a shared access signature, or a managed
 * identity (https only). `credential` is called once per table and queue and should return the same credential each time.
 */
export type StorageConnection =
  | { connectionString: string }
  | { tableServiceUri: string; queueServiceUri: string; credential: () => Promise<TokenCredential> };

/** Returns the name of the storage account, which identifies a deployment's state. */
export function storageAccount(connection: StorageConnection): string {
  if ("tableServiceUri" in connection) return new URL(connection.tableServiceUri).hostname.split(".")[0]!;
  // A connection string for an emulator can omit the account. One with a shared access signature has it only in the endpoint.
  const parts = settingsOf(connection.connectionString);
  const endpoint = parts.get("tableendpoint");
  return parts.get("accountname") ?? (endpoint ? new URL(endpoint).hostname.split(".")[0]! : "devstoreaccount1");
}

/**
 * Returns whether the table endpoint uses plain http, as emulators do. The SDK rejects plain http unless it is allowed
 * explicitly.
 */
export function usesPlainHttp(connectionString: string): boolean {
  const parts = settingsOf(connectionString);
  if (parts.get("usedevelopmentstorage") === "true") return true;
  const endpoint = parts.get("tableendpoint");
  return endpoint ? endpoint.startsWith("http://") : parts.get("defaultendpointsprotocol") === "http";
}

/** Parses a connection string into its settings. Names and values are in lower case. */
const settingsOf = (connectionString: string): Map<string, string> =>
  new Map(
    connectionString.split(";").map((part) => {
      const [name = "", value = ""] = part.split(/=(.*)/s);
      return [name.trim().toLowerCase(), value.trim().toLowerCase()];
    }),
  );
