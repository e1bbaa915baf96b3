import { encodeTime } from "ulid";
import { fingerprint } from "../../inventory/asset.ts";
import type { Randomness } from "../../platform/runtime.ts";
import { withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import { type Operation, put, type Tables } from "../../platform/storage/tables.ts";
import {
  type AssetUseRecord,
  type Reader,
  UNEXPECTED_PREFIX,
  type UnexpectedReader,
  UnexpectedReaders,
} from "./rows.ts";

/** Returns the name of a reader for users. */
export const nameOfReader = ({ id, userName, name, identityOf }: Reader): string =>
  userName ?? name ?? identityOf?.split("/").at(-1) ?? id;

/** Returns the table operation that stores the event of an unexpected reader. */
export const unexpectedReaderOperation = (
  { vaultName, type, name }: AssetUseRecord,
  reader: Reader,
  now: Date,
  randomness: Pick<Randomness, "ulid">,
): Operation =>
  put(UnexpectedReaders, UNEXPECTED_PREFIX + randomness.ulid(now), {
    at: now.toISOString(),
    vaultName,
    type,
    name,
    readerId: reader.id,
    reader: nameOfReader(reader),
    operations: reader.operations,
  });

/** Returns an ID for a reader of an asset. All events of this reader and asset have it, whatever their time and log. */
export const unexpectedReaderId = ({ vaultName, type, name, readerId }: UnexpectedReader): string =>
  fingerprint([vaultName.toLowerCase(), type, name.toLowerCase(), readerId.toLowerCase()]);

/** Lists events since a time, oldest first, workspace by workspace. */
export async function* unexpectedSince(
  workspaceIds: readonly string[],
  from: Date,
  tables: Tables,
): AsyncGenerator<UnexpectedReader[]> {
  const begin = UNEXPECTED_PREFIX + encodeTime(Math.max(0, from.getTime()));
  for (const partitionKey of workspaceIds)
    for await (const rows of tables.pages(UnexpectedReaders, {
      partitionKey,
      from: begin,
      before: keyEnd(UNEXPECTED_PREFIX),
    }))
      yield rows.map(withoutKeys);
}
