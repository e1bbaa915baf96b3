import { readFileSync } from "node:fs";
import { ServerResponse } from "node:http";

/**
 * Preload (`node --import`) that moves the clock of a process. `MOVED_CLOCK_FILE` names a file with the offset in whole
 * milliseconds. The file can change while the process runs, and several processes can share it. A missing or empty file means
 * no offset. Timers keep their real durations. The service follows the clock of storage, so that a test moves the clock of
 * Azurite. To change the offset, rename another file to it, so that no process reads half a number.
 *
 * Plain JavaScript, so that the file loads on every Node without type stripping.
 */

/** Milliseconds until the file is read again. */
const FRESH_MS = 100;

const file = process.env.MOVED_CLOCK_FILE;
const RealDate = Date;
let offset = 0;
let readAt = Number.NEGATIVE_INFINITY;

function currentOffset() {
  const now = performance.now();
  if (now - readAt < FRESH_MS) return offset;
  readAt = now;
  let text;
  try {
    text = readFileSync(file, "utf8").trim();
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    text = "";
  }
  if (!/^-?\d{0,15}$/.test(text)) throw new Error(`${file} must hold a whole number of milliseconds.`);
  offset = Number(text);
  return offset;
}

const movedNow = () => RealDate.now() + currentOffset();

if (file) {
  globalThis.Date = new Proxy(RealDate, {
    construct: (target, args, newTarget) =>
      Reflect.construct(target, args.length === 0 ? [movedNow()] : args, newTarget),
    apply: (target) => new target(movedNow()).toString(),
    get: (target, name, receiver) => (name === "now" ? movedNow : Reflect.get(target, name, receiver)),
  });
  RealDate.prototype.constructor = globalThis.Date;

  // Node sets the `Date` header of responses from the real clock.
  const { writeHead } = ServerResponse.prototype;
  ServerResponse.prototype.writeHead = function (...args) {
    if (this.sendDate && !this.hasHeader("date")) this.setHeader("date", new Date().toUTCString());
    return writeHead.apply(this, args);
  };
}
