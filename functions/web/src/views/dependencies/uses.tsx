import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { kindOf, REFRESHES, STRENGTHS } from "../../parts/dependency-words.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";

type Dependency = Schemas["Dependency"];

const FILTERS = [
  { name: "vault", label: "Vault" },
  { name: "strength", label: "How it is known", values: STRENGTHS },
  { name: "refresh", label: "On a new version", values: REFRESHES },
  { name: "resolved", label: "Reference", values: { true: "can be followed", false: "can't be followed" } },
  { name: "pinned", label: "Version", values: { true: "names one", false: "takes the newest" } },
];

const COLUMNS: Column<Dependency>[] = [
  {
    title: "Asset",
    cell: ({ secret, type, vaultName, name }) =>
      secret === null ? (
        `${type === null ? "all" : `all ${type}s`} of ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`, {})}>
          {vaultName}/{name}
        </Link>
      ),
  },
  {
    title: "Used by",
    cell: ({ resource }) =>
      `${isolated(resource.name)} (${kindOf(resource)})${resource.managedBy === null ? "" : `, written by ${isolated(resource.managedBy)} too`}`,
  },
  {
    title: "How",
    cell: ({ strength, evidence, copy }) =>
      `${STRENGTHS[strength]}: ${isolated(evidence)}${copy ? " (a copy of the value)" : ""}`,
  },
  {
    title: "On a new version",
    cell: ({ refresh, pinned }) => `${REFRESHES[refresh.how]}${pinned === null ? "" : `, names version ${pinned}`}`,
  },
  { title: "Reference", cell: ({ state }) => state && (state.resolved ? "followed" : state.status) },
  { title: "Seen", cell: ({ seenAt }) => <Instant at={seenAt} relative /> },
];

/** Who uses what, by the filters in the address. */
export function Uses() {
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
        label="Who uses what"
        none="No use is known."
      />
    </>
  );
}
