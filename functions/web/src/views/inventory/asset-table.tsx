// biome-ignore-all lint/a11y/useFocusableInteractive: the links in the rows are reachable by keyboard.
// biome-ignore-all lint/a11y/useSemanticElements: table elements lose their semantics when they are laid out as a grid.

import { Button, Checkbox, Link, makeStyles, mergeClasses, Text, tokens } from "@fluentui/react-components";
import { ArrowSortRegular, ArrowSortUpRegular } from "@fluentui/react-icons";
import { useQueries } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef, useState } from "react";
import { createHref } from "../../parts/address.ts";
import { assetName, vaultOrTenant } from "../../parts/asset-name.ts";
import { Hidden } from "../../parts/hidden.tsx";
import { readFromEntry, storeInEntry } from "../../parts/history-entry.ts";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { useIsNarrow } from "../../parts/width.ts";
import { BulkActions, MAX_SELECTED } from "./bulk-actions.tsx";
import { type Column, useColumns } from "./columns.tsx";
import { type Asset, canSortByName, type Filters, isFiltered, type Page, pageOf } from "./query.ts";

/** Height of a row, which the virtualizer must know before a row is rendered. On a narrow screen, a row has two lines. */
const ROW_PX = 40;
const NARROW_ROW_PX = 56;
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
  place: {
    overflow: "hidden",
    textOverflow: "ellipsis",
    fontSize: tokens.fontSizeBase200,
    color: tokens.colorNeutralForeground3,
  },
  sort: { minWidth: 0, padding: 0, fontWeight: tokens.fontWeightSemibold, justifyContent: "flex-start" },
});

/** Width of the column of checkboxes. */
const CHECKBOX_WIDTH = "32px";

/** A page that can be loaded: the index of its first row, and its cursor. */
interface KnownPage {
  start: number;
  cursor: string | undefined;
}

/**
 * The state of the table that Back restores: the known pages, the number of rows in them, and the scroll position in pixels.
 */
interface TableState {
  /** The filters that the cursors of the pages belong to. */
  filters: string;
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
  const filterKey = JSON.stringify(filters);
  /** State from before the user left the view, if the user came back with Back. */
  const [restored] = useState(() => {
    const state = readFromEntry<TableState>(TABLE_STATE);
    return state?.filters === filterKey ? state : undefined;
  });
  /** The selected assets by ID. */
  const [selected, setSelected] = useState<ReadonlyMap<string, Asset>>(new Map());
  /** Bulk actions need more room than a phone has. */
  const isNarrow = useIsNarrow();
  const canSelect = !isNarrow;
  const rowPx = isNarrow ? NARROW_ROW_PX : ROW_PX;
  const [knownPages, setKnownPages] = useState<KnownPage[]>(restored?.knownPages ?? [{ start: 0, cursor: undefined }]);
  /** Number of rows in the known pages. One row at first, so that the first page is loaded. */
  const [count, setCount] = useState(restored?.count ?? 1);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPx,
    overscan: 10,
    // Leave room for the sticky header.
    paddingStart: rowPx,
    initialOffset: restored?.top ?? 0,
    onChange: ({ scrollOffset }) =>
      storeInEntry(TABLE_STATE, { filters: filterKey, knownPages, count, top: scrollOffset ?? 0 }),
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
    // A filter without an index can return empty pages, so several pages can have the same start. The last one has the row.
    const loaded = loadedPages.findLast(({ page }) => page.start <= index);
    return loaded?.data.items[index - loaded.page.start];
  };

  const failed = queries.find(({ error }) => error);
  const widths = [...(canSelect ? [CHECKBOX_WIDTH] : []), ...columns.map(({ width }) => width)];
  const grid = { gridTemplateColumns: widths.join(" "), height: `${rowPx}px` };
  const select = (asset: Asset, isSelected: boolean) =>
    setSelected((before) => {
      const next = new Map(before);
      if (isSelected) next.set(asset.id, asset);
      else next.delete(asset.id);
      return next;
    });
  const { total } = loadedPages[0]?.data ?? {};
  if (total === 0) return <NoAssets isFiltered={isFiltered(filters)} />;
  return (
    <>
      {failed && <QueryFailure of={failed} />}
      <Text role="status">{totalText(loadedPages[0]?.data, count)}</Text>
      {canSelect && <BulkActions assets={[...selected.values()]} clear={() => setSelected(new Map())} />}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable region must be reachable by keyboard. */}
      <div className={styles.scroller} ref={scroller} tabIndex={0} aria-label="Assets" role="region">
        <div role="table" aria-label="Assets" aria-rowcount={total == null ? -1 : total + 1} className={styles.table}>
          <div role="row" aria-rowindex={1} className={mergeClasses(styles.row, styles.head)} style={grid}>
            {canSelect && (
              <div role="columnheader">
                <Hidden>Selected</Hidden>
              </div>
            )}
            {columns.map((column) => (
              <Header key={column.id} column={column} filters={filters} />
            ))}
          </div>
          <div role="rowgroup" style={{ height: rows.getTotalSize() - rowPx }}>
            {items.map(({ index, start }) => (
              <div
                role="row"
                aria-rowindex={index + 2}
                key={index}
                className={mergeClasses(styles.row, styles.body)}
                style={{ ...grid, transform: `translateY(${start}px)` }}
              >
                {canSelect && <Selection asset={assetAt(index)} selected={selected} select={select} />}
                <Cells asset={assetAt(index)} columns={columns} isNarrow={isNarrow} />
              </div>
            ))}
          </div>
        </div>
      </div>
    </>
  );
}

/** A column header. A click sorts by the column, if the API has an index for it: names from A to Z, or soonest expiry first. */
function Header({ column: { title, sort }, filters }: { column: Column; filters: Filters }) {
  const styles = useStyles();
  const [, setParams] = useSearchParams();
  const isSorted = sort !== undefined && filters.sort === sort;
  const order = sort === "name" && !canSortByName(filters) ? undefined : sort;
  return (
    <div role="columnheader" className={styles.cell} {...(isSorted && { "aria-sort": "ascending" as const })}>
      {order !== undefined ? (
        <Button
          appearance="transparent"
          className={styles.sort}
          iconPosition="after"
          icon={isSorted ? <ArrowSortUpRegular /> : <ArrowSortRegular />}
          onClick={() =>
            setParams((before) => {
              before.set("sort", order);
              return before;
            })
          }
        >
          {title}
        </Button>
      ) : (
        title
      )}
    </div>
  );
}

/** The checkbox of a row. At the limit, only selected rows can be changed. */
function Selection({
  asset,
  selected,
  select,
}: {
  asset: Asset | undefined;
  selected: ReadonlyMap<string, Asset>;
  select(asset: Asset, isSelected: boolean): void;
}) {
  return (
    <div role="cell">
      {asset && (
        <Checkbox
          aria-label={`Select ${assetName(asset)}`}
          checked={selected.has(asset.id)}
          disabled={selected.size >= MAX_SELECTED && !selected.has(asset.id)}
          onChange={(_, { checked }) => select(asset, checked === true)}
        />
      )}
    </div>
  );
}

/** The empty state: why the list is empty, and what to do next. */
const NoAssets = ({ isFiltered }: { isFiltered: boolean }) => (
  <Text role="status">
    {isFiltered ? (
      <>
        No assets match the filters. <Link href={createHref("/inventory")}>Show all assets</Link>
      </>
    ) : (
      <>
        No assets yet, because no scan has found any. Start a scan on the{" "}
        <Link href={createHref("/")}>Overview page</Link>, or check on the{" "}
        <Link href={createHref("/vaults")}>Vaults page</Link> which subscriptions and vaults the service can read.
      </>
    )}
  </Text>
);

/**
 * The cells of a row. While its page is loading, the first cell shows an ellipsis. On a narrow screen, the first cell also has the
 * vault, because assets in different vaults often have the same name, and the owner.
 */
function Cells({ asset, columns, isNarrow }: { asset: Asset | undefined; columns: Column[]; isNarrow: boolean }) {
  const { cell, place } = useStyles();
  return columns.map((column, index) => (
    <div role="cell" key={column.id} className={cell}>
      {asset ? column.cell(asset) : index === 0 && "…"}
      {asset && isNarrow && index === 0 && (
        <div className={place}>
          {vaultOrTenant(asset)}, {asset.owner ?? "no owner"}
        </div>
      )}
    </div>
  ));
}

/** Returns the number of assets. With a filter without an index, only a lower bound is known. */
function totalText(page: Page | undefined, count: number): string {
  if (!page) return "Loading";
  const { total, totalAtLeast } = page;
  if (total != null) return counted(total, "asset");
  // The last of the `count` rows may only make the next page reachable, so it does not count.
  return `At least ${Math.max(totalAtLeast ?? 0, count - 1).toLocaleString()} assets. Scroll down to load more.`;
}
