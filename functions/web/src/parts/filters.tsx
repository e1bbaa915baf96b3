import { Button, Field, Input, makeStyles, Select, tokens } from "@fluentui/react-components";
import { type ReactNode, useEffect, useState } from "react";
import { useSearchParams } from "./router.tsx";

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, alignItems: "flex-end" },
  // A choice is as wide as the field, however long its words are.
  field: { flex: "1 1 140px", maxWidth: "260px", gridTemplateColumns: "minmax(0, 1fr)" },
});

/** A filter of a list of the API, by the name that it has there and in the address. */
export interface Filter {
  name: string;
  label: string;
  /** What can be chosen, the values or each value with its words; what has none is typed. */
  values?: readonly string[] | Readonly<Record<string, string>>;
  type?: "date";
}

/** Those that the address has. What the API does not take it says itself. */
export const givenFilters = (params: URLSearchParams, filters: readonly Filter[]): Record<string, string> =>
  Object.fromEntries(
    filters.flatMap(({ name }) => {
      const value = params.get(name);
      return value ? [[name, value]] : [];
    }),
  );

interface Props {
  of: readonly Filter[];
  /** Shown when somebody asks for them, or the address has one. */
  more?: readonly Filter[];
  /** What else there is to choose, before the button that clears. */
  children?: ReactNode;
}

/** The filters above a list. They are in the address, so that a link shows another person the same and Back the list before. */
export function Filters({ of, more = [], children }: Props) {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const isUsed = more.some(({ name }) => params.has(name));
  const [isAsked, ask] = useState(false);
  const hasMore = isUsed || isAsked;
  // What is typed and not looked for yet, by the filter's name. It is of one address: Back, Clear or a link leaves it.
  const [typing, setTyping] = useState<Typing>({ at: params, texts: {} });
  const typed = typing.at === params ? typing.texts : {};
  const look = (texts: Record<string, string>) =>
    setParams((before) => {
      for (const [name, text] of Object.entries(texts)) {
        before.delete(name);
        if (text !== "") before.set(name, text);
      }
      return before;
    });
  useEffect(() => {
    if (Object.keys(typed).length === 0) return undefined;
    const timer = setTimeout(() => look(typed), PAUSE_MS);
    return () => clearTimeout(timer);
  });
  const type = (name: string, text: string, shown: string) => {
    const { [name]: _, ...others } = typed;
    setTyping({ at: params, texts: text === shown ? others : { ...others, [name]: text } });
  };
  const clear = () => {
    setTyping({ at: params, texts: {} });
    setParams((before) => {
      for (const { name } of [...of, ...more]) before.delete(name);
      return before;
    });
  };
  return (
    <search className={styles.filters}>
      {[...of, ...(hasMore ? more : [])].map(({ name, label, values, type: kind }) => (
        <Field key={name} label={label} size="small" className={styles.field}>
          {values ? (
            <Select
              size="small"
              value={params.get(name) ?? ""}
              onChange={(_, { value }) => look({ ...typed, [name]: value })}
            >
              <option value="">any</option>
              {Array.isArray(values)
                ? values.map((value) => <option key={value}>{value}</option>)
                : Object.entries(values).map(([value, words]) => (
                    <option key={value} value={value}>
                      {words}
                    </option>
                  ))}
            </Select>
          ) : (
            <TypedFilter
              type={kind ?? "text"}
              value={params.get(name) ?? ""}
              typed={typed[name]}
              change={(text, shown) => type(name, text, shown)}
              look={() => look(typed)}
            />
          )}
        </Field>
      ))}
      {more.length > 0 && !isUsed && (
        <Button size="small" aria-expanded={hasMore} onClick={() => ask(!isAsked)}>
          {isAsked ? "Fewer filters" : "More filters"}
        </Button>
      )}
      {children}
      {of.length > 1 && (
        <Button size="small" onClick={clear}>
          Clear
        </Button>
      )}
    </search>
  );
}

/** What somebody types is looked for once they pause, or press Enter. */
const PAUSE_MS = 400;

interface Typing {
  at: URLSearchParams;
  texts: Record<string, string>;
}

interface TypedProps {
  type: "text" | "date";
  /** As the address has it. */
  value: string;
  typed: string | undefined;
  change(text: string, shown: string): void;
  look(): void;
}

function TypedFilter({ type, value, typed, change, look }: TypedProps) {
  const shown = type === "date" ? value.slice(0, 10) : value;
  return (
    <Input
      size="small"
      type={type}
      value={typed ?? shown}
      autoComplete="off"
      onChange={(_, data) => change(data.value, shown)}
      onKeyDown={({ key }) => key === "Enter" && look()}
    />
  );
}
