import { Button, Checkbox, makeStyles, Popover, PopoverSurface, PopoverTrigger } from "@fluentui/react-components";
import { Filters } from "../../parts/filters.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { COLUMNS, useColumns } from "./columns.tsx";
import { FILTERS, MORE_FILTERS, WITHOUT_FIELD } from "./query.ts";
import { SavedViews } from "./saved-views.tsx";

const useStyles = makeStyles({ columns: { display: "flex", flexDirection: "column" } });

/** The filters of the Inventory page, with the column picker. */
export const AssetFilters = () => (
  <Filters of={FILTERS} more={MORE_FILTERS} alsoCleared={WITHOUT_FIELD}>
    <ColumnPicker />
    <SavedViews />
  </Filters>
);

/** The menu that selects the columns of the table. The selected columns are in the address, like the filters. */
function ColumnPicker() {
  const styles = useStyles();
  const [, setParams] = useSearchParams();
  const selectedIds = useColumns().map(({ id }) => id);
  const selectColumns = (ids: string[]) =>
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
              checked={selectedIds.includes(id)}
              onChange={(_, { checked }) =>
                selectColumns(checked ? [...selectedIds, id] : selectedIds.filter((selectedId) => selectedId !== id))
              }
            />
          ))}
        </div>
      </PopoverSurface>
    </Popover>
  );
}
