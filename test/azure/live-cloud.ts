import { type Cloud, type CloudOptions, startCloud } from "../../infra/local/cloud/cloud.ts";
import type { Config } from "../../shared/config/config.ts";
import { testConfig } from "./config.ts";
import { trust } from "./odd-server.ts";

/** Starts the stand-in cloud and makes this process live in it, with the app's managed identity. */
export async function liveIn(options: CloudOptions): Promise<{ cloud: Cloud; config: Config }> {
  const cloud = await startCloud(options);
  trust(cloud.environment.NODE_EXTRA_CA_CERTS!);
  process.env.IDENTITY_ENDPOINT = cloud.environment.IDENTITY_ENDPOINT;
  process.env.IDENTITY_HEADER = cloud.environment.IDENTITY_HEADER;
  return { cloud, config: configIn(cloud) };
}

/** The configuration of an app in this cloud, with an application's secret where one is given. */
export function configIn(cloud: Cloud, clientSecret?: string): Config {
  const application = { AZURE_CLIENT_ID: cloud.app.clientId, AZURE_CLIENT_SECRET: clientSecret };
  return testConfig({ ...cloud.environment, ...(clientSecret ? application : {}) });
}
