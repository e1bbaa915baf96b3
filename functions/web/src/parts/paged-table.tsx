import { Button, makeStyles, Spinner, Text, tokens } from "@fluentui/react-components";
import type { InfiniteData, UseInfiniteQueryResult } from "@tanstack/react-query";
import type { Problem } from "../api/client.ts";
import { Failure } from "./answer.tsx";
import { type Column, DataTable } from "./data-table.tsx";

export type { Column } from "./data-table.tsx";

const useStyles = makeStyles({
  more: { display: "flex", gap: tokens.spacingHorizontalM, alignItems: "center", marginTop: tokens.spacingVerticalS },
});

/** How every list of the API goes on: the options of `api.useInfiniteQuery`. */
export const BY_CURSOR = {
  pageParamName: "cursor",
  // Undefined would become 0.
  initialPageParam: null as string | null,
  getNextPageParam: ({ nextCursor }: { nextCursor: string | null }) => nextCursor ?? undefined,
};

interface Props<T> {
  of: UseInfiniteQueryResult<InfiniteData<{ items: T[]; nextCursor: string | null }>, Problem>;
  columns: Column<T>[];
  keyOf(item: T): string;
  /** What the rows are, such as "Vaults". */
  label: string;
  /** What is said when there is none. */
  none: string;
}

/** A list of the API, page after page as somebody asks for more. */
export function PagedTable<T>({ of: query, columns, keyOf, label, none }: Props<T>) {
  const styles = useStyles();
  if (!query.data) return query.error ? <Failure of={query} /> : <Spinner size="small" label="Loading" />;
  const items = query.data.pages.flatMap((page) => page.items);
  return (
    <div>
      <Failure of={query} />
      {items.length === 0 && !query.hasNextPage ? (
        <Text role="status">{none}</Text>
      ) : (
        <DataTable items={items} columns={columns} keyOf={keyOf} label={label} />
      )}
      {query.hasNextPage && (
        <div className={styles.more}>
          <Button onClick={() => void query.fetchNextPage()} disabled={query.isFetchingNextPage}>
            More
          </Button>
          <Text role="status">{items.length.toLocaleString()} shown</Text>
        </div>
      )}
    </div>
  );
}
