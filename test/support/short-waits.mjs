import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * A module that the functions hosts of some tests load at their start (`node --import`). It replaces `setTimeout` to shorten
 * pauses between retries: a pause from 0.2 to 10 seconds lasts a fortieth of the time. Time limits are longer and unchanged.
 * The functions host's own pauses are unchanged too. Otherwise, it would poll its queues and renew its leases hundreds of times
 * per second.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
 *
 * @param replacement - The replaced timer function that was called.
 */
const shortenPause = (milliseconds, replacement) =>
  milliseconds >= 200 && milliseconds <= 10_000 && !isCalledByHost(replacement) ? milliseconds / 40 : milliseconds;

/** Returns whether the functions host called the timer function. The host is one file, named in test-app.ts. */
function isCalledByHost(replacement) {
  const { stackTraceLimit } = Error;
  // The first stack frame above `replacement` is its caller.
  Error.stackTraceLimit = 1;
  const caller = {};
  Error.captureStackTrace(caller, replacement);
  Error.stackTraceLimit = stackTraceLimit;
  return caller.stack.includes("/host.mjs:");
}

const require = createRequire(import.meta.url);
const timers = require("node:timers");
const promises = require("node:timers/promises");

const { setTimeout: originalTimeout } = globalThis;
const shortTimeout = (work, milliseconds, ...rest) =>
  originalTimeout(work, shortenPause(milliseconds, shortTimeout), ...rest);
// `util.promisify` reads the promise version from a property of the function.
Object.defineProperties(shortTimeout, Object.getOwnPropertyDescriptors(originalTimeout));
globalThis.setTimeout = shortTimeout;
timers.setTimeout = shortTimeout;
const { setTimeout: originalPause } = promises;
promises.setTimeout = function shortPause(milliseconds, ...rest) {
  return originalPause(shortenPause(milliseconds, shortPause), ...rest);
};
syncBuiltinESMExports();
