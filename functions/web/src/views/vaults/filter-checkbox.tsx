import { Checkbox } from "@fluentui/react-components";
import { useSearchParams } from "../../parts/router.tsx";

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
      label={label}
      checked={params.get(name) === "true"}
      onChange={(_, { checked }) => change(Boolean(checked))}
    />
  );
}
