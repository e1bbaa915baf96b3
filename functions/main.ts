/** Entry point of the app: validates the configuration and registers all functions with the platform. */
import { type Config, ConfigError, loadConfig } from "../shared/platform/config/config.ts";
import { builtIndex } from "./built-index.ts";
import { register } from "./register.ts";

const functions = builtIndex();

let config: Config | ConfigError;
try {
  config = loadConfig(process.env);
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  config = error;
}

if (config instanceof ConfigError) {
  // The platform reports the error only if functions are registered before it is thrown. Without functions the app looks empty.
  const error = config;
  register({ ...functions, timers: [], queues: [] }, () => {
    throw error;
  });
  throw error;
}
const validConfig = config;
register(functions, () => validConfig);
