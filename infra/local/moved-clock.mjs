import { readFileSync } from "node:fs";
import { ServerResponse } from "node:http";

/**
 * Preload (`node --import`) that moves the clock of a process, for tests of expiry and schedules. The environment variable
 * `MOVED_CLOCK_FILE` names a file with the offset in whole milliseconds. A missing or empty file means no offset. The file can
 * change while the process runs, and several processes can share it. To change it, write another file and rename it, so that no
 * process reads a part of a number. Timers keep their real durations. The service takes its time from storage, so tests also
 * move the clock of Azurite.
 *
 * The file is plain JavaScript, because some Node versions that load it cannot strip types.
 */

/** Time for which the offset is reused before the file is read again. */
const OFFSET_LIFETIME_MS = 100;

const file = process.env.MOVED_CLOCK_FILE;
const RealDate = Date;
let offsetMs = 0;
let readAt = Number.NEGATIVE_INFINITY;

function currentOffset() {
  const elapsedMs = performance.now();
  if (elapsedMs - readAt < OFFSET_LIFETIME_MS) return offsetMs;
  readAt = elapsedMs;
  let text;
  try {
    text = readFileSync(file, "utf8").trim();
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    text = "";
  }
  if (!/^-?\d{0,15}$/.test(text)) throw new Error(`${file} must contain a whole number of milliseconds.`);
  offsetMs = Number(text);
  return offsetMs;
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
