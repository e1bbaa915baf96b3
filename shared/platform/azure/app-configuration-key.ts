import type { HttpClient } from "@azure/core-rest-pipeline";

/**
 * Result of a request with a key. `unclear`: the service did not say whether the key is valid, for example because a firewall
 * blocks the request or the resource does not accept keys.
 */
export type KeyTest = "accepted" | "rejected" | "unclear";

/** No key-value has this key. The request shows only whether the store accepts the signature. */
const UNUSED_KEY = "none";

/**
 * Tests a key of an App Configuration store: lists the key-values with a key that is not in use. The request contains a
 * signature, not the key. `rejected` also if the store accepts no keys.
 *
 * @param endpoint - Origin of the store, from Azure Resource Manager.
 */
export async function testConfigurationKey(
  httpClient: HttpClient,
  endpoint: string,
  { id, value }: { id: string; value: string },
): Promise<KeyTest> {
  const { AppConfigurationClient } = await import("@azure/app-configuration");
  const connectionString = `Endpoint=${endpoint};Id=${id};Secret=${value}`;
  const client = new AppConfigurationClient(connectionString, { httpClient, retryOptions: { maxRetries: 0 } });
  try {
    await client.listConfigurationSettings({ keyFilter: UNUSED_KEY }).next();
    return "accepted";
  } catch (error) {
    const { statusCode } = error as { statusCode?: number };
    return statusCode === 401 || statusCode === 403 ? "rejected" : "unclear";
  }
}
