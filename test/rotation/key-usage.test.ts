import { expect, test } from "vitest";
import { keyUsageOf, type VaultReads } from "../../shared/rotation/resource-keys/credential-usage.ts";

// Since when a key of an Azure resource was not read, from the logs of the vaults that store it.

const NOW = "2026-11-28T12:00:00.000Z";
const place = (vaultName: string, secretName = "key") => ({ vaultName, secretName });
const reads = (
  completeSince: string | undefined,
  lastReads: [string, string][] = [],
  synced: string[] = [],
  completeUntil = NOW,
): VaultReads => ({
  completeSince,
  completeUntil: completeSince && completeUntil,
  lastReads: new Map(lastReads),
  synced: new Set(synced),
});
const idleDays = (places: ReturnType<typeof place>[], vaults: [string, VaultReads | undefined][]) =>
  keyUsageOf(places, new Map(vaults)).idleDays;

test("the idle time is proven by the log that starts last, and ends with the last read of any place", () => {
  const [first, second] = [place("kv-A"), place("kv-b", "Key")];
  const since = (day: string) => reads(`2026-${day}T00:00:00.000Z`);
  expect(idleDays([first], [["kv-a", since("08-30")]])).toBe(90);
  expect(
    idleDays(
      [first, second],
      [
        ["kv-a", since("08-30")],
        ["kv-b", since("11-18")],
      ],
    ),
  ).toBe(10);
  const read = reads("2026-08-30T00:00:00.000Z", [["key", "2026-11-25T00:00:00.000Z"]]);
  expect(
    idleDays(
      [first, second],
      [
        ["kv-a", since("08-30")],
        ["kv-b", read],
      ],
    ),
  ).toBe(3);
});

test("a key is not idle longer than a vault secret stores it", () => {
  const created = (text: string) => Date.parse(text) / 1000;
  const old = { ...place("kv-a"), createdOn: created("2026-01-01T00:00:00Z") };
  const recent = { ...place("kv-b"), createdOn: created("2026-11-26T00:00:00Z") };
  const since = reads("2026-08-30T00:00:00.000Z");
  expect(idleDays([old], [["kv-a", since]])).toBe(90);
  expect(
    idleDays(
      [old, recent],
      [
        ["kv-a", since],
        ["kv-b", since],
      ],
    ),
  ).toBe(2);
});

test("the idle time ends when the log of a vault was last read", () => {
  const [first, second] = [place("kv-a"), place("kv-b")];
  const complete = reads("2026-08-30T00:00:00.000Z");
  const late = reads("2026-08-30T00:00:00.000Z", [], [], "2026-11-27T00:00:00.000Z");
  expect(idleDays([first], [["kv-a", late]])).toBe(89);
  expect(
    idleDays(
      [first, second],
      [
        ["kv-a", complete],
        ["kv-b", late],
      ],
    ),
  ).toBe(89);
});

test("without a complete log of each vault, or with a synced secret, nothing is said to be idle", () => {
  const complete = reads("2026-01-01T00:00:00.000Z");
  expect(idleDays([place("kv-a"), place("kv-b")], [["kv-a", complete]])).toBeUndefined();
  expect(idleDays([place("kv-a")], [["kv-a", reads(undefined)]])).toBeUndefined();
  expect(idleDays([place("kv-a")], [["kv-a", reads("2026-01-01T00:00:00.000Z", [], ["key"])]])).toBeUndefined();
  expect(idleDays([], [])).toBeUndefined();
});
