import { Button, Checkbox, makeStyles, Popover, PopoverSurface, PopoverTrigger } from "@fluentui/react-components";
import { Filters } from "../../parts/filters.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { COLUMNS, useColumns } from "./columns.tsx";
import { FILTERS, MORE_FILTERS } from "./query.ts";

const useStyles = makeStyles({ columns: { display: "flex", flexDirection: "column" } });

export const AssetFilters = () => (
  <Filters of={FILTERS} more={MORE_FILTERS}>
    <ColumnChoice />
  </Filters>
);

/** The column picker. The selected columns are in the address, like the filters. */
function ColumnChoice() {
  const styles = useStyles();
  const [, setParams] = useSearchParams();
  const chosen = useColumns().map(({ id }) => id);
  const choose = (ids: string[]) =>
    setParams((before) => {
      before.set("columns", ids.join(","));
      return before;
    });
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
