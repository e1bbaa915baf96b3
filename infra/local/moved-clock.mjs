import { readFileSync } from "node:fs";
import { ServerResponse } from "node:http";

/**
 * Preload (`node --import`) that moves a process's clock: `MOVED_CLOCK_FILE` names a file that holds by how many
 * milliseconds, as a whole number, and may change while the process runs. A missing or empty file moves nothing. Several
 * processes with one file share one time. Timers, and what other processes think of the time, stay as they are: the
 * service goes by the storage emulator's time, so that is the process to move. Write the file by renaming another one to it, so that no half of a number is read.
 *
 * Plain JavaScript, so that it loads on every Node without type stripping.
 */

/** Milliseconds for which an offset that was read serves. */
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

  // A server's answers get their `Date` from inside of Node, which keeps the real one.
  const { writeHead } = ServerResponse.prototype;
  ServerResponse.prototype.writeHead = function (...args) {
    if (this.sendDate && !this.hasHeader("date")) this.setHeader("date", new Date().toUTCString());
    return writeHead.apply(this, args);
  };
}
