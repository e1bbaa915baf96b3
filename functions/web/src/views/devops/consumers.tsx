import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { REFRESHES } from "../../parts/dependency-texts.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Dependency = Schemas["Dependency"];

const COLUMNS: Column<Dependency>[] = [
  { title: "Consumer", cell: ({ resource }) => resource.name },
  {
    title: "Uses",
    cell: ({ secret, vaultName }) =>
      secret === null ? (
        `all secrets in ${vaultName}`
      ) : (
        <Link href={createHref(`/dependencies/${encodeURIComponent(secret)}`)}>{titleOfId(secret)}</Link>
      ),
  },
  { title: "Evidence", cell: ({ evidence }) => evidence },
  { title: "Effect of a new version", cell: ({ refresh }) => REFRESHES[refresh.how] },
];

/** The card of the Azure DevOps page with the variable groups and service connections that use a secret. */
export const Consumers = () => (
  <>
    <Text>
      Variable groups and service connections that use a secret. They are searched when an organization is connected and
      a user selects <Link href={createHref("/dependencies")}>Discover dependencies</Link>.
    </Text>
    <ConsumerTable kind="devopsVariableGroup" label="Variable groups" />
    <ConsumerTable kind="devopsServiceConnection" label="Service connections" />
  </>
);

/** The consumers of one kind. */
function ConsumerTable({ kind, label }: { kind: "devopsVariableGroup" | "devopsServiceConnection"; label: string }) {
  const query = { limit: 50, kind };
  const list = api.useInfiniteQuery("get", "/api/assets/dependencies", { params: { query } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ secret, vaultName, resource, evidence }) => [secret, vaultName, resource.id, evidence].join(" ")}
      label={label}
      empty={`${label}: none found yet.`}
    />
  );
}
