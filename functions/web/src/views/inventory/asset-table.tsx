// biome-ignore-all lint/a11y/useFocusableInteractive: the links in the rows are reachable by keyboard.
// biome-ignore-all lint/a11y/useSemanticElements: table elements lose their semantics when they are laid out as a grid.
import { makeStyles, mergeClasses, Text, tokens } from "@fluentui/react-components";
import { useQueries } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef, useState } from "react";
import { remember, remembered } from "../../parts/history-entry.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { type Column, useColumns } from "./columns.tsx";
import { type Asset, type Filters, type Page, pageOf } from "./query.ts";

const ROW_PX = 40;
/** A page is loaded when the visible rows come this close to it, and dropped when they are this far away. */
const AHEAD_ROWS = 200;

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

/** The known pages and the scroll position. */
interface Place {
  known: KnownPage[];
  count: number;
  top: number;
}
const PLACE = "assets";

/** A virtualized table: rows are rendered, and their pages loaded, when they scroll into view. Each page contains the cursor of the
 * next page, so the list grows as the user reaches its end.
 */
export function AssetTable({ filters }: { filters: Filters }) {
  const styles = useStyles();
  const columns = useColumns();
  const scroller = useRef<HTMLDivElement>(null);
  const [before] = useState(() => remembered<Place>(PLACE));
  const [known, setKnown] = useState<KnownPage[]>(before?.known ?? [{ start: 0, cursor: undefined }]);
  /** Number of rows in the known pages. */
  const [count, setCount] = useState(before?.count ?? 1);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 10,
    // Leave room for the sticky header.
    paddingStart: ROW_PX,
    initialOffset: before?.top ?? 0,
    onChange: ({ scrollOffset }) => remember(PLACE, { known, count, top: scrollOffset ?? 0 }),
  });
  const items = rows.getVirtualItems();
  const [first, last] = [items[0]?.index ?? 0, items.at(-1)?.index ?? 0];
  const wanted = known.filter(
    ({ start }, at) => start <= last + AHEAD_ROWS && (known[at + 1]?.start ?? Infinity) > first - AHEAD_ROWS,
  );
  const pages = useQueries({ queries: wanted.map(({ cursor }) => pageOf(filters, cursor)) });

  const seen = pages.flatMap(({ data }, at) => (data ? [{ page: wanted[at]!, data }] : []));
  // A filter without an index can return empty pages, so several pages can have the same start.
  const newest = seen.find(({ page }) => page === known.at(-1));
  if (newest) {
    const { page, data } = newest;
    const end = page.start + data.items.length;
    if (data.nextCursor !== null) setKnown([...known, { start: end, cursor: data.nextCursor }]);
    // One additional row, so that the user can scroll on to the next page.
    const reachable = data.nextCursor === null ? end : end + 1;
    if (reachable !== count) setCount(reachable);
  }
  const assetAt = (index: number): Asset | undefined => {
    const found = seen.findLast(({ page }) => page.start <= index);
    return found?.data.items[index - found.page.start];
  };

  const failed = pages.find(({ error }) => error);
  const shown = totalText(seen[0]?.data, count);
  const grid = { gridTemplateColumns: columns.map(({ width }) => width).join(" ") };
  return (
    <>
      {failed && <QueryFailure of={failed} />}
      <Text role="status">{shown}</Text>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard. */}
      <div className={styles.scroller} ref={scroller} tabIndex={0} aria-label="Assets" role="region">
        <div
          role="table"
          aria-label="Assets"
          aria-rowcount={seen[0]?.data.total == null ? -1 : seen[0].data.total + 1}
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

function Cells({ asset, columns }: { asset: Asset | undefined; columns: Column[] }) {
  const { cell } = useStyles();
  return columns.map((column, at) => (
    <div role="cell" key={column.id} className={cell}>
      {asset ? column.cell(asset) : at === 0 && "…"}
    </div>
  ));
}

/** Returns the number of assets. With a filter without an index, only a lower bound is known. */
function totalText(page: Page | undefined, count: number): string {
  if (!page) return "Loading";
  const { total, totalAtLeast } = page;
  if (total != null) return total === 1 ? "1 asset" : `${total.toLocaleString()} assets`;
  return `At least ${Math.max(totalAtLeast ?? 0, count - 1).toLocaleString()} assets. Scroll down to load more.`;
}
