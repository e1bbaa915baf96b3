import type { CallLimits } from "../../shared/platform/azure/calls.ts";
import { type Config, loadConfig } from "../../shared/platform/config/config.ts";

// This file must not import vitest: processes that tests start use it too.

/** Limits of calls to the cloud as in production, except that the first wait before a retry is 1 ms. */
export const SHORT_WAITS: Partial<CallLimits> = { firstWaitMs: 1 };

/** Returns the configuration of an app with these environment variables and the required ones. */
export function testConfig(environment: Record<string, string | undefined>): Config {
  return loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${Buffer.alloc(32, 1).toString("base64")}`,
    ...environment,
  });
}
