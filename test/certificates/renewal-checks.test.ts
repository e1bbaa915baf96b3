// Tests of a scan's requests to the authorities of a vault's certificates, and of the answers in the vault's row.
import { randomBytes } from "node:crypto";
import { afterEach, expect, test, vi } from "vitest";
import { checkRenewals, readChecks } from "../../shared/certificates/renewal-checks.ts";
import type { RenewalInformation } from "../../shared/certificates/renewal-information.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { Logger } from "../../shared/platform/runtime.ts";
import { MAX_ENTITY_BYTES } from "../../shared/platform/storage/limits.ts";
import { DAY_SECONDS, HOUR_SECONDS } from "../../shared/platform/time.ts";
import { assetRecord, START, vaultRecord } from "../inventory/write-assets.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

const NOW = START / 1000;
const vault = vaultRecord("kv-one", "11111111-1111-4111-8111-111111111111");
vault.contents.certificate = "hash";

/** Returns certificates of the authorities A and B in turn. */
const certificatesOf = (count: number): Map<string, AssetRecord> =>
  new Map(
    Array.from({ length: count }, (_, index) => {
      const name = `www-${index}`;
      const certificate = { serialNumber: randomBytes(16).toString("hex"), authorityKeyId: "ab".repeat(20) };
      const issuer = index % 2 === 0 ? "CN=A" : "CN=B";
      return [
        name,
        assetRecord(vault, "certificate", name, { expiresOn: NOW + 90 * DAY_SECONDS, issuer, certificate }),
      ];
    }),
  );

/** Returns a function that scans the vault. Each scan gets the vault's row that the previous scan wrote. */
function scansOf(stored: Map<string, AssetRecord>) {
  const log: Logger = { debug() {}, info() {}, warn() {}, error() {} };
  let renewalChecks: Uint8Array | undefined;
  const counts = { asked: 0, reads: 0 };
  return {
    counts,
    checks: () => readChecks(renewalChecks!)!.checks,
    bytes: () => renewalChecks!.length,
    /** @param issuers - Issuers whose authorities are configured. */
    async scan(issuers: string, windowOf: () => Promise<void> = async () => {}) {
      Object.assign(counts, { asked: 0, reads: 0 });
      const renewalInformation: RenewalInformation = {
        isConfigured: true,
        configuration: issuers,
        directoryOf: (issuer) => (issuers.includes(issuer!.slice(3)) ? "https://acme.example/directory" : undefined),
        async windowOf() {
          counts.asked++;
          await windowOf();
          const window = { windowStart: NOW + 50 * DAY_SECONDS, windowEnd: NOW + 60 * DAY_SECONDS };
          return { ...window, checkedAt: NOW, retryAfter: NOW + 6 * HOUR_SECONDS };
        },
      };
      const storedCertificates = async () => {
        counts.reads++;
        return stored;
      };
      const now = new Date(START).toISOString();
      const deps = { renewalInformation, now, signal: new AbortController().signal, log };
      const windows = await checkRenewals({ ...vault, renewalChecks }, storedCertificates, deps);
      renewalChecks = windows.toStore();
      return windows;
    },
  };
}

test("the certificates of an authority that is configured later are requested once, and nothing else is read", async () => {
  const { scan, counts } = scansOf(certificatesOf(10));
  // No certificate of the vault has an authority, so that nothing is ever due by time.
  await scan("");
  expect(counts).toEqual({ asked: 0, reads: 1 });
  await scan("");
  expect(counts).toEqual({ asked: 0, reads: 0 });
  await scan("A");
  expect(counts).toEqual({ asked: 5, reads: 1 });
  const { changed } = await scan("AB");
  expect(counts).toEqual({ asked: 5, reads: 1 });
  expect([...changed].sort()).toEqual(Array.from({ length: 10 }, (_, index) => `www-${index}`));
  await scan("AB");
  expect(counts).toEqual({ asked: 0, reads: 0 });
});

test("a slow authority stops the questions of a scan, and the next scan continues", async () => {
  const { scan, counts, checks } = scansOf(certificatesOf(20));
  const deadline = new AbortController();
  vi.spyOn(AbortSignal, "timeout").mockReturnValueOnce(deadline.signal);
  // Four requests are in progress when the time is over. Their answers count.
  await scan("AB", async () => {
    if (counts.asked === 4) deadline.abort();
  });
  expect([counts.asked, Object.keys(checks()).length]).toEqual([4, 4]);
  await scan("AB");
  expect(counts.asked).toBe(16);
  await scan("AB");
  expect(counts).toEqual({ asked: 0, reads: 0 });
});

// A scan sends up to 200 requests for a vault, and asks for up to 5,000 of its certificates, so that the answers fit into the row.
test("the answers of the vault with the most certificates fit into its row", async () => {
  const { scan, counts, checks, bytes } = scansOf(certificatesOf(6_000));
  for (let scans = 0; scans < 25; scans++) {
    await scan("AB");
    expect(counts.asked).toBe(200);
  }
  await scan("AB");
  expect(counts).toEqual({ asked: 0, reads: 0 });
  expect(Object.keys(checks())).toHaveLength(5_000);
  // The row also has the expiries and renewals of these certificates, and its other columns.
  expect(bytes()).toBeLessThan(MAX_ENTITY_BYTES / 2);
});
