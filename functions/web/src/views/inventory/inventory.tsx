import { Link, makeStyles, tokens } from "@fluentui/react-components";
import { lazy, Suspense, useMemo } from "react";
import { createHref } from "../../parts/address.ts";
import { WITHIN } from "../../parts/expires-within.ts";
import { type QuickFilter, QuickFilters } from "../../parts/quick-filters.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { AssetTable } from "./asset-table.tsx";
import { CsvExport } from "./export.tsx";
import { AssetFilters } from "./filters.tsx";
import { filtersOf } from "./query.ts";

const useStyles = makeStyles({
  bar: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalL, alignItems: "center" },
  whole: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalM, flex: "1 0 480px", minHeight: 0 },
});

const QUICK_FILTERS: readonly QuickFilter[] = [
  ["Expired", "status", "expired"],
  ["Next 7 days", WITHIN, "7"],
  ["Next 30 days", WITHIN, "30"],
  ["No owner", "hasOwner", "false"],
];

/** All filters of the expiry in the address. At most one of them is set at a time. */
const EXPIRY_FILTERS = ["status", WITHIN, "expiresAfter", "expiresBefore"];

const Calendar = lazy(async () => ({ default: (await import("./calendar.tsx")).Calendar }));

/**
 * The Inventory page: all assets as a list, or the days on which they expire as a calendar. Filters, order and columns are in
 * the address, so that the view can be shared as a link.
 */
export default function Inventory() {
  const [params] = useSearchParams();
  return (
    <View title="Inventory" fills>
      {params.get("show") === "calendar" ? (
        <>
          <div>
            <Link href={createHref("/inventory")}>List of assets</Link>
          </div>
          <Suspense>
            <Calendar />
          </Suspense>
        </>
      ) : (
        <AssetList params={params} />
      )}
    </View>
  );
}

function AssetList({ params }: { params: URLSearchParams }) {
  const styles = useStyles();
  // The filter of the next days starts at the current time, so it stays the same until the address changes.
  const filters = useMemo(() => filtersOf(params), [params]);
  // Other filters make a new table and cancel an export.
  const key = JSON.stringify(filters);
  return (
    <>
      <AssetFilters />
      {/* Above the list, so that Tab reaches these controls before thousands of rows. */}
      <div className={styles.bar}>
        <QuickFilters of={QUICK_FILTERS} exclusive={EXPIRY_FILTERS} />
        <CsvExport key={`csv ${key}`} filters={filters} />
        <Link href={createHref("/inventory", { show: "calendar" })}>Expiry calendar</Link>
      </div>
      <div className={styles.whole}>
        <AssetTable key={key} filters={filters} />
      </div>
    </>
  );
}
