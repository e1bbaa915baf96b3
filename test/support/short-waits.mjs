import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) that makes waits between tries short: of 0.2 to 10 seconds, a fortieth is left. Limits of time,
 * which are longer, stay as they are. So do the waits of the host, which would else ask for its queues and renew its leases
 * some hundred times a second.
 *
 * Plain JavaScript, so that it loads on every Node without type stripping.
 */
const shorter = (milliseconds, asked) =>
  milliseconds >= 200 && milliseconds <= 10_000 && !isHosts(asked) ? milliseconds / 40 : milliseconds;

/** Whether the function `asked` was called by the host, whose one file is named so in test-app.ts. */
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
// `util.promisify` finds the other one in a property of the function.
Object.defineProperties(shortened, Object.getOwnPropertyDescriptors(start));
globalThis.setTimeout = shortened;
timers.setTimeout = shortened;
const { setTimeout: pause } = promises;
promises.setTimeout = function shortPause(milliseconds, ...rest) {
  return pause(shorter(milliseconds, shortPause), ...rest);
};
syncBuiltinESMExports();
