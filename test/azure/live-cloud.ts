import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { type Cloud, type CloudOptions, startCloud } from "simulated-cloud/cloud.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";
import { testConfig } from "./config.ts";

/** Starts the simulated cloud and gives this process the app's managed identity in that cloud. */
export async function startTestCloud(options: CloudOptions): Promise<{ cloud: Cloud; config: Config }> {
  const cloud = await startCloud({ keys: CLOUD_KEYS, ...options });
  await useManagedIdentity(cloud);
  return { cloud, config: configFor(cloud) };
}

/** Gives this process the managed identity of a running cloud, such as the cloud of a `Service`. */
export async function useManagedIdentity(cloud: Cloud): Promise<void> {
  process.env.IDENTITY_ENDPOINT = cloud.environment.IDENTITY_ENDPOINT;
  process.env.IDENTITY_HEADER = cloud.environment.IDENTITY_HEADER;
  await resetManagedIdentity();
}

/**
 * Returns the configuration of the app in this cloud. With a client secret, the app signs in with it instead of its managed
 * identity.
 */
export function configFor(cloud: Cloud, clientSecret?: string): Config {
  const application = { AZURE_CLIENT_ID: cloud.app.clientId, AZURE_CLIENT_SECRET: clientSecret };
  return testConfig({ ...cloud.environment, ...(clientSecret ? application : {}) });
}

/**
 * Clears the managed identity endpoint and tokens that MSAL, Microsoft's sign-in library, caches for the whole process. MSAL
 * has no public function for this, so the function sets private static members of two MSAL classes.
 */
async function resetManagedIdentity(): Promise<void> {
  const library = createRequire(import.meta.resolve("@azure/identity")).resolve("@azure/msal-node/package.json");
  const clearMember = async (name: string, member: string) => {
    const file = path.join(path.dirname(library), `dist/client/${name}.mjs`);
    const msalClass = ((await import(pathToFileURL(file).href)) as Record<string, Record<string, unknown>>)[name]!;
    msalClass[member] = undefined;
  };
  await clearMember("ManagedIdentityClient", "identitySource");
  await clearMember("ManagedIdentityApplication", "nodeStorage");
}
