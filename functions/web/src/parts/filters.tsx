import { Button, Field, Input, makeStyles, Select, tokens } from "@fluentui/react-components";
import { type ReactNode, useEffect, useState } from "react";
import { useSearchParams } from "./router.tsx";

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, alignItems: "flex-end" },
  // A select is as wide as its field, whatever the length of its options.
  field: { flex: "1 1 140px", maxWidth: "260px", gridTemplateColumns: "minmax(0, 1fr)" },
});

/** A filter of an API list. `name` is the query parameter of the API and of the page's address. */
export interface Filter {
  name: string;
  label: string;
  /** The values, or each value with its display text. Without values, the filter is a text or date field. */
  values?: readonly string[] | Readonly<Record<string, string>>;
  type?: "date";
  /** Says in an empty text field what to enter, such as "Full vault name". */
  placeholder?: string;
}

/** Returns the filters that the address sets. The API validates them. */
export const givenFilters = (params: URLSearchParams, filters: readonly Filter[]): Record<string, string> =>
  Object.fromEntries(
    filters.flatMap(({ name }) => {
      const value = params.get(name);
      return value ? [[name, value]] : [];
    }),
  );

interface Props {
  of: readonly Filter[];
  /** Filters behind "More filters". They are shown if the address sets one of them. */
  more?: readonly Filter[];
  /** Names in the address of filters that other controls set. "Clear filters" removes them too. */
  alsoCleared?: readonly string[];
  /** Additional controls before the "Clear" button. */
  children?: ReactNode;
}

/** The filters of a list. They are in the address, so that the list can be shared as a link and Back restores it. */
export function Filters({ of, more = [], alsoCleared = [], children }: Props) {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  /** Whether the address sets one of the filters behind "More filters". They can't be hidden then. */
  const isUsed = more.some(({ name }) => params.has(name));
  const [isExpanded, setExpanded] = useState(false);
  const showsMore = isUsed || isExpanded;
  // Text by filter name that is not applied yet. It is discarded when the address changes by Back, Clear or a link.
  // `params` says for which address the texts were entered: `useSearchParams` returns a new object after each change.
  const [drafts, setDrafts] = useState<Drafts>({ params, texts: {} });
  const draft = drafts.params === params ? drafts.texts : {};
  const apply = (texts: Record<string, string>) =>
    setParams((before) => {
      for (const [name, text] of Object.entries(texts)) {
        before.delete(name);
        if (text !== "") before.set(name, text);
      }
      return before;
    });
  // Runs after each render, so each keystroke starts the pause again.
  useEffect(() => {
    if (Object.keys(draft).length === 0) return undefined;
    const timer = setTimeout(() => apply(draft), PAUSE_MS);
    return () => clearTimeout(timer);
  });
  /** Keeps a text as a draft, or drops the draft if the text is what the address contains. */
  const edit = (name: string, text: string, shown: string) => {
    const { [name]: _, ...others } = draft;
    setDrafts({ params, texts: text === shown ? others : { ...others, [name]: text } });
  };
  const clear = () => {
    setDrafts({ params, texts: {} });
    setParams((before) => {
      for (const name of [...[...of, ...more].map((filter) => filter.name), ...alsoCleared]) before.delete(name);
      return before;
    });
  };
  return (
    <search className={styles.filters}>
      {[...of, ...(showsMore ? more : [])].map(({ name, label, values, type: inputType, placeholder }) => (
        <Field key={name} label={label} size="small" className={styles.field}>
          {values ? (
            <Select
              size="small"
              value={params.get(name) ?? ""}
              // With the texts that are not applied yet, because the new address discards them.
              onChange={(_, { value }) => apply({ ...draft, [name]: value })}
            >
              <option value="">Any</option>
              {Array.isArray(values)
                ? values.map((value) => <option key={value}>{value}</option>)
                : Object.entries(values).map(([value, text]) => (
                    <option key={value} value={value}>
                      {text}
                    </option>
                  ))}
            </Select>
          ) : (
            <TypedFilter
              type={inputType ?? "text"}
              placeholder={placeholder}
              value={params.get(name) ?? ""}
              draft={draft[name]}
              change={(text, shown) => edit(name, text, shown)}
              apply={() => apply(draft)}
            />
          )}
        </Field>
      ))}
      {more.length > 0 && !isUsed && (
        <Button size="small" aria-expanded={showsMore} onClick={() => setExpanded(!isExpanded)}>
          {isExpanded ? "Fewer filters" : "More filters"}
        </Button>
      )}
      {children}
      {of.length > 1 && (
        <Button size="small" onClick={clear}>
          Clear filters
        </Button>
      )}
    </search>
  );
}

/** A text filter applies after this pause in typing, or on Enter. */
const PAUSE_MS = 400;

interface Drafts {
  params: URLSearchParams;
  texts: Record<string, string>;
}

interface TypedProps {
  type: "text" | "date";
  placeholder: string | undefined;
  /** The value in the address. */
  value: string;
  /** Text that is not applied yet. Undefined without one. */
  draft: string | undefined;
  /** Called on each edit with the new text and the text that the address contains. */
  change(text: string, shown: string): void;
  apply(): void;
}

/** A text or date field. The address changes after a pause in typing, or at once on Enter. */
function TypedFilter({ type, placeholder, value, draft, change, apply }: TypedProps) {
  // The address can contain a date with a time, such as after a click on a chart. A date field shows only the date.
  const shown = type === "date" ? value.slice(0, 10) : value;
  return (
    <Input
      size="small"
      type={type}
      placeholder={placeholder}
      value={draft ?? shown}
      autoComplete="off"
      onChange={(_, data) => change(data.value, shown)}
      onKeyDown={({ key }) => key === "Enter" && apply()}
    />
  );
}
