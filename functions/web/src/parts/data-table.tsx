import {
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
import { Fragment, type ReactNode } from "react";
import { useIsNarrow } from "./width.ts";

const useStyles = makeStyles({
  scroller: { overflowX: "auto", maxWidth: "100%" },
  table: { tableLayout: "auto", backgroundColor: tokens.colorNeutralBackground1 },
  // A title is never broken within a word: each column is as wide as that at least.
  title: { overflowWrap: "normal" },
  cell: {
    minWidth: "64px",
    // As wide as its longest word, but for words that nobody would write; more where there is room.
    maxWidth: "max(220px, 16vw)",
    overflowWrap: "break-word",
    verticalAlign: "top",
    // As Fluent UI writes its own: of others the later one would win, which is another from time to time.
    paddingTop: tokens.spacingVerticalS,
    paddingBottom: tokens.spacingVerticalS,
    height: "auto",
    unicodeBidi: "isolate",
    "& button": { overflowWrap: "normal" },
  },
  wide: { minWidth: "min(220px, 60vw)", maxWidth: "50vw", overflowWrap: "anywhere" },
  whole: { whiteSpace: "nowrap" },
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
  value: { margin: 0, minWidth: 0, unicodeBidi: "isolate" },
  untitled: { gridColumn: "1 / -1" },
});

export interface Column<T> {
  /** Empty where the cell says what it is, such as buttons. */
  title: string;
  /** Whether it has sentences. */
  wide?: boolean;
  /** Whether it is short and never broken, such as the name of a vault. */
  whole?: boolean;
  cell(item: T): ReactNode;
}

interface Props<T> {
  items: readonly T[];
  columns: Column<T>[];
  keyOf(item: T): string;
  /** What the rows are, such as "Vaults". */
  label: string;
}

/** Rows that are all there: a table, on a narrow screen one under the other. */
export function DataTable<T>(props: Props<T>) {
  return useIsNarrow() ? <Stack {...props} /> : <Wide {...props} />;
}

function Stack<T>({ items, columns, keyOf, label }: Props<T>) {
  const styles = useStyles();
  return (
    <ul className={styles.stack} aria-label={label}>
      {items.map((item) => (
        <li key={keyOf(item)} className={styles.item}>
          <dl className={styles.facts}>
            {columns.map(({ title, cell }) => {
              const value = cell(item);
              if (value === null || value === undefined || value === "" || value === false) return null;
              return (
                <Fragment key={title}>
                  <dt className={mergeClasses(styles.name, title === "" && styles.untitled)}>{title}</dt>
                  <dd className={mergeClasses(styles.value, title === "" && styles.untitled)}>{value}</dd>
                </Fragment>
              );
            })}
          </dl>
        </li>
      ))}
    </ul>
  );
}

function Wide<T>({ items, columns, keyOf, label }: Props<T>) {
  const styles = useStyles();
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard.
    <section className={styles.scroller} aria-label={label} tabIndex={0}>
      <Table size="small" className={styles.table} aria-label={label}>
        <TableHeader>
          <TableRow>
            {columns.map(({ title }) => (
              <TableHeaderCell key={title} className={styles.title}>
                {title}
              </TableHeaderCell>
            ))}
          </TableRow>
        </TableHeader>
        <TableBody>
          {items.map((item) => (
            <TableRow key={keyOf(item)}>
              {columns.map(({ title, wide, whole, cell }) => (
                <TableCell
                  key={title}
                  className={mergeClasses(styles.cell, wide && styles.wide, whole && styles.whole)}
                >
                  {cell(item)}
                </TableCell>
              ))}
            </TableRow>
          ))}
        </TableBody>
      </Table>
    </section>
  );
}
