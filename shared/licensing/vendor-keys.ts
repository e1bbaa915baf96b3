/** A public Ed25519 key that licences are verified with. */
export interface LicenseKey {
  /** The licence's `kid` header names it. */
  kid: string;
  /** The 32 bytes of the public key in base64url, as in a JSON Web Key (RFC 8037 §2). */
  x: string;
}

/**
 * The vendor's keys, part of the bundle: no setting replaces them. To issue licences under a key of your own, make a pair
 * with `npm run licence -- keys --kid NAME --out FILE`, add the public half it prints here and keep the file secret. A key
 * stays as long as licences issued under it are in use; to withdraw all of those, remove it.
 */
export const VENDOR_KEYS: readonly LicenseKey[] = [
  { kid: "vendor-2026-11", x: "cSSY8SPpvBqUYz-yGdzM3_LeZlg85nyj6FbGITpe0Wk" },
];
