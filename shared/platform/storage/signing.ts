import { createHmac, timingSafeEqual } from "node:crypto";
import type { StoredRow } from "./columns.ts";
import { StorageCorrupt } from "./errors.ts";
import type { Operation } from "./operations.ts";

/** Where the keys are that rows are signed with. Not in the tables, since whoever writes those must not have them. */
export interface RowKeys {
  /** The key that signs, and its name: letters, digits and dashes. Made when there is none. */
  current(): Promise<{ name: string; key: Uint8Array }>;
  /** A key that signed once; undefined when there is none of that name. */
  named(name: string): Promise<Uint8Array | undefined>;
}

/** Signs the rows of `signed` entities, and checks them. */
export interface RowSigning {
  /** The operation as it is to be stored. */
  seal(partitionKey: string, operation: Operation): Promise<Operation>;
  /** @throws {StorageCorrupt} unless a key of this service signed the row as it is, for where it stands. */
  verify(table: string, stored: StoredRow): Promise<void>;
}

/** Holds `<name of the key>.<HMAC with SHA-256 in base64url>`. No member can be called so. */
export const SIGNATURE = "_signature";
/** The service's own, the SDK's, and what JSON says of other columns' types. */
const NOT_SIGNED = new Set(["partitionKey", "rowKey", "etag", "timestamp", SIGNATURE]);

/**
 * Where a row stands and all of its columns are signed, so that a row that was changed, moved or copied does not hold. What
 * this can't see: an earlier state of the same row put back. @param keys - Without them no signed row can be used.
 */
export function createRowSigning(keys: RowKeys | undefined): RowSigning {
  const require = (): RowKeys => {
    if (!keys) throw new TypeError("Signed rows need the service's own key vault: SERVICE_KEY_VAULT_URL.");
    return keys;
  };

  return {
    async seal(partitionKey, operation) {
      const { entity, kind, rowKey, columns } = operation;
      if (!entity.signed || kind === "remove") return operation;
      if (kind === "merge") throw new TypeError(`A signed row of ${entity.table} is written whole.`);
      const { name, key } = await require().current();
      const mac = macOf(key, entity.table, partitionKey, rowKey, columns);
      return { ...operation, columns: { ...columns, [SIGNATURE]: `${name}.${mac.toString("base64url")}` } };
    },

    async verify(table, stored) {
      const keysOfRow = {
        partitionKey: stored.partitionKey as string,
        rowKey: stored.rowKey as string,
        etag: stored.etag as string,
      };
      const signature = stored[SIGNATURE];
      const [name = "", mac = ""] = typeof signature === "string" ? signature.split(".") : [];
      const key = name === "" ? undefined : await require().named(name);
      if (key) {
        const expected = macOf(key, table, keysOfRow.partitionKey, keysOfRow.rowKey, stored);
        const given = Buffer.from(mac, "base64url");
        if (given.length === expected.length && timingSafeEqual(given, expected)) return;
      }
      throw new StorageCorrupt(table, keysOfRow, "the signature does not match the content");
    },
  };
}

function macOf(key: Uint8Array, table: string, partitionKey: string, rowKey: string, columns: object): Buffer {
  const signed = Object.entries(columns)
    .filter(([name]) => !NOT_SIGNED.has(name) && !name.includes("odata."))
    .map(([name, value]) => [name, value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value])
    .sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  return createHmac("sha256", key)
    .update(JSON.stringify(["row", table, partitionKey, rowKey, signed]))
    .digest();
}
