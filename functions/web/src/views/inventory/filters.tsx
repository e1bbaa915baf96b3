import {
  Button,
  Checkbox,
  Field,
  Input,
  makeStyles,
  Popover,
  PopoverSurface,
  PopoverTrigger,
  Select,
  tokens,
} from "@fluentui/react-components";
import { useEffect, useState } from "react";
import { useSearchParams } from "../../parts/router.tsx";
import { STATUSES } from "../../parts/status.tsx";
import { COLUMNS, WIDE } from "./columns.tsx";

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, alignItems: "flex-end" },
  field: { flex: "1 1 140px", maxWidth: "260px" },
  columns: { display: "flex", flexDirection: "column" },
});

interface Filter {
  name: string;
  label: string;
  values?: readonly string[];
  type?: "date";
}

/** A choice of the API's values, or what is typed; each is a member of the address. */
const FILTERS: Filter[] = [
  { name: "search", label: "Name contains" },
  { name: "type", label: "Type", values: ["secret", "key", "certificate"] },
  { name: "status", label: "Status", values: STATUSES },
  { name: "vault", label: "Vault" },
];
/** Those that are shown when somebody asks for them, or the address has one. */
const MORE: Filter[] = [
  { name: "owner", label: "Owner" },
  { name: "subscription", label: "Subscription id" },
  { name: "tag", label: "Tag (name or name=value)" },
  { name: "enabled", label: "Enabled", values: ["true", "false"] },
  { name: "source", label: "Source", values: ["keyVault", "entra", "b2c"] },
  { name: "counted", label: "Counted", values: ["true", "false"] },
  { name: "expiresAfter", label: "Ends after", type: "date" },
  { name: "expiresBefore", label: "Ends before", type: "date" },
  { name: "sort", label: "Sorted by", values: ["name", "expiresOn"] },
];

/** What somebody types is looked for once they pause. */
const PAUSE_MS = 400;

export function Filters() {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const set = (name: string, value: string) =>
    setParams((before) => {
      const after = new URLSearchParams(before);
      if (value === "") after.delete(name);
      else after.set(name, value);
      return after;
    });
  const isUsed = MORE.some(({ name }) => params.has(name));
  const [isAsked, ask] = useState(false);
  const hasMore = isUsed || isAsked;
  return (
    <search className={styles.filters}>
      {[...FILTERS, ...(hasMore ? MORE : [])].map(({ name, label, values, type }) => (
        <Field key={name} label={label} size="small" className={styles.field}>
          {values ? (
            <Select size="small" value={params.get(name) ?? ""} onChange={(_, { value }) => set(name, value)}>
              <option value="">any</option>
              {values.map((value) => (
                <option key={value}>{value}</option>
              ))}
            </Select>
          ) : (
            <TypedFilter value={params.get(name) ?? ""} type={type ?? "text"} change={(value) => set(name, value)} />
          )}
        </Field>
      ))}
      {!isUsed && (
        <Button size="small" aria-expanded={hasMore} onClick={() => ask(!isAsked)}>
          {isAsked ? "Fewer filters" : "More filters"}
        </Button>
      )}
      <ColumnChoice
        chosen={params.get("columns")?.split(",") ?? WIDE}
        choose={(ids) => set("columns", ids.join(","))}
      />
      <Button size="small" onClick={() => setParams({})}>
        Clear
      </Button>
    </search>
  );
}

function TypedFilter({ value, type, change }: { value: string; type: "text" | "date"; change(value: string): void }) {
  const shown = type === "date" ? value.slice(0, 10) : value;
  const [typed, type_] = useState(shown);
  useEffect(() => type_(shown), [shown]);
  useEffect(() => {
    if (typed === shown) return undefined;
    const timer = setTimeout(() => change(type === "date" && typed ? `${typed}T00:00:00Z` : typed), PAUSE_MS);
    return () => clearTimeout(timer);
  });
  return <Input size="small" type={type} value={typed} onChange={(_, { value }) => type_(value)} />;
}

function ColumnChoice({ chosen, choose }: { chosen: string[]; choose(ids: string[]): void }) {
  const styles = useStyles();
  return (
    <Popover trapFocus>
      <PopoverTrigger disableButtonEnhancement>
        <Button size="small">Columns</Button>
      </PopoverTrigger>
      <PopoverSurface aria-label="Columns">
        <div className={styles.columns}>
          {COLUMNS.map(({ id, title }) => (
            <Checkbox
              key={id}
              label={title}
              checked={chosen.includes(id)}
              onChange={(_, { checked }) => choose(checked ? [...chosen, id] : chosen.filter((one) => one !== id))}
            />
          ))}
        </div>
      </PopoverSurface>
    </Popover>
  );
}
