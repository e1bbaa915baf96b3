import fc from "fast-check";
import { expect, test } from "vitest";
import { expiryBounds, expiryKey } from "../../shared/inventory/asset-keys.ts";
import { type Moment, rangeOf, STATUSES, statusOf } from "../../shared/inventory/asset-status.ts";
import { countExpiries, packExpiries } from "../../shared/inventory/expiries.ts";
import { START } from "./write-assets.ts";

const DAY_SECONDS = 86_400;
/** Expiries around now and around the thresholds to the second, and far away in both directions. */
const expiry = fc.oneof(
  fc
    .tuple(fc.constantFrom(-1, 0, 1, 7, 8, 30, 31), fc.integer({ min: -2, max: 2 }))
    .map(([days, seconds]) => Math.floor(START / 1000) + days * DAY_SECONDS + seconds),
  fc.constantFrom(0, 1, 0xfffffffd, 0xfffffffe, 0xffffffff, 0x100000000, 9_999_999_998, 9_999_999_999, 253_402_300_799),
  fc.constant(undefined),
);
const moment = fc.record({
  now: fc.integer({ min: START - 2_000, max: START + 2_000 }),
  criticalDays: fc.constantFrom(0, 1, 7),
  warningDays: fc.constantFrom(8, 30),
});

test("every asset is in the expiry range of exactly its status, and counted there", () => {
  fc.assert(
    fc.property(fc.array(expiry, { maxLength: 30 }), moment, (expiries, at: Moment) => {
      const packed = packExpiries(expiries);
      for (const status of STATUSES) {
        const range = rangeOf(status, at);
        const having = expiries.filter((expiresOn) => statusOf(expiresOn, at) === status);
        expect(countExpiries(packed, range)).toBe(having.length);
        const { from, before } = expiryBounds("key", range.from, range.before, range.unset);
        const keys = expiries.map((expiresOn) => expiryKey("key", expiresOn, "name", "vault"));
        expect(keys.filter((key) => key >= from && key < before)).toHaveLength(having.length);
      }
    }),
  );
});

test("a range without an end contains and counts every later expiry", () => {
  const late = [0xffffffff, 9_999_999_999, 253_402_300_799];
  const { from, before } = expiryBounds("secret", START / 1000, 9_999_999_999, false);
  for (const expiresOn of late) {
    const key = expiryKey("secret", expiresOn, "name", "vault");
    expect(key >= from && key < before).toBe(true);
  }
  const none = expiryKey("secret", undefined, "name", "vault");
  expect(none >= from && none < before).toBe(false);
  const after2150 = { from: Date.parse("2150-01-01") / 1000, before: 9_999_999_999, unset: false };
  expect(countExpiries(packExpiries(late), after2150)).toBe(late.length);
});

test("an expiry before 1970 counts as expired, not as no expiry", () => {
  const at = { now: START, criticalDays: 7, warningDays: 30 };
  expect(countExpiries(packExpiries([-1]), rangeOf("expired", at))).toBe(1);
  expect(countExpiries(packExpiries([-1]), rangeOf("healthy", at))).toBe(0);
});
