import { makeStyles, tokens } from "@fluentui/react-components";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { AssetTable } from "./asset-table.tsx";
import { CsvExport } from "./export.tsx";
import { AssetFilters } from "./filters.tsx";
import { filtersOf } from "./query.ts";

const useStyles = makeStyles({
  whole: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalM, flex: "1 0 480px", minHeight: 0 },
});

/** The Inventory page: all assets. Filters and columns are in the address, so that the view can be shared as a link. */
export default function Inventory() {
  const styles = useStyles();
  const [params] = useSearchParams();
  const filters = filtersOf(params);
  // Other filters make a new table and cancel an export.
  const key = JSON.stringify(filters);
  return (
    <View title="Inventory" fills>
      <AssetFilters />
      {/* Above the list, so that Tab reaches the button before thousands of rows. */}
      <CsvExport key={`csv ${key}`} filters={filters} />
      <div className={styles.whole}>
        <AssetTable key={key} filters={filters} />
      </div>
    </View>
  );
}
