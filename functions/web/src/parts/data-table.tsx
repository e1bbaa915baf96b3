import {
  Button,
  makeStyles,
  mergeClasses,
  Table,
  TableBody,
  TableCell,
  TableHeader,
  TableHeaderCell,
  TableRow,
  tokens,
} from "@fluentui/react-components";
import { ArrowSortRegular, ArrowSortUpRegular } from "@fluentui/react-icons";
import { Fragment, type ReactNode, useState } from "react";
import { Hidden } from "./hidden.tsx";
import { useIsNarrow } from "./width.ts";

/** Number of items that the list for narrow screens shows at first. Each item fills a large part of a phone's screen. */
const FIRST_ITEMS = 20;

/** A badge of Fluent UI is one line high. In a narrow column its text can need two lines. */
const GROWING_BADGE = { height: "auto", minHeight: "20px" } as const;

const useStyles = makeStyles({
  scroller: { overflowX: "auto", maxWidth: "100%" },
  table: { tableLayout: "auto", backgroundColor: tokens.colorNeutralBackground1 },
  // A header never breaks within a word, so each column is at least as wide as its longest word.
  title: { overflowWrap: "normal" },
  sort: { minWidth: 0, padding: 0, fontWeight: "inherit", justifyContent: "flex-start" },
  cell: {
    minWidth: "64px",
    // Wide enough for common words. Very long ones, such as ids, wrap.
    maxWidth: "max(220px, 16vw)",
    overflowWrap: "break-word",
    verticalAlign: "top",
    // The same longhand properties as Fluent UI: with the shorthand, the result would depend on the order of the style sheets.
    paddingTop: tokens.spacingVerticalS,
    paddingBottom: tokens.spacingVerticalS,
    height: "auto",
    unicodeBidi: "isolate",
    "& button": { overflowWrap: "normal", whiteSpace: "nowrap" },
    "& .fui-Badge": GROWING_BADGE,
  },
  wide: { minWidth: "min(220px, 60vw)", maxWidth: "50vw", overflowWrap: "anywhere" },
  nowrap: { whiteSpace: "nowrap" },
  breaks: { minWidth: "112px", overflowWrap: "anywhere" },
  stack: { margin: 0, padding: 0, listStyleType: "none", overflowWrap: "anywhere" },
  item: { padding: `${tokens.spacingVerticalS} 0`, borderTop: `1px solid ${tokens.colorNeutralStroke2}` },
  facts: {
    display: "grid",
    gridTemplateColumns: "minmax(min-content, 25%) minmax(0, 1fr)",
    columnGap: tokens.spacingHorizontalM,
    rowGap: tokens.spacingVerticalXS,
    margin: 0,
  },
  name: { color: tokens.colorNeutralForeground3, overflowWrap: "normal" },
  value: { margin: 0, minWidth: 0, unicodeBidi: "isolate", "& .fui-Badge": GROWING_BADGE },
  untitled: { gridColumn: "1 / -1" },
});

export interface Column<T> {
  /** Empty if the cells need no header, such as buttons. Screen readers then say "Actions". */
  title: string;
  /** Whether the cells contain sentences. */
  wide?: boolean;
  /** Whether the cells stay on one line, such as the name of a vault. */
  nowrap?: boolean;
  /** Whether long words, such as IDs, break, so that the columns after it fit on the screen. */
  breaks?: boolean;
  /** Whether a narrow screen hides the cells behind their title, because they are long and rarely read. */
  folds?: boolean;
  /** Whether the rows are in the order of this column, and how to sort by it. Without it, the header is text. */
  sort?: { isSorted: boolean; choose(): void } | undefined;
  cell(item: T): ReactNode;
}

interface Props<T> {
  items: readonly T[];
  columns: Column<T>[];
  keyOf(item: T): string;
  /** Name of the table, such as "Vaults". */
  label: string;
}

/** A table of items with columns, used in all views. On a narrow screen, a list with the cells of a row below each other. */
export function DataTable<T>(props: Props<T>) {
  return useIsNarrow() ? <Stack {...props} /> : <WideTable {...props} />;
}

/**
 * The list for narrow screens: a label and a value per column. Columns without a value are left out. Shows 20 items, and more
 * with a button.
 */
function Stack<T>({ items, columns, keyOf, label }: Props<T>) {
  const styles = useStyles();
  const [limit, setLimit] = useState(FIRST_ITEMS);
  const left = items.length - limit;
  return (
    <>
      <ul className={styles.stack} aria-label={label}>
        {items.slice(0, limit).map((item) => (
          <li key={keyOf(item)} className={styles.item}>
            <Facts item={item} columns={columns} />
          </li>
        ))}
      </ul>
      {left > 0 && (
        <div>
          <Button size="small" onClick={() => setLimit(limit + 5 * FIRST_ITEMS)}>
            Show {Math.min(left, 5 * FIRST_ITEMS)} more
          </Button>
        </div>
      )}
    </>
  );
}

/** The cells of one item on a narrow screen. */
function Facts<T>({ item, columns }: { item: T; columns: Column<T>[] }) {
  const styles = useStyles();
  return (
    <dl className={styles.facts}>
      {columns.map(({ title, folds = false, cell }) => {
        const value = cell(item);
        if (value === null || value === undefined || value === "" || value === false) return null;
        const isWhole = title === "" || folds;
        return (
          <Fragment key={title}>
            <dt className={mergeClasses(styles.name, isWhole && styles.untitled)}>
              {folds ? <Hidden>{title}</Hidden> : title}
            </dt>
            <dd className={mergeClasses(styles.value, isWhole && styles.untitled)}>
              {folds ? (
                <details>
                  <summary>{title}</summary>
                  {value}
                </details>
              ) : (
                value
              )}
            </dd>
          </Fragment>
        );
      })}
    </dl>
  );
}

/** The table for all other screens. It scrolls sideways within its section if its columns don't fit. */
function WideTable<T>({ items, columns, keyOf, label }: Props<T>) {
  const styles = useStyles();
  return (
    // A group, not a region: the card around the table is already a landmark, often with the same name.
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for form controls.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable part must be reachable by keyboard.
    <div role="group" className={styles.scroller} aria-label={label} tabIndex={0}>
      <Table size="small" className={styles.table} aria-label={label}>
        <TableHeader>
          <TableRow>
            {columns.map(({ title, sort }) => (
              <TableHeaderCell
                key={title}
                className={styles.title}
                {...(sort?.isSorted && { "aria-sort": "ascending" as const })}
              >
                {sort ? (
                  <Button
                    appearance="transparent"
                    className={styles.sort}
                    iconPosition="after"
                    icon={sort.isSorted ? <ArrowSortUpRegular /> : <ArrowSortRegular />}
                    onClick={sort.choose}
                  >
                    {title}
                  </Button>
                ) : (
                  title || <Hidden>Actions</Hidden>
                )}
              </TableHeaderCell>
            ))}
          </TableRow>
        </TableHeader>
        <TableBody>
          {items.map((item) => (
            <TableRow key={keyOf(item)}>
              {columns.map(({ title, wide, nowrap, breaks, cell }) => (
                <TableCell
                  key={title}
                  className={mergeClasses(
                    styles.cell,
                    wide && styles.wide,
                    nowrap && styles.nowrap,
                    breaks && styles.breaks,
                  )}
                >
                  {cell(item)}
                </TableCell>
              ))}
            </TableRow>
          ))}
        </TableBody>
      </Table>
    </div>
  );
}
