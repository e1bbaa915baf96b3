import type { CallLimits } from "../../shared/platform/azure/calls.ts";
import { type Config, loadConfig } from "../../shared/platform/config/config.ts";

// Free of vitest, because processes that tests start use this file too.

/** The limits of production without their waits. */
export const IMPATIENT: Partial<CallLimits> = { firstWaitMs: 1 };

export function testConfig(environment: Record<string, string | undefined>): Config {
  return loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${Buffer.alloc(32, 1).toString("base64")}`,
    ...environment,
  });
}
