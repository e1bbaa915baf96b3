import { Button, makeStyles, Spinner, Text, tokens } from "@fluentui/react-components";
import type { InfiniteData, UseInfiniteQueryResult } from "@tanstack/react-query";
import type { Problem } from "../api/client.ts";
import { type Column, DataTable } from "./data-table.tsx";
import { QueryFailure } from "./query-result.tsx";

export type { Column } from "./data-table.tsx";

const useStyles = makeStyles({
  more: { display: "flex", gap: tokens.spacingHorizontalM, alignItems: "center", marginTop: tokens.spacingVerticalS },
});

/** Options of `api.useInfiniteQuery` for the API's cursor paging. */
export const BY_CURSOR = {
  pageParamName: "cursor",
  // The library turns undefined into 0.
  initialPageParam: null as string | null,
  getNextPageParam: ({ nextCursor }: { nextCursor: string | null }) => nextCursor ?? undefined,
};

interface Props<T> {
  of: UseInfiniteQueryResult<InfiniteData<{ items: T[]; nextCursor: string | null }>, Problem>;
  columns: Column<T>[];
  keyOf(item: T): string;
  /** Name of the table, such as "Vaults". */
  label: string;
  /** Text of the empty state. */
  empty: string;
}

/** A table of an API list, used in most views. "Load more" adds the next page. A page can be empty although others follow. */
export function PagedTable<T>({ of: query, columns, keyOf, label, empty }: Props<T>) {
  const styles = useStyles();
  if (!query.data) return query.error ? <QueryFailure of={query} /> : <Spinner size="small" label="Loading" />;
  const items = query.data.pages.flatMap((page) => page.items);
  return (
    <div>
      <QueryFailure of={query} />
      {items.length === 0 && !query.hasNextPage ? (
        <Text role="status">{empty}</Text>
      ) : (
        <DataTable items={items} columns={columns} keyOf={keyOf} label={label} />
      )}
      {query.hasNextPage && (
        <div className={styles.more}>
          <Button onClick={() => void query.fetchNextPage()} disabled={query.isFetchingNextPage}>
            Load more
          </Button>
          <Text role="status">{items.length.toLocaleString()} shown</Text>
        </div>
      )}
    </div>
  );
}
