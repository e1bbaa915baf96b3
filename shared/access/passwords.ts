import { type ScryptOptions, scrypt, timingSafeEqual } from "node:crypto";
import type { Randomness } from "../platform/runtime.ts";
import { createFairQueue } from "./fair-queue.ts";

/**
 * The 16 MiB option (N × r × 128 bytes) for scrypt in
 * https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html#scrypt
 */
// Scrypt's own parameter names: cost N (as its binary logarithm), block size r, parallelization p.
const LOG_N = 14;
const R = 8;
const P = 5;
const SALT_BYTES = 16;
const HASH_BYTES = 32;

/** Maximum number of waiting calls. Further calls are rejected. Each call takes about 100 ms and 16 MiB. */
const MAX_WAITING = 32;

/** A key derivation function: scrypt, or a fast replacement in tests. */
export type Derive = (password: string, salt: Uint8Array, parameters: ScryptOptions) => Promise<Uint8Array>;

export const deriveWithScrypt: Derive = (password, salt, parameters) =>
  new Promise((resolve, reject) => {
    scrypt(password, salt, HASH_BYTES, parameters, (error, hash) => (error ? reject(error) : resolve(hash)));
  });

/**
 * Hashes and verifies passwords one at a time within this instance, so that anonymous sign-ins can't exhaust its memory. Both
 * methods throw the problem rateLimited if too many calls are waiting.
 */
export interface Passwords {
  /** Returns the hash as text, with its parameters and salt: `$scrypt$ln=14,r=8,p=5$<salt>$<hash>`. */
  hash(password: string): Promise<string>;
  /**
   * Returns true if the password matches the hash. Without a hash it returns false after the same time, so that the duration
   * does not reveal whether a user exists.
   */
  verify(password: string, hashed: string | undefined): Promise<boolean>;
}

export function createPasswords(deps: { randomness: Randomness; derive?: Derive }): Passwords {
  const { randomness, derive = deriveWithScrypt } = deps;
  const queue = createFairQueue({ known: MAX_WAITING, unknown: 0 });
  /**
   * One position for all calls: sign-ins already wait in the queue of sign-in.ts. The other callers are users who choose a
   * password.
   */
  const position = { queue: "known", source: "" } as const;
  const decoy = { salt: randomness.bytes(SALT_BYTES), parameters: parametersOf(LOG_N, R, P) };

  return {
    async hash(password) {
      const salt = randomness.bytes(SALT_BYTES);
      const hash = await queue.run(position, () => derive(normalize(password), salt, parametersOf(LOG_N, R, P)));
      return `$scrypt$ln=${LOG_N},r=${R},p=${P}$${base64(salt)}$${base64(hash)}`;
    },
    async verify(password, hashed) {
      const stored = hashed === undefined ? undefined : parse(hashed);
      const { salt, parameters } = stored ?? decoy;
      const hash = await queue.run(position, () => derive(normalize(password), salt, parameters));
      return stored !== undefined && hash.length === stored.hash.length && timingSafeEqual(hash, stored.hash);
    },
  };
}

/**
 * Normalizes a password, because keyboards compose characters differently:
 * https://pages.nist.gov/800-63-4/sp800-63b.html#passwordver
 */
const normalize = (password: string): string => password.normalize("NFKC");

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64").replace(/=+$/, "");

/** `maxmem` is slightly more than these parameters need, because OpenSSL also counts its working memory. */
const parametersOf = (logN: number, r: number, p: number): ScryptOptions => ({
  N: 2 ** logN,
  r,
  p,
  maxmem: 128 * r * (2 ** logN + p + 8),
});

function parse(hashed: string): { salt: Uint8Array; hash: Uint8Array; parameters: ScryptOptions } {
  // Matches for example `$scrypt$ln=14,r=8,p=5$<salt>$<hash>`, with salt and hash in Base64.
  const match = /^\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([\w+/]+)\$([\w+/]+)$/.exec(hashed);
  if (!match) throw new Error("A stored password hash does not have the format that this service writes.");
  const [, logN, r, p, salt, hash] = match;
  return {
    salt: Buffer.from(salt!, "base64"),
    hash: Buffer.from(hash!, "base64"),
    parameters: parametersOf(Number(logN), Number(r), Number(p)),
  };
}
