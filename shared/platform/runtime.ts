import { randomBytes } from "node:crypto";
import { monotonicFactory } from "ulid";

/** The moment it is. The domain asks no other clock, so that a test can set it. */
export interface Clock {
  now(): Date;
}

/** Where the domain's chance comes from. */
export interface Randomness {
  /** Uniform in [0, 1). For jitter, never for secrets. */
  number(): number;
  /** Cryptographically strong bytes. */
  bytes(length: number): Uint8Array;
  /** A ULID for the given instant: sorts by time, unique within and across instances. */
  ulid(at: Date): string;
}

/** One line per call; `fields` must never hold a secret value. */
export interface Logger {
  debug(message: string, fields?: Record<string, unknown>): void;
  /** @param kind - `event` for a line that an alert rule reads: it is written at every log level. */
  info(message: string, fields?: Record<string, unknown>, kind?: "event"): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
}

/**
 * The same text, by itself. The engine keeps a part of a text as a reference to the whole, which stays in memory as long: for
 * parts of which a scan keeps one an asset.
 */
export const detached = (part: string): string => Buffer.from(part).toString();

export const systemClock: Clock = { now: () => new Date() };

export function systemRandomness(): Randomness {
  const ulid = monotonicFactory();
  return {
    number: Math.random,
    bytes: (length) => randomBytes(length),
    ulid: (at) => ulid(at.getTime()),
  };
}
