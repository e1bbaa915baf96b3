import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { consumerTitle, REFRESHES, STRENGTHS } from "../../parts/dependency-texts.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";

type Dependency = Schemas["Dependency"];

const FILTERS = [
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
  { name: "strength", label: "Evidence", values: STRENGTHS },
  { name: "refresh", label: "Effect of a new version", values: REFRESHES },
  {
    name: "resolved",
    label: "Key Vault reference",
    values: { true: "Resolved by Azure", false: "Not resolved (error)" },
  },
  { name: "pinned", label: "Referenced version", values: { true: "Fixed version", false: "Latest version" } },
];

const COLUMNS: Column<Dependency>[] = [
  {
    title: "Asset",
    // `secret` is the asset ID. Null: the consumer can read all assets of the vault, of one type or, if the type is null, of
    // all types.
    cell: ({ secret, type, vaultName, name }) =>
      secret === null ? (
        `${type === null ? "all assets" : `all ${type}s`} in ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`)}>
          {vaultName}/{name}
        </Link>
      ),
  },
  {
    title: "Used by",
    cell: ({ resource }) =>
      `${consumerTitle(resource)}${resource.managedBy === null ? "" : `, managed by ${isolated(resource.managedBy)}`}`,
  },
  {
    title: "Evidence",
    wide: true,
    folds: true,
    // With the time, so that the table needs no further column, which a screen of 1,440 pixels would cut.
    cell: ({ strength, evidence, copy, seenAt }) => (
      <>
        {STRENGTHS[strength]}: {isolated(evidence)}
        {copy ? " (plaintext copy of the value)" : ""}. Last seen <Instant at={seenAt} relative />
      </>
    ),
  },
  {
    title: "Effect of a new version",
    cell: ({ refresh, pinned }) =>
      `${REFRESHES[refresh.how]}${pinned === null ? "" : `, references the fixed version ${pinned}`}${refresh.how === "blind" ? ": ask its owner how it gets a new value" : ""}`,
  },
  {
    title: "Key Vault reference",
    cell: ({ state }) => state && (state.resolved ? "Resolved" : `Not resolved: ${state.status}`),
  },
];

/** The table of dependencies on the Dependencies page: one row per consumer and asset. The filters are in the address. */
export function DependencyTable() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/assets/dependencies", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ secret, type, vaultName, resource, evidence }) =>
          [secret, type, vaultName, resource.id, evidence].join(" ")
        }
        label="Dependencies"
        csv
        empty="No consumers match the filters. Clear the filters, or select Discover dependencies to search again."
      />
    </>
  );
}
