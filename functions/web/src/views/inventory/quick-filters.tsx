import { makeStyles, ToggleButton, tokens } from "@fluentui/react-components";
import { WITHIN } from "../../parts/expires-within.ts";
import { useSearchParams } from "../../parts/router.tsx";

const useStyles = makeStyles({
  bar: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS, alignItems: "center" },
});

/** The quick filters: label, name in the address and value. At most one filter of the expiry is set at a time. */
const QUICK_FILTERS = [
  ["Expired", "status", "expired"],
  ["Next 7 days", WITHIN, "7"],
  ["Next 30 days", WITHIN, "30"],
  ["No owner", "hasOwner", "false"],
] as const;

/** All filters of the expiry in the address. One replaces the others, because together they would match nothing. */
const EXPIRY_FILTERS = ["status", WITHIN, "expiresAfter", "expiresBefore"];

/** Buttons that set the most used filters with one click. */
export function QuickFilters() {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const toggle = (name: string, value: string) =>
    setParams((before) => {
      const isSet = before.get(name) === value;
      for (const other of EXPIRY_FILTERS.includes(name) ? EXPIRY_FILTERS : [name]) before.delete(other);
      if (!isSet) before.set(name, value);
      return before;
    });
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for form controls.
    <div role="group" aria-label="Quick filters" className={styles.bar}>
      {QUICK_FILTERS.map(([label, name, value]) => (
        <ToggleButton
          key={label}
          size="small"
          shape="circular"
          checked={params.get(name) === value}
          onClick={() => toggle(name, value)}
        >
          {label}
        </ToggleButton>
      ))}
    </div>
  );
}
