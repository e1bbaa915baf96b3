import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { sessionEnded } from "../../api/events.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const METHODS = { password: "Password", sso: "Single sign-on" } as const satisfies Record<
  Schemas["Session"]["by"],
  string
>;

const COLUMNS: Column<Schemas["Session"]>[] = [
  {
    title: "Created",
    cell: ({ createdAt, current }) => (
      <>
        <Instant at={createdAt} relative />
        {current && " (current session)"}
      </>
    ),
  },
  { title: "Sign-in method", cell: ({ by }) => METHODS[by] },
  { title: "Client", cell: ({ address, userAgent }) => `${address ?? ""} ${userAgent ?? ""}` },
  { title: "Expires", cell: ({ endsAt }) => <Instant at={endsAt} relative /> },
  {
    title: "",
    cell: ({ id, current, userAgent }) =>
      !current && (
        <Operate
          operation="endSession"
          title="End session"
          about={userAgent ?? "unknown client"}
          action="End session"
          appearance="transparent"
          submit={(_, end) => end({ params: { path: { session_id: id } } })}
        >
          <Text>The user must sign in again in that browser.</Text>
        </Operate>
      ),
  },
];

/** The sessions of the signed-in user, or of another user for an administrator. */
export function Sessions({ user }: { user?: string }) {
  const query = { limit: 100, ...(user !== undefined && { user }) };
  const list = api.useInfiniteQuery("get", "/auth/sessions", { params: { query } }, BY_CURSOR);
  const label = user === undefined ? "Your sessions" : `Sessions of ${user}`;
  return (
    <>
      {user === undefined && <SignOutEverywhere />}
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label={label} empty="No active sessions." />
    </>
  );
}

const SignOutEverywhere = () => (
  <div>
    <Operate
      operation="signOut"
      title="Sign out everywhere"
      action="Sign out everywhere"
      submit={async (form, signOut) => {
        await signOut({ body: { everywhere: true, apiTokens: form.has("apiTokens") } });
        sessionEnded();
      }}
    >
      <Text>Ends all your sessions, including this one. Sign-ins in progress are canceled.</Text>
      <CheckField name="apiTokens" label="Also revoke my API tokens" />
    </Operate>
  </div>
);
