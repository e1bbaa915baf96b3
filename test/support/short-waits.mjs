import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) that shortens pauses between retries: pauses from 0.2 to 10 seconds last a fortieth of the time.
 * Time limits are longer and unchanged. The functions host's own pauses are unchanged too; otherwise, it would poll its queues
 * and renew its leases hundreds of times per second.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
 */
const shorter = (milliseconds, asked) =>
  milliseconds >= 200 && milliseconds <= 10_000 && !isHosts(asked) ? milliseconds / 40 : milliseconds;

/** Returns whether the functions host called `asked`. The host is one file, named in test-app.ts. */
function isHosts(asked) {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 1;
  const caller = {};
  Error.captureStackTrace(caller, asked);
  Error.stackTraceLimit = stackTraceLimit;
  return caller.stack.includes("/host.mjs:");
}

const require = createRequire(import.meta.url);
const timers = require("node:timers");
const promises = require("node:timers/promises");

const { setTimeout: start } = globalThis;
const shortened = (work, milliseconds, ...rest) => start(work, shorter(milliseconds, shortened), ...rest);
// `util.promisify` reads the promise version from a property of the function.
Object.defineProperties(shortened, Object.getOwnPropertyDescriptors(start));
globalThis.setTimeout = shortened;
timers.setTimeout = shortened;
const { setTimeout: pause } = promises;
promises.setTimeout = function shortPause(milliseconds, ...rest) {
  return pause(shorter(milliseconds, shortPause), ...rest);
};
syncBuiltinESMExports();
