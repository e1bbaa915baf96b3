import { createPublicKey } from "node:crypto";
import * as z from "zod";
import type { Config } from "../../platform/config/config.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { readRows } from "../read-rows.ts";
import { KEYS_PARTITION, RecordRow } from "../rows.ts";
import { createEntryAuthentication, type EntryAuthentication } from "./entry-authentication.ts";
import {
  type PublicKeys,
  publicKeyFrom,
  publicKeyText,
  readStatement,
  type SigningKey,
  signingKey,
  signStatement,
} from "./signing.ts";

/**
 * A statement by which a key vouches for an older one, so that signatures of the older key stay valid after it was removed from
 * the configuration.
 */
export const VouchedKey = z.object({ kid: z.string(), publicKey: z.string() });

/**
 * The signing key of the audit log, and the public keys whose signatures are trusted. Keys are rotated: the newest configured
 * key signs, and it vouches for the earlier keys, so that these can be removed from the configuration.
 */
export interface Trust {
  /** The signing key. Undefined if `AUDIT_SIGNING_KEYS` is not set; then nothing is sealed. */
  readonly signer: SigningKey | undefined;
  /** Makes and checks the authentication codes of entries, with keys that are derived from the configured ones. */
  readonly authentication: EntryAuthentication;
  /** Returns the configured keys and the keys that they vouch for, directly or through other keys. */
  keys(): Promise<PublicKeys>;
  /**
   * Returns the same keys with the statements that vouch for them (exports contain these), and the row keys of invalid
   * statements.
   */
  vouched(): Promise<{ keys: PublicKeys; statements: string[]; changed: string[] }>;
  /** Stores a statement of the signing key for each other trusted key that has none yet. Sealing calls it. */
  vouch(): Promise<void>;
}

/**
 * Creates the set of trusted keys.
 *
 * @param seeds - The configured keys. The first one signs.
 */
export function createTrust(tables: Tables, seeds: Config["AUDIT_SIGNING_KEYS"]): Trust {
  const signingKeys = (seeds ?? []).map(signingKey);
  const signer = signingKeys[0];
  const configuredKeys = new Map(signingKeys.map(({ kid, privateKey }) => [kid, createPublicKey(privateKey)]));
  let signerVouched = false;

  async function vouched() {
    const rows: { rowKey: string; statement: string }[] = [];
    const changed: string[] = [];
    for await (const page of readRows(tables, RecordRow, { partitionKey: KEYS_PARTITION })) {
      for (const { rowKey, value } of page) {
        if (value) rows.push({ rowKey, statement: value.record });
        else changed.push(rowKey);
      }
    }
    const keys = withVouched(
      configuredKeys,
      rows.map(({ statement }) => statement),
    );
    const isValid = ({ statement }: { statement: string }) => "payload" in readVoucher(statement, keys);
    changed.push(...rows.filter((row) => !isValid(row)).map(({ rowKey }) => rowKey));
    return { keys, statements: rows.filter(isValid).map(({ statement }) => statement), changed };
  }

  async function vouch(): Promise<void> {
    if (signerVouched || !signer) return;
    const { keys, statements } = await vouched();
    const vouchedFor = new Set(
      statements.flatMap((statement) => {
        const result = readVoucher(statement, keys);
        return "payload" in result && result.kid === signer.kid ? [result.payload.kid] : [];
      }),
    );
    for (const [kid, key] of keys) {
      if (kid === signer.kid || vouchedFor.has(kid)) continue;
      const record = signStatement("audit-key", { kid, publicKey: publicKeyText(key) }, signer);
      await tables.put(RecordRow, KEYS_PARTITION, `${signer.kid}|${kid}`, { record });
    }
    signerVouched = true;
  }

  const authentication = createEntryAuthentication(seeds);
  return { signer, authentication, keys: async () => (await vouched()).keys, vouched, vouch };
}

const readVoucher = (statement: string, keys: PublicKeys) => readStatement("audit-key", VouchedKey, statement, keys);

/** Returns the trusted keys and every key that one of them vouches for. A trusted `kid` is never replaced. */
export function withVouched(trusted: PublicKeys, statements: readonly string[]): PublicKeys {
  const keys = new Map(trusted);
  // Repeated until a pass adds no key, because an added key may vouch for further ones.
  for (let sizeBefore = -1; sizeBefore < keys.size; ) {
    sizeBefore = keys.size;
    for (const statement of statements) {
      const result = readVoucher(statement, keys);
      if ("payload" in result && !keys.has(result.payload.kid))
        keys.set(result.payload.kid, publicKeyFrom(result.payload.publicKey));
    }
  }
  return keys;
}
