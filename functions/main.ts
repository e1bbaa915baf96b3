/** The app: tells the platform of every function, with the configuration checked. */
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
  // What is registered before the throw makes the platform report the reason; an app that registered nothing looks to it
  // like one without functions.
  const reason = config;
  register({ ...functions, timers: [], queues: [] }, () => {
    throw reason;
  });
  throw reason;
}
const usable = config;
register(functions, () => usable);
