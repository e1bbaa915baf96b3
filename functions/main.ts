/** Entry point of the app: validates the configuration and registers all functions with the platform. */
import { type Config, ConfigError, loadConfig } from "../shared/platform/config/config.ts";
import { builtIndex } from "./built-index.ts";
import { register } from "./register.ts";

// The names and triggers of all functions, as the build collected them. Their code is loaded at their first call.
const functions = builtIndex();

let config: Config | ConfigError;
try {
  config = loadConfig(process.env);
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  config = error;
}

if (config instanceof ConfigError) {
  // The platform reports an error only of an app that has functions; an app without functions looks empty. So the endpoints are
  // registered before the error is thrown. Timers are left out, because their schedules need the configuration. Queues are left
  // out, because each message would fail.
  const error = config;
  register({ ...functions, timers: [], queues: [] }, () => {
    throw error;
  });
  throw error;
}
const validConfig = config;
register(functions, () => validConfig);
