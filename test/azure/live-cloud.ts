import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { type Cloud, type CloudOptions, startCloud } from "simulated-cloud/cloud.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { CLOUD_KEYS } from "../support/test-app.ts";
import { testConfig } from "./config.ts";

/** Starts the stand-in cloud and makes this process live in it, with the app's managed identity. */
export async function liveIn(options: CloudOptions): Promise<{ cloud: Cloud; config: Config }> {
  const cloud = await startCloud({ keys: CLOUD_KEYS, ...options });
  await enter(cloud);
  return { cloud, config: configIn(cloud) };
}

/** Makes this process live in a cloud that runs, such as that of a `Service`. */
export async function enter(cloud: Cloud): Promise<void> {
  process.env.IDENTITY_ENDPOINT = cloud.environment.IDENTITY_ENDPOINT;
  process.env.IDENTITY_HEADER = cloud.environment.IDENTITY_HEADER;
  await forgetManagedIdentity();
}

/** The configuration of an app in this cloud, with an application's secret where one is given. */
export function configIn(cloud: Cloud, clientSecret?: string): Config {
  const application = { AZURE_CLIENT_ID: cloud.app.clientId, AZURE_CLIENT_SECRET: clientSecret };
  return testConfig({ ...cloud.environment, ...(clientSecret ? application : {}) });
}

/** MSAL keeps a managed identity's endpoint and tokens for the whole process, which may have lived in another cloud before. */
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
