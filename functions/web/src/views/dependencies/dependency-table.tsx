import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { consumerTitle, evidenceText, REFRESHES, STRENGTHS } from "../../parts/dependency-texts.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { Discover } from "./discover.tsx";

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
        {STRENGTHS[strength]}: {evidenceText(evidence)}
        {copy ? " (plaintext copy of the value)" : ""}. Last seen <Instant at={seenAt} relative />
      </>
    ),
  },
  {
    title: "Effect of a new version",
    cell: ({ refresh, pinned, strength }) =>
      `${REFRESHES[refresh.how]}${pinned === null ? "" : `, references the fixed version ${pinned}`}${refresh.how === "blind" ? `: ${WHY_UNKNOWN[strength]}` : ""}`,
  },
  {
    title: "Key Vault reference",
    cell: ({ state }) => state && (state.resolved ? "Resolved" : `Not resolved: ${state.status}`),
  },
];

/** Why the effect of a new version is unknown, by the evidence, and what to do. */
const WHY_UNKNOWN: Record<Dependency["strength"], string> = {
  references: "the service can't see when it reads a new value. Ask its owner",
  entitled: "it may read the asset, but nothing shows that it does. Ask its owner",
  observed: "it read the asset, but the service can't see when it reads a new value. Ask its owner",
};

/** The table of dependencies on the Dependencies page: one row per consumer and asset. The filters are in the address. */
export function DependencyTable() {
  const [params] = useSearchParams();
  const query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/assets/dependencies", { params: { query } }, BY_CURSOR);
  const [page] = list.data?.pages ?? [];
  return (
    <>
      {page && <Summary of={page} isFiltered={Object.keys(query).length > 1} />}
      <Discover />
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

/** When consumers were last searched, how many uses are listed, and the links to those that need attention before a rotation. */
function Summary({
  of: { items, total, totalAtLeast, nextCursor, coverage },
  isFiltered,
}: {
  of: Schemas["DependencyList"];
  isFiltered: boolean;
}) {
  // With filters, a page can be short although others follow.
  const count = total ?? Math.max(totalAtLeast ?? 0, items.length);
  const isExact = total !== null || nextCursor === null;
  return (
    <Text>
      {coverage.lastFullAt === null ? (
        "No discovery has read all resources yet."
      ) : (
        <>
          Last discovery of all resources: <Instant at={coverage.lastFullAt} relative />.
        </>
      )}{" "}
      {coverage.total > 0 &&
        `${counted(coverage.total, "resource or scope", "resources or scopes")} could not be searched: see the last card. `}
      {isExact ? "" : "At least "}
      {counted(count, "use")} found{isFiltered && " with these filters"}. Before a rotation, check the consumers that{" "}
      <Link href={createHref("/dependencies", { refresh: "willBreak" })}>keep the old value</Link> and those with an{" "}
      <Link href={createHref("/dependencies", { refresh: "blind" })}>unknown effect</Link>.
    </Text>
  );
}
