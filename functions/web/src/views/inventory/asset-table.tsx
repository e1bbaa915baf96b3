// biome-ignore-all lint/a11y/useFocusableInteractive: the links in the rows are reachable by keyboard.
// biome-ignore-all lint/a11y/useSemanticElements: table elements lose their semantics when they are laid out as a grid.

import { makeStyles, mergeClasses, Text, tokens } from "@fluentui/react-components";
import { useQueries } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef, useState } from "react";
import { readFromEntry, storeInEntry } from "../../parts/history-entry.ts";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { type Column, useColumns } from "./columns.tsx";
import { type Asset, type Filters, type Page, pageOf } from "./query.ts";

/** Height of a row, which the virtualizer must know before a row is rendered. */
const ROW_PX = 40;
/**
 * A page is loaded when the visible rows come closer to it than this number of rows, and dropped when they are farther away.
 */
const LOADED_DISTANCE_ROWS = 200;

const useStyles = makeStyles({
  scroller: {
    flexGrow: 1,
    minHeight: 0,
    overflow: "auto",
    border: `1px solid ${tokens.colorNeutralStroke2}`,
    borderRadius: tokens.borderRadiusMedium,
    backgroundColor: tokens.colorNeutralBackground1,
  },
  table: { position: "relative", width: "100%" },
  row: {
    display: "grid",
    alignItems: "center",
    columnGap: tokens.spacingHorizontalS,
    height: `${ROW_PX}px`,
    padding: `0 ${tokens.spacingHorizontalS}`,
    boxSizing: "border-box",
    width: "100%",
    borderBottom: `1px solid ${tokens.colorNeutralStroke3}`,
  },
  body: { position: "absolute", left: 0, top: 0 },
  head: {
    position: "sticky",
    top: 0,
    zIndex: 1,
    backgroundColor: tokens.colorNeutralBackground3,
    fontWeight: tokens.fontWeightSemibold,
  },
  cell: { overflow: "hidden", textOverflow: "ellipsis", whiteSpace: "nowrap", unicodeBidi: "isolate" },
});

/** A page that can be loaded: the index of its first row, and its cursor. */
interface KnownPage {
  start: number;
  cursor: string | undefined;
}

/**
 * The state of the table that Back restores: the known pages, the number of rows in them, and the scroll position in pixels.
 */
interface TableState {
  knownPages: KnownPage[];
  count: number;
  top: number;
}
/** Name of the stored state. */
const TABLE_STATE = "assets";

/**
 * The table of the Inventory page, which is virtualized: rows are rendered, and their pages loaded, when they scroll into view.
 * Each page contains the cursor of the next page, so the list grows as the user reaches its end.
 */
export function AssetTable({ filters }: { filters: Filters }) {
  const styles = useStyles();
  const columns = useColumns();
  const scroller = useRef<HTMLDivElement>(null);
  /** State from before the user left the view, if the user came back with Back. */
  const [restored] = useState(() => readFromEntry<TableState>(TABLE_STATE));
  const [knownPages, setKnownPages] = useState<KnownPage[]>(restored?.knownPages ?? [{ start: 0, cursor: undefined }]);
  /** Number of rows in the known pages. */
  const [count, setCount] = useState(restored?.count ?? 1);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 10,
    // Leave room for the sticky header.
    paddingStart: ROW_PX,
    initialOffset: restored?.top ?? 0,
    onChange: ({ scrollOffset }) => storeInEntry(TABLE_STATE, { knownPages, count, top: scrollOffset ?? 0 }),
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  /** Pages with rows on the screen or near it. Only these are kept in memory. */
  const nearbyPages = knownPages.filter(
    ({ start }, index) =>
      start <= last + LOADED_DISTANCE_ROWS && (knownPages[index + 1]?.start ?? Infinity) > first - LOADED_DISTANCE_ROWS,
  );
  const queries = useQueries({ queries: nearbyPages.map(({ cursor }) => pageOf(filters, cursor)) });

  const loadedPages = queries.flatMap(({ data }, index) => (data ? [{ page: nearbyPages[index]!, data }] : []));
  // A filter without an index can return empty pages, so several pages can have the same start.
  // State that is set while rendering makes React render again at once. This ends when the next page is known but not loaded.
  const lastPage = loadedPages.find(({ page }) => page === knownPages.at(-1));
  if (lastPage) {
    const { page, data } = lastPage;
    const end = page.start + data.items.length;
    if (data.nextCursor !== null) setKnownPages([...knownPages, { start: end, cursor: data.nextCursor }]);
    // One additional row, so that the user can scroll on to the next page.
    const reachable = data.nextCursor === null ? end : end + 1;
    if (reachable !== count) setCount(reachable);
  }
  const assetAt = (index: number): Asset | undefined => {
    const loaded = loadedPages.findLast(({ page }) => page.start <= index);
    return loaded?.data.items[index - loaded.page.start];
  };

  const failed = queries.find(({ error }) => error);
  const grid = { gridTemplateColumns: columns.map(({ width }) => width).join(" ") };
  return (
    <>
      {failed && <QueryFailure of={failed} />}
      <Text role="status">{totalText(loadedPages[0]?.data, count)}</Text>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard. */}
      <div className={styles.scroller} ref={scroller} tabIndex={0} aria-label="Assets" role="region">
        <div
          role="table"
          aria-label="Assets"
          aria-rowcount={loadedPages[0]?.data.total == null ? -1 : loadedPages[0].data.total + 1}
          className={styles.table}
        >
          <div role="row" aria-rowindex={1} className={mergeClasses(styles.row, styles.head)} style={grid}>
            {columns.map(({ id, title }) => (
              <div role="columnheader" key={id} className={styles.cell}>
                {title}
              </div>
            ))}
          </div>
          <div role="rowgroup" style={{ height: rows.getTotalSize() - ROW_PX }}>
            {items.map(({ index, start }) => (
              <div
                role="row"
                aria-rowindex={index + 2}
                key={index}
                className={mergeClasses(styles.row, styles.body)}
                style={{ ...grid, transform: `translateY(${start}px)` }}
              >
                <Cells asset={assetAt(index)} columns={columns} />
              </div>
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

/** The cells of a row. While its page is loading, the first cell shows an ellipsis. */
function Cells({ asset, columns }: { asset: Asset | undefined; columns: Column[] }) {
  const { cell } = useStyles();
  return columns.map((column, index) => (
    <div role="cell" key={column.id} className={cell}>
      {asset ? column.cell(asset) : index === 0 && "…"}
    </div>
  ));
}

/** Returns the number of assets. With a filter without an index, only a lower bound is known. */
function totalText(page: Page | undefined, count: number): string {
  if (!page) return "Loading";
  const { total, totalAtLeast } = page;
  if (total === 0) return "No assets match the filters. Clear the filters to see all assets.";
  if (total != null) return counted(total, "asset");
  // The last of the `count` rows may only make the next page reachable, so it does not count.
  return `At least ${Math.max(totalAtLeast ?? 0, count - 1).toLocaleString()} assets. Scroll down to load more.`;
}
