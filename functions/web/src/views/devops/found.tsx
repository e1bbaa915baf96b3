import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Dependency = Schemas["Dependency"];

const COLUMNS: Column<Dependency>[] = [
  { title: "Who", cell: ({ resource }) => resource.name },
  {
    title: "Uses",
    cell: ({ secret, vaultName }) =>
      secret === null ? (
        `all of ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`, {})}>{secret}</Link>
      ),
  },
  { title: "By", cell: ({ evidence }) => evidence },
  { title: "On a new version", cell: ({ refresh }) => refresh.how },
];

/** The variable groups and service connections that use a secret. */
export const Found = () => (
  <>
    <Uses kind="devopsVariableGroup" label="Variable groups" />
    <Uses kind="devopsServiceConnection" label="Service connections" />
  </>
);

function Uses({ kind, label }: { kind: "devopsVariableGroup" | "devopsServiceConnection"; label: string }) {
  const query = { limit: 50, kind };
  const list = api.useInfiniteQuery("get", "/api/assets/dependencies", { params: { query } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ secret, vaultName, resource, evidence }) => [secret, vaultName, resource.id, evidence].join(" ")}
      label={label}
      none={`${label}: none that uses a secret is known.`}
    />
  );
}
