import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { type Cloud, type CloudOptions, startCloud } from "simulated-cloud/cloud.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";
import { testConfig } from "./config.ts";

/** Starts the simulated cloud, and gives this process the app's managed identity there. */
export async function liveIn(options: CloudOptions): Promise<{ cloud: Cloud; config: Config }> {
  const cloud = await startCloud({ keys: CLOUD_KEYS, ...options });
  await enter(cloud);
  return { cloud, config: configIn(cloud) };
}

/** Gives this process the managed identity of a running cloud, such as the cloud of a `Service`. */
export async function enter(cloud: Cloud): Promise<void> {
  process.env.IDENTITY_ENDPOINT = cloud.environment.IDENTITY_ENDPOINT;
  process.env.IDENTITY_HEADER = cloud.environment.IDENTITY_HEADER;
  await forgetManagedIdentity();
}

/** Returns the configuration of an app in this cloud, optionally with an application's secret. */
export function configIn(cloud: Cloud, clientSecret?: string): Config {
  const application = { AZURE_CLIENT_ID: cloud.app.clientId, AZURE_CLIENT_SECRET: clientSecret };
  return testConfig({ ...cloud.environment, ...(clientSecret ? application : {}) });
}

/** Clears MSAL's managed identity endpoint and tokens, which MSAL keeps for the whole process. */
async function forgetManagedIdentity(): Promise<void> {
  const library = createRequire(import.meta.resolve("@azure/identity")).resolve("@azure/msal-node/package.json");
  const keeper = async (name: string, member: string) => {
    const file = path.join(path.dirname(library), `dist/client/${name}.mjs`);
    const kept = ((await import(pathToFileURL(file).href)) as Record<string, Record<string, unknown>>)[name]!;
    kept[member] = undefined;
  };
  await keeper("ManagedIdentityClient", "identitySource");
  await keeper("ManagedIdentityApplication", "nodeStorage");
}
