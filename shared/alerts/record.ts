import type { Row } from "../storage/entity.ts";

/** What a row holds, without where it stands. */
export function recordOf<T extends object>(row: Row<T>): T {
  const { partitionKey: _p, rowKey: _r, etag: _e, ...record } = row;
  return record as unknown as T;
}
