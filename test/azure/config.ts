import type { CallLimits } from "../../shared/platform/azure/calls.ts";
import { type Config, loadConfig } from "../../shared/platform/config/config.ts";

// Apart from what stands on vitest, for processes that tests start.

/** The patience of production, without its waits: only where nothing is answered does a test say how long is enough. */
export const IMPATIENT: Partial<CallLimits> = { firstWaitMs: 1 };

export function testConfig(environment: Record<string, string | undefined>): Config {
  return loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: `test:${Buffer.alloc(32, 1).toString("base64")}`,
    ...environment,
  });
}
