import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { countUnlessUnread } from "../../parts/plural.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { FilterCheckbox } from "./filter-checkbox.tsx";

type Vault = Schemas["Vault"];

const COLUMNS: Column<Vault>[] = [
  {
    title: "Vault",
    nowrap: true,
    cell: ({ name }) => <Link href={createHref("/inventory", { vault: name })}>{name}</Link>,
  },
  { title: "Subscription", cell: ({ subscriptionId, subscriptionName }) => subscriptionName ?? subscriptionId },
  { title: "Resource group", cell: ({ resourceGroup }) => resourceGroup },
  { title: "Secrets", cell: (vault) => assetCountOf(vault, "secret") },
  { title: "Keys", cell: (vault) => assetCountOf(vault, "key") },
  { title: "Certificates", cell: (vault) => assetCountOf(vault, "certificate") },
  { title: "Expired assets", cell: (vault) => statusCountOf(vault, "expired") },
  { title: "Urgent assets", cell: (vault) => statusCountOf(vault, "critical") },
  { title: "Access problems", wide: true, cell: failuresOf },
];

/** Filters of the table. There is no choice of an order: the API lists vaults only by name. */
const FILTERS = [
  { name: "search", label: "Vault name contains" },
  { name: "subscription", label: "Subscription", placeholder: "Subscription ID" },
] as const;

/** The table of all vaults on the Vaults page. A vault that can't be read shows the reason and the fix. */
export function VaultTable() {
  const [params] = useSearchParams();
  const failing = params.get("failing") === "true";
  const searched = givenFilters(params, FILTERS);
  const list = api.useInfiniteQuery(
    "get",
    "/api/assets/discovery/vaults",
    { params: { query: { limit: 200, ...(failing && { failing }), ...searched } } },
    BY_CURSOR,
  );
  return (
    <>
      <Filters of={FILTERS} alsoCleared={["failing"]}>
        <FilterCheckbox name="failing" label="Only vaults with access problems" />
      </Filters>
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="Vaults"
        csv
        empty={
          Object.keys(searched).length > 0
            ? "No vaults match the filters. Clear the filters to see all vaults."
            : failing
              ? "The last scans could read all known vaults."
              : NO_VAULTS
        }
      />
    </>
  );
}

const NO_VAULTS = (
  <>
    No vaults yet. <Link href={createHref("/")}>Start a scan on the Overview page</Link> to find the key vaults.
  </>
);

/** Returns the number of assets of a type. */
const assetCountOf = ({ assets, failures }: Vault, type: keyof Vault["assets"]): string =>
  countUnlessUnread(
    assets[type],
    failures.some(({ list }) => list === type),
  );

/** Returns the number of assets with a status, with a link to their list. */
function statusCountOf({ name, health, failures }: Vault, status: keyof Vault["health"]) {
  const text = countUnlessUnread(health[status], failures.length > 0);
  if (!health[status]) return text;
  return <Link href={createHref("/inventory", { vault: name, status })}>{text}</Link>;
}

/** Display texts for the lists of a vault, one per type of asset. */
const LISTS = {
  secret: "Secrets",
  key: "Keys",
  certificate: "Certificates",
} as const satisfies Record<Vault["failures"][number]["list"], string>;

/** Returns the access problems of a vault. Until `retryAt`, only scans of the mode `force` read it. */
function failuresOf({ failures, retryAt }: Vault) {
  if (failures.length === 0 && retryAt === null) return "None";
  return (
    <>
      {failures.map(({ list, message, remedy, at }) => (
        <div key={list}>
          {LISTS[list]}: {message} {remedy} (<Instant at={at} relative />)
        </div>
      ))}
      {retryAt !== null && (
        <div>
          The service tries to read this vault again <Instant at={retryAt} relative />.
        </div>
      )}
    </>
  );
}
