import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const COLUMNS: Column<Schemas["RefusedIdentity"]>[] = [
  { title: "Was", cell: ({ username }) => username },
  { title: "Issuer", cell: ({ issuer }) => issuer },
  { title: "Subject", cell: ({ subject }) => subject },
  { title: "Since", cell: ({ refusedAt }) => <Instant at={refusedAt} relative /> },
  { title: "By", cell: ({ refusedBy }) => refusedBy },
  {
    title: "",
    cell: ({ id, username }) => (
      <Operate
        operation="allowIdentity"
        title="Let in again"
        about={username}
        action="Let in"
        appearance="transparent"
        submit={(_, allow) => allow({ params: { path: { identity_id: id } } })}
      >
        <Text>Who is meant can sign in again, as far as the configuration lets strangers in.</Text>
      </Operate>
    ),
  },
];

/** Deleted users of single sign-on, who stay out until an administrator lets them in. */
export function Refused() {
  const list = api.useInfiniteQuery("get", "/auth/sso/refused", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Refused"
      none="Nobody is refused for having been deleted."
    />
  );
}
