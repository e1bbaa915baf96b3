import type { TokenCredential } from "@azure/core-auth";

/**
 * How to reach the storage account: with its key or a shared access signature, or as a managed identity (https only).
 * `credential` is asked for once per table and queue, so it should give back the same one each time.
 */
export type StorageConnection =
  | { connectionString: string }
  | { tableServiceUri: string; queueServiceUri: string; credential: () => Promise<TokenCredential> };

/** True when the table endpoint is plain http, as an emulator's is; the SDK refuses that unless it is told. */
export function usesPlainHttp(connectionString: string): boolean {
  const parts = new Map(
    connectionString.split(";").map((part) => {
      const [name = "", value = ""] = part.split(/=(.*)/s);
      return [name.trim().toLowerCase(), value.trim().toLowerCase()];
    }),
  );
  if (parts.get("usedevelopmentstorage") === "true") return true;
  const endpoint = parts.get("tableendpoint");
  return endpoint ? endpoint.startsWith("http://") : parts.get("defaultendpointsprotocol") === "http";
}
