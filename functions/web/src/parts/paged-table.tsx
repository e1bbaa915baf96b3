import { Button, makeStyles, Spinner, Text, tokens } from "@fluentui/react-components";
import type { InfiniteData, UseInfiniteQueryResult } from "@tanstack/react-query";
import { type ReactNode, useRef } from "react";
import type { Problem } from "../api/client.ts";
import { type Column, DataTable } from "./data-table.tsx";
import { QueryFailure } from "./query-result.tsx";
import { saveFile } from "./save-file.ts";
import { csvOf } from "./table-csv.ts";
import { useIsNarrow } from "./width.ts";

export type { Column } from "./data-table.tsx";

const useStyles = makeStyles({
  more: {
    display: "flex",
    flexWrap: "wrap",
    gap: tokens.spacingHorizontalM,
    alignItems: "center",
    marginTop: tokens.spacingVerticalS,
  },
});

/** Options of `api.useInfiniteQuery` for the API's cursor paging. */
export const BY_CURSOR = {
  pageParamName: "cursor",
  // The library turns undefined into 0.
  initialPageParam: null as string | null,
  getNextPageParam: ({ nextCursor }: { nextCursor: string | null }) => nextCursor ?? undefined,
};

interface Props<T> {
  of: Pick<
    UseInfiniteQueryResult<InfiniteData<{ items: T[]; nextCursor: string | null }>, Problem>,
    "data" | "error" | "dataUpdatedAt" | "hasNextPage" | "isFetchingNextPage"
  > & { refetch(): unknown; fetchNextPage(): unknown };
  columns: Column<T>[];
  keyOf(item: T): string;
  /** Name of the table, such as "Vaults". */
  label: string;
  /** The empty state: why there is nothing, and what to do next. */
  empty: ReactNode;
  /** Returns the rows for the loaded items. Default: one row for each item. */
  rowsOf?(items: T[]): T[];
  /** Whether the shown rows can be downloaded as CSV. Not for lists whose API has an export. */
  csv?: boolean;
}

/** A table of an API list, used in most views. "Load more" adds the next page. A page can be empty although others follow. */
export function PagedTable<T>({
  of: query,
  columns,
  keyOf,
  label,
  empty,
  rowsOf = (all) => all,
  csv = false,
}: Props<T>) {
  const styles = useStyles();
  const isNarrow = useIsNarrow();
  const frame = useRef<HTMLDivElement>(null);
  if (!query.data) return query.error ? <QueryFailure of={query} /> : <Spinner size="small" label="Loading" />;
  const items = rowsOf(query.data.pages.flatMap((page) => page.items));
  const download = () => {
    const table = frame.current?.querySelector("table");
    if (table)
      saveFile(new Blob([csvOf(table)], { type: "text/csv" }), `${label.toLowerCase().replaceAll(" ", "-")}.csv`);
  };
  const hasCsv = csv && !isNarrow && items.length > 0;
  return (
    <div ref={frame}>
      <QueryFailure of={query} />
      {items.length === 0 && !query.hasNextPage ? (
        <Text role="status">{empty}</Text>
      ) : (
        <DataTable items={items} columns={columns} keyOf={keyOf} label={label} />
      )}
      {(query.hasNextPage || hasCsv) && (
        <div className={styles.more}>
          {query.hasNextPage && (
            <>
              <Button onClick={() => void query.fetchNextPage()} disabled={query.isFetchingNextPage}>
                Load more
              </Button>
              <Text role="status">{items.length.toLocaleString()} shown</Text>
            </>
          )}
          {hasCsv && (
            <Button size="small" onClick={download} aria-label={`Download shown rows as CSV: ${label}`}>
              Download shown rows as CSV
            </Button>
          )}
        </div>
      )}
    </div>
  );
}
