import pMap from "p-map";
import type { AssetRecord } from "../inventory/asset.ts";
import { type RenewalCheck, RenewalChecks } from "../inventory/certificate-facts.ts";
import type { AriWindow } from "../inventory/renewal.ts";
import type { Logger } from "../platform/runtime.ts";
import { pack, undefinedIfNotPacked, unpackBytes } from "../platform/storage/packed-members.ts";
import { SECOND_MS } from "../platform/time.ts";
import { certificateIdOf, NoRenewalInformation, type RenewalInformation } from "./renewal-information.ts";

/**
 * Asks the authorities of a vault's certificates for renewal windows, before a scan reads the certificates. The vault's row
 * contains the last answer for each certificate and the time of the next request. So if no certificate of the vault is due, the
 * scan sends no request to an authority and reads no stored asset.
 */

/** Maximum number of requests per scan of a vault. The next scan continues with the rest. */
const MAX_REQUESTS = 200;
const MAX_CONCURRENT_REQUESTS = 4;
/** After this time, the scan of a vault sends no more requests, so that slow authorities don't delay the scan for minutes. */
const MAX_REQUESTING_MS = 20 * SECOND_MS;
/** Maximum number of certificates of a vault for which windows are requested. The answers must fit into the vault's row. */
const MAX_CERTIFICATES = 5_000;

/** The windows of a vault's certificates. */
export interface RenewalWindows {
  /** Returns the window of this version of a certificate. Undefined if none is known. */
  windowOf(asset: Pick<AssetRecord, "name" | "certificate">): AriWindow | undefined;
  /** Lower-case names of the certificates whose window differs from the stored one. The scan must write these certificates. */
  changed: ReadonlySet<string>;
  /** Returns the member `renewalChecks` of the vault's row. */
  toStore(): Uint8Array<ArrayBuffer> | undefined;
}

const NO_WINDOWS: RenewalWindows = { windowOf: () => undefined, changed: new Set(), toStore: () => undefined };

/**
 * Returns the windows of a vault's certificates, and requests those that are due from the certificate authorities. If a request
 * fails, its certificate keeps the last known window.
 *
 * @param vault - Its row before the scan.
 * @param storedCertificates - Reads the stored certificates by lower-case name.
 */
export async function checkRenewals(
  vault: { name: string; contents: { certificate?: string | undefined }; renewalChecks?: Uint8Array | undefined },
  storedCertificates: () => Promise<ReadonlyMap<string, AssetRecord>>,
  deps: { renewalInformation: RenewalInformation; now: string; signal: AbortSignal; log: Logger },
): Promise<RenewalWindows> {
  const { renewalInformation, log } = deps;
  if (!renewalInformation.isConfigured) return NO_WINDOWS;
  const now = Math.floor(Date.parse(deps.now) / SECOND_MS);
  // Hash of the certificates as stored before this scan. If this scan changes them, the hash no longer matches, and the next
  // scan asks for the new ones.
  const contents = vault.contents.certificate ?? "";
  const before = vault.renewalChecks && readChecks(vault.renewalChecks);
  const { configuration } = renewalInformation;
  const isUpToDate = before?.certificates === contents && before.configuration === configuration && now < before.nextAt;
  if (isUpToDate) return windowsOf(before, new Set());

  const assets = await storedCertificates();
  const checks: Record<string, RenewalCheck> = {};
  const due: { name: string; id: string; directory: string; last: RenewalCheck | undefined }[] = [];
  let certificatesWithAuthority = 0;
  for (const [name, asset] of assets) {
    const id = certificateIdOf(asset.certificate);
    const directory = renewalInformation.directoryOf(asset.issuer);
    // An expired certificate has no renewal left to wait for.
    if (!id || !directory || !asset.enabled || (asset.expiresOn ?? 0) <= now) continue;
    if (++certificatesWithAuthority > MAX_CERTIFICATES) break;
    const stored = before && Object.hasOwn(before.checks, name) ? before.checks[name] : undefined;
    const last = stored?.id === id ? stored : undefined;
    if (last) checks[name] = last;
    if (!last || last.retryAfter <= now) due.push({ name, id, directory, last });
  }
  // Certificates that were never asked for come first, then those that have waited longest.
  due.sort((a, b) => (a.last?.retryAfter ?? 0) - (b.last?.retryAfter ?? 0));
  const deadline = AbortSignal.timeout(MAX_REQUESTING_MS);
  let asked = 0;
  let failures = 0;
  await pMap(
    due.slice(0, MAX_REQUESTS),
    async ({ name, id, directory, last }) => {
      if (deadline.aborted || deps.signal.aborted) return;
      asked++;
      // Without a check in the vault's row, the last known window is the one that is stored with the certificate.
      const lastWindow = last?.window ?? assets.get(name)!.ari;
      try {
        const window = await renewalInformation.windowOf(directory, id, deps.signal);
        checks[name] = {
          id,
          window: keepIfSame(lastWindow, window),
          checkedAt: window.checkedAt,
          retryAfter: window.retryAfter,
        };
      } catch (error) {
        if (!(error instanceof NoRenewalInformation)) throw error;
        failures++;
        const { message: reason, retryAfter } = error;
        checks[name] = {
          id,
          ...(lastWindow && { window: lastWindow }),
          checkedAt: now,
          retryAfter,
          failure: reason,
        };
      }
    },
    { concurrency: MAX_CONCURRENT_REQUESTS },
  );
  if (failures > 0) log.warn("renewal information is missing", { vault: vault.name, failures, asked });
  const changed = new Set(
    Object.entries(checks).flatMap(([name, { window }]) => (isSame(assets.get(name)?.ari, window) ? [] : [name])),
  );
  // The next check is due at the earliest `retryAfter`. If certificates are left over, it is due now: the next scan continues.
  // Without any certificate it is due only when the certificates or the configured authorities change.
  const retryTimes = Object.values(checks).map(({ retryAfter }) => retryAfter);
  const nextAt = due.length > asked ? now : retryTimes.reduce((a, b) => Math.min(a, b), Number.MAX_SAFE_INTEGER);
  return windowsOf({ certificates: contents, configuration, nextAt, checks }, changed);
}

function windowsOf(renewalChecks: RenewalChecks, changed: ReadonlySet<string>): RenewalWindows {
  const { checks } = renewalChecks;
  return {
    windowOf({ name, certificate }) {
      const check = checks[name.toLowerCase()];
      return check && check.id === certificateIdOf(certificate) ? check.window : undefined;
    },
    changed,
    toStore: () => pack(renewalChecks),
  };
}

/** Returns the checks of a vault's row. Undefined if another program wrote the bytes: the authorities are then asked again. */
export const readChecks = (bytes: Uint8Array): RenewalChecks | undefined =>
  undefinedIfNotPacked(() => unpackBytes(bytes, RenewalChecks));

const isSame = (first: AriWindow | undefined, second: AriWindow | undefined): boolean =>
  first?.windowStart === second?.windowStart && first?.windowEnd === second?.windowEnd;

/** Keeps the times of an unchanged window, so that reading it again does not change the asset. */
const keepIfSame = (last: AriWindow | undefined, window: AriWindow): AriWindow =>
  last && isSame(last, window) ? last : window;
