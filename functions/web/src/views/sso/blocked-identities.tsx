import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const COLUMNS: Column<Schemas["RefusedIdentity"]>[] = [
  { title: "User", cell: ({ username }) => username },
  { title: "Issuer", cell: ({ issuer }) => issuer },
  { title: "Subject", cell: ({ subject }) => subject },
  { title: "Blocked", cell: ({ refusedAt }) => <Instant at={refusedAt} relative /> },
  { title: "Blocked by", cell: ({ refusedBy }) => refusedBy },
  {
    title: "",
    cell: ({ id, username }) => (
      <Operate
        operation="allowIdentity"
        title="Unblock identity"
        about={username}
        action="Unblock identity"
        submit={(_, allow) => allow({ params: { path: { identity_id: id } } })}
      >
        <Text>
          The identity can sign in through single sign-on again, if the single sign-on configuration allows it. The
          deleted user is not restored.
        </Text>
      </Operate>
    ),
  },
];

/**
 * The card of the Single sign-on page with identities of deleted users. They can't sign in until an administrator unblocks
 * them.
 */
export function BlockedIdentities() {
  const list = api.useInfiniteQuery("get", "/auth/sso/refused", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Blocked identities"
      empty="No blocked identities. If you delete a user who signs in through single sign-on, the user's identity is blocked and appears here."
    />
  );
}
