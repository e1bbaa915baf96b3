import { makeStyles, ToggleButton, tokens } from "@fluentui/react-components";
import { useSearchParams } from "./router.tsx";

const useStyles = makeStyles({
  bar: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS, alignItems: "center" },
});

/** A quick filter: the label, the name in the address and the value. */
export type QuickFilter = readonly [label: string, name: string, value: string];

/**
 * Buttons that set the most used filters of a list with one click.
 *
 * @param props.exclusive - Names of filters that replace each other, because together they would match nothing.
 */
export function QuickFilters({ of, exclusive = [] }: { of: readonly QuickFilter[]; exclusive?: readonly string[] }) {
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const toggle = (name: string, value: string) =>
    setParams((before) => {
      const isSet = before.get(name) === value;
      for (const other of exclusive.includes(name) ? exclusive : [name]) before.delete(other);
      if (!isSet) before.set(name, value);
      return before;
    });
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for form controls.
    <div role="group" aria-label="Quick filters" className={styles.bar}>
      {of.map(([label, name, value]) => (
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
