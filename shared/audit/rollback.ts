import { remove } from "../platform/storage/tables.ts";
import { rollbackStatement } from "./chain/authenticated-from.ts";
import { chainState, type ReadingDependencies } from "./chain/chain-state.ts";
import { EntryRow, LAST_ROWS, LastRow, RecordRow, ROLLBACK } from "./rows.ts";

/**
 * Prepares the log of a stopped app for an earlier version, which writes entries without authentication codes and would report
 * the rows of last entries as inserted entries. Removes these rows, and signs a statement that accepts entries without codes
 * until the next sealing. Can be repeated. Costs two requests per day of the log.
 */
export async function prepareLogForRollback(deps: ReadingDependencies): Promise<void> {
  const { tables, trust } = deps;
  if (trust.signer) {
    const { end } = await chainState(deps);
    await tables.put(RecordRow, ROLLBACK, ROLLBACK, { record: rollbackStatement(end, trust.signer) });
  }
  for await (const partitionKey of tables.partitions(EntryRow.table)) {
    for await (const page of tables.pages(LastRow, { partitionKey, ...LAST_ROWS, select: [] }))
      await tables.write(
        LastRow.table,
        partitionKey,
        page.map(({ rowKey }) => remove(LastRow, rowKey)),
      );
  }
}
