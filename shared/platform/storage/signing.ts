import { createHmac, timingSafeEqual } from "node:crypto";
import type { StoredRow } from "./columns.ts";
import type { Entity } from "./entity.ts";
import { SigningKeysMissing, StorageCorrupt } from "./errors.ts";
import type { Operation } from "./operations.ts";

/**
 * The keys that sign rows. They are not stored in the tables, because someone who can write tables must not get them.
 */
export interface RowKeys {
  /** Returns the current key and its name (letters, digits and dashes). Creates a key if none exists. */
  current(): Promise<{ name: string; key: Uint8Array }>;
  /** Returns a current or former key, or undefined if no key has this name. */
  named(name: string): Promise<Uint8Array | undefined>;
  /**
   * Returns the time until which the table service accepted a row without a signature (milliseconds since 1970), or undefined
   * while the rows of an earlier version are still being signed. Absent: unsigned rows are always accepted.
   */
  unsignedUntil?(): Promise<number | undefined>;
}

/**
 * Signs and verifies the rows of entities by their member `signed`. `true`: always, so keys are required. `withKeyVault`: only
 * if there are keys. `adopted`: only if there are keys, and earlier versions wrote the rows without a signature.
 */
export interface RowSigning {
  /** Returns the operation with its signature. Returns operations of unsigned entities unchanged. */
  sign(partitionKey: string, operation: Operation): Promise<Operation>;
  /**
   * Does nothing for rows of entities that are not signed, or that are signed only with a key vault if the service has none.
   * Accepts a row of an `adopted` entity without a signature if the table service's own Timestamp, which no writer can choose, is
   * from the time before the rows were signed.
   *
   * @throws {SigningKeysMissing} for a signed row of an `adopted` entity, if the service has no keys.
   * @throws {StorageCorrupt} unless a key of this service signed exactly this row at this location.
   */
  verify(e: Pick<Entity<unknown>, "table" | "signed">, stored: StoredRow): Promise<void>;
  /** Returns whether rows of the entity get a signature. */
  isSigned(e: Pick<Entity<unknown>, "signed">): boolean;
}

/** Column with `<name of the key>.<HMAC-SHA-256 in base64url>`. No member can have this name. */
export const SIGNATURE = "_signature";
/** Prefix of the signature of a row that was set aside, before the reason. No key has this name, so the row can't be read. */
const SET_ASIDE = "rejected.";

/**
 * Why a row must not take effect. `olderState`: an earlier state of the row was put back. `notListed`: the list does not name the
 * row, for example because a removed row was put back. `missing`: the list names a row that does not exist. `unsigned`: the row has
 * no signature, but was written after the service began to sign such rows.
 */
export type SetAsideReason = "olderState" | "notListed" | "missing" | "unsigned";

/** Returns the signature of a row that must not take effect. */
export const setAsideSignature = (reason: SetAsideReason): string => SET_ASIDE + reason;

/** Returns why a row was set aside, or undefined for any other row. */
export const setAsideReason = (signature: unknown): string | undefined =>
  typeof signature === "string" && signature.startsWith(SET_ASIDE) ? signature.slice(SET_ASIDE.length) : undefined;

/** Columns of the service and the SDK, which are not signed. Type annotations (`odata.`) are not signed either. */
const UNSIGNED_COLUMNS = new Set(["partitionKey", "rowKey", "etag", "timestamp", SIGNATURE]);

/**
 * Creates the signing of rows. The signature covers a row's location and all of its columns, so a changed, moved or copied row
 * is rejected. An earlier state of the same row is accepted until the list of rows shows it (row-lists.ts).
 *
 * @param keys - If undefined, rows `withKeyVault` and `adopted` are not signed, and reading or writing another signed row throws.
 */
export function createRowSigning(keys: RowKeys | undefined): RowSigning {
  const requireKeys = (): RowKeys => {
    if (!keys) throw new TypeError("Signed rows need the service's own key vault: SERVICE_KEY_VAULT_URL.");
    return keys;
  };
  const isSigned = ({ signed }: Pick<Entity<unknown>, "signed">) =>
    signed === true || (signed !== false && keys !== undefined);

  /** Returns whether the table service wrote a row before the rows were signed. */
  async function isFromBeforeSigning(timestamp: unknown): Promise<boolean> {
    if (!keys?.unsignedUntil) return true;
    const until = await keys.unsignedUntil();
    return until === undefined || Date.parse(String(timestamp)) <= until;
  }

  return {
    async sign(partitionKey, operation) {
      const { entity, kind, rowKey, columns } = operation;
      if (!isSigned(entity) || kind === "remove") return operation;
      if (kind === "merge") throw new TypeError(`A signed row of ${entity.table} is written whole.`);
      const { name, key } = await requireKeys().current();
      const mac = macOf(key, entity.table, partitionKey, rowKey, columns);
      return { ...operation, columns: { ...columns, [SIGNATURE]: `${name}.${mac.toString("base64url")}` } };
    },

    isSigned,

    async verify(e, stored) {
      const { table } = e;
      if (!isSigned(e)) {
        if (e.signed === "adopted" && stored[SIGNATURE] !== undefined) throw new SigningKeysMissing(table);
        return;
      }
      const keysOfRow = {
        partitionKey: stored.partitionKey as string,
        rowKey: stored.rowKey as string,
        etag: stored.etag as string,
      };
      const signature = stored[SIGNATURE];
      if (signature === undefined && e.signed === "adopted") {
        if (await isFromBeforeSigning(stored.timestamp)) return;
        throw new StorageCorrupt(table, keysOfRow, "unsigned");
      }
      const setAside = setAsideReason(signature);
      if (setAside !== undefined) throw new StorageCorrupt(table, keysOfRow, setAside);
      const [name = "", mac = ""] = typeof signature === "string" ? signature.split(".") : [];
      const key = name === "" ? undefined : await requireKeys().named(name);
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
    .filter(([name]) => !UNSIGNED_COLUMNS.has(name) && !name.includes("odata."))
    .map(([name, value]) => [name, value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value])
    .sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
  return (
    createHmac("sha256", key)
      // "row" separates this use of the key from possible other ones.
      .update(JSON.stringify(["row", table, partitionKey, rowKey, signed]))
      .digest()
  );
}
