import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { kindOf, REFRESHES, STRENGTHS } from "../../parts/dependency-texts.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";

type Dependency = Schemas["Dependency"];

const FILTERS = [
  { name: "vault", label: "Vault" },
  { name: "strength", label: "Evidence", values: STRENGTHS },
  { name: "refresh", label: "After a new version", values: REFRESHES },
  { name: "resolved", label: "Reference status", values: { true: "Resolved", false: "Not resolved" } },
  { name: "pinned", label: "Version", values: { true: "Pinned", false: "Latest" } },
];

const COLUMNS: Column<Dependency>[] = [
  {
    title: "Asset",
    cell: ({ secret, type, vaultName, name }) =>
      secret === null ? (
        `${type === null ? "all assets" : `all ${type}s`} in ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`, {})}>
          {vaultName}/{name}
        </Link>
      ),
  },
  {
    title: "Used by",
    cell: ({ resource }) =>
      `${isolated(resource.name)} (${kindOf(resource)})${resource.managedBy === null ? "" : `, managed by ${isolated(resource.managedBy)}`}`,
  },
  {
    title: "Evidence",
    cell: ({ strength, evidence, copy }) =>
      `${STRENGTHS[strength]}: ${isolated(evidence)}${copy ? " (plaintext copy of the value)" : ""}`,
  },
  {
    title: "After a new version",
    cell: ({ refresh, pinned }) => `${REFRESHES[refresh.how]}${pinned === null ? "" : `, pinned to version ${pinned}`}`,
  },
  { title: "Reference status", cell: ({ state }) => state && (state.resolved ? "Resolved" : state.status) },
  { title: "Last seen", cell: ({ seenAt }) => <Instant at={seenAt} relative /> },
];

/** Dependencies that match the filters in the address. */
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
        empty="No dependencies match the filters. Select Discover dependencies to search for consumers."
      />
    </>
  );
}
