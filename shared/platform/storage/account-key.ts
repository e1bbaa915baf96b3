import type { HttpClient } from "@azure/core-rest-pipeline";

/**
 * Result of a request with a key. `unclear`: the service did not say whether the key is valid, for example because a firewall
 * blocks the request or the account does not accept keys.
 */
export type KeyTest = "accepted" | "rejected" | "unclear";

/**
 * Tests a key of a storage account: reads the properties of its queue service once, which changes nothing. The request contains a
 * signature, not the key.
 *
 * @param httpClient - Limits the time of the request and the addresses.
 * @param endpoint - Address of the queue service, from Azure Resource Manager.
 */
export async function testStorageKey(
  httpClient: HttpClient,
  endpoint: string,
  account: string,
  key: string,
): Promise<KeyTest> {
  const { QueueServiceClient, RestError, StorageSharedKeyCredential } = await import("@azure/storage-queue");
  const credential = new StorageSharedKeyCredential(account, key);
  const client = new QueueServiceClient(endpoint, credential, { httpClient, retryOptions: { maxTries: 1 } });
  try {
    await client.getProperties();
    return "accepted";
  } catch (error) {
    // Other codes with this status do not depend on the key, such as `AuthorizationFailure` of a firewall.
    const isRejected = error instanceof RestError && error.statusCode === 403 && error.code === "AuthenticationFailed";
    return isRejected ? "rejected" : "unclear";
  }
}
