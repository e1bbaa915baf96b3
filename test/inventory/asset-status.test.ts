// Statuses of assets (healthy, warning, critical, expired) and the ranges of expiries that correspond to them in row keys and
// counts.
import fc from "fast-check";
import { expect, test } from "vitest";
import { expiryBounds, expiryKey } from "../../shared/inventory/asset-keys.ts";
import { type Moment, rangeOf, STATUSES, statusOf } from "../../shared/inventory/asset-status.ts";
import { countExpiries, packExpiries } from "../../shared/inventory/expiries.ts";
import { START } from "./write-assets.ts";

const DAY_SECONDS = 86_400;
/** Generates expiries: within seconds of now and of thresholds, far away, at the limits of row keys and 32 bits, and none. */
const anyExpiry = fc.oneof(
  fc
    .tuple(fc.constantFrom(-1, 0, 1, 7, 8, 30, 31), fc.integer({ min: -2, max: 2 }))
    .map(([days, seconds]) => Math.floor(START / 1000) + days * DAY_SECONDS + seconds),
  fc.constantFrom(0, 1, 0xfffffffd, 0xfffffffe, 0xffffffff, 0x100000000, 9_999_999_998, 9_999_999_999, 253_402_300_799),
  fc.constant(undefined),
);
/** Generates a time and a policy. */
const anyMoment = fc.record({
  now: fc.integer({ min: START - 2_000, max: START + 2_000 }),
  criticalDays: fc.constantFrom(0, 1, 7),
  warningDays: fc.constantFrom(8, 30),
});

test("the expiry range of a status contains and counts exactly the assets with that status", () => {
  fc.assert(
    fc.property(fc.array(anyExpiry, { maxLength: 30 }), anyMoment, (expiries, moment: Moment) => {
      const packed = packExpiries(expiries);
      for (const status of STATUSES) {
        const range = rangeOf(status, moment);
        const withStatus = expiries.filter((expiresOn) => statusOf(expiresOn, moment) === status);
        expect(countExpiries(packed, range)).toBe(withStatus.length);
        const { from, before } = expiryBounds("key", range.from, range.before, range.unset);
        const keys = expiries.map((expiresOn) => expiryKey("key", expiresOn, "name", "vault"));
        expect(keys.filter((key) => key >= from && key < before)).toHaveLength(withStatus.length);
      }
    }),
  );
});

test("a range up to the last ten-digit second contains and counts every later expiry, but not assets without one", () => {
  const lateExpiries = [0xffffffff, 9_999_999_999, 253_402_300_799];
  const { from, before } = expiryBounds("secret", START / 1000, 9_999_999_999, false);
  for (const expiresOn of lateExpiries) {
    const key = expiryKey("secret", expiresOn, "name", "vault");
    expect(key >= from && key < before).toBe(true);
  }
  const keyWithoutExpiry = expiryKey("secret", undefined, "name", "vault");
  expect(keyWithoutExpiry >= from && keyWithoutExpiry < before).toBe(false);
  const after2150 = { from: Date.parse("2150-01-01") / 1000, before: 9_999_999_999, unset: false };
  expect(countExpiries(packExpiries(lateExpiries), after2150)).toBe(lateExpiries.length);
});

test("an expiry before 1970 counts as expired, not as no expiry", () => {
  const moment = { now: START, criticalDays: 7, warningDays: 30 };
  expect(countExpiries(packExpiries([-1]), rangeOf("expired", moment))).toBe(1);
  expect(countExpiries(packExpiries([-1]), rangeOf("healthy", moment))).toBe(0);
});
