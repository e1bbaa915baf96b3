import { createRequire, syncBuiltinESMExports } from "node:module";

/**
 * Preload (`node --import`) that makes waits between tries short: of 0.2 to 10 seconds, a fortieth is left. Limits of time,
 * which are longer, stay as they are.
 *
 * Plain JavaScript, so that it loads on every Node without type stripping.
 */
const shorter = (milliseconds) => (milliseconds >= 200 && milliseconds <= 10_000 ? milliseconds / 40 : milliseconds);

const require = createRequire(import.meta.url);
const timers = require("node:timers");
const promises = require("node:timers/promises");

const { setTimeout: start } = globalThis;
const shortened = new Proxy(start, {
  apply: (target, self, [work, milliseconds, ...rest]) =>
    Reflect.apply(target, self, [work, shorter(milliseconds), ...rest]),
});
globalThis.setTimeout = shortened;
timers.setTimeout = shortened;
const { setTimeout: pause } = promises;
promises.setTimeout = (milliseconds, ...rest) => pause(shorter(milliseconds), ...rest);
syncBuiltinESMExports();
