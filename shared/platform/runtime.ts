import { randomBytes } from "node:crypto";
import { monotonicFactory } from "ulid";

/** Source of the current time. Domain modules use no other clock, so that tests can set the time. */
export interface Clock {
  now(): Date;
}

/** Source of randomness for the domain modules. */
export interface Randomness {
  /** Uniform in [0, 1). For jitter, never for secrets. */
  number(): number;
  /** Cryptographically strong bytes. */
  bytes(length: number): Uint8Array;
  /** Returns a ULID for the given time. ULIDs sort by time and are unique within and across instances. */
  ulid(at: Date): string;
}

/** Logs one line per call. `fields` must never contain a secret value. */
export interface Logger {
  debug(message: string, fields?: Record<string, unknown>): void;
  /** @param kind - `event` for a line that an alert rule queries. It is written at every log level. */
  info(message: string, fields?: Record<string, unknown>, kind?: "event"): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
}

/**
 * Copies a text that is part of another text. V8 stores a substring as a reference to the whole text, which then can't be
 * freed. Used for texts that a scan holds in memory for each asset.
 */
export const copyText = (part: string): string => Buffer.from(part).toString();

export const systemClock: Clock = { now: () => new Date() };

/** Returns the randomness of the process. */
export function systemRandomness(): Randomness {
  const ulid = monotonicFactory();
  return {
    number: Math.random,
    bytes: (length) => randomBytes(length),
    ulid: (at) => ulid(at.getTime()),
  };
}
