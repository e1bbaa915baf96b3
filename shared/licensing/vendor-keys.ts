/** A public Ed25519 key that verifies licenses. */
export interface LicenseKey {
  /** The value of the license's `kid` header. */
  kid: string;
  /** The 32 bytes of the public key in base64url, as in a JSON Web Key (RFC 8037 §2). */
  x: string;
}

/**
 * The vendor's keys, compiled into the app. No setting can replace them. To issue licenses with your own key, run `npm run
 * licence -- keys --kid NAME --out FILE`, add the printed public key here and keep the file secret. Do not remove a key while
 * its licenses are in use: removing a key revokes all licenses that were signed with it.
 */
export const VENDOR_KEYS: readonly LicenseKey[] = [
  { kid: "vendor-2026-11", x: "cSSY8SPpvBqUYz-yGdzM3_LeZlg85nyj6FbGITpe0Wk" },
];
