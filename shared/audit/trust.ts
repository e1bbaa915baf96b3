import { createPublicKey } from "node:crypto";
import * as z from "zod";
import type { Config } from "../config/config.ts";
import { put, type Tables } from "../storage/tables.ts";
import { KEYS_PARTITION, RecordRow } from "./rows.ts";
import {
  type PublicKeys,
  publicKeyFrom,
  publicKeyText,
  readStatement,
  type SigningKey,
  signingKey,
  signStatement,
} from "./signing.ts";

/** A key vouching for an older one, so that what that one signed can be verified after it has left the configuration. */
export const VouchedKey = z.object({ kid: z.string(), publicKey: z.string() });

export interface Trust {
  /** The key that signs; undefined when `AUDIT_SIGNING_KEYS` is not set, and then nothing is sealed. */
  readonly signer: SigningKey | undefined;
  /** The configured keys and those they vouch for, directly or through one another. */
  keys(): Promise<PublicKeys>;
  /** Statements that vouch, as an export carries them. */
  vouchers(): Promise<string[]>;
  /** Keeps the signer's word for every other key it knows. */
  vouch(): Promise<void>;
}

export function createTrust(tables: Tables, ring: Config["AUDIT_SIGNING_KEYS"]): Trust {
  const signing = (ring ?? []).map(signingKey);
  const signer = signing[0];
  const configured = new Map(signing.map(({ kid, privateKey }) => [kid, createPublicKey(privateKey)]));
  let vouched = false;

  async function vouchers(): Promise<string[]> {
    const statements: string[] = [];
    for await (const page of tables.pages(RecordRow, { partitionKey: KEYS_PARTITION })) {
      statements.push(...page.map((row) => row.record));
    }
    return statements;
  }

  const keys = async () => withVouched(configured, await vouchers());

  async function vouch(): Promise<void> {
    if (vouched || !signer) return;
    const stored = new Set<string>();
    for await (const page of tables.pages(RecordRow, {
      partitionKey: KEYS_PARTITION,
      from: `${signer.kid}|`,
      before: `${signer.kid}~`,
    })) {
      for (const row of page) stored.add(row.rowKey);
    }
    for (const [kid, key] of await keys()) {
      const rowKey = `${signer.kid}|${kid}`;
      if (kid === signer.kid || stored.has(rowKey)) continue;
      const record = signStatement("audit-key", { kid, publicKey: publicKeyText(key) }, signer);
      await tables.transaction(RecordRow.table, KEYS_PARTITION, [put(RecordRow, rowKey, { record })]);
    }
    vouched = true;
  }

  return { signer, keys, vouchers, vouch };
}

/** The trusted keys and every key that one of them vouches for. A kid that is trusted already is never replaced. */
export function withVouched(trusted: PublicKeys, statements: readonly string[]): PublicKeys {
  const keys = new Map(trusted);
  for (let before = -1; before < keys.size; ) {
    before = keys.size;
    for (const statement of statements) {
      const read = readStatement("audit-key", VouchedKey, statement, keys);
      if ("payload" in read && !keys.has(read.payload.kid))
        keys.set(read.payload.kid, publicKeyFrom(read.payload.publicKey));
    }
  }
  return keys;
}
