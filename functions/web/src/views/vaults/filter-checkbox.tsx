import { Checkbox, makeStyles, tokens } from "@fluentui/react-components";
import { useSearchParams } from "../../parts/router.tsx";

// Fluent UI gives the label of an unchecked checkbox the color of secondary text, which looks unavailable.
const useStyles = makeStyles({ label: { "& label": { color: tokens.colorNeutralForeground1 } } });

/** A checkbox that sets a filter in the address to `true`, or removes the filter. The other filters stay. */
export function FilterCheckbox({ name, label }: { name: string; label: string }) {
  const [params, setParams] = useSearchParams();
  const change = (checked: boolean) =>
    setParams((before) => {
      if (checked) before.set(name, "true");
      else before.delete(name);
      return before;
    });
  return (
    <Checkbox
      className={useStyles().label}
      label={label}
      checked={params.get(name) === "true"}
      onChange={(_, { checked }) => change(Boolean(checked))}
    />
  );
}
