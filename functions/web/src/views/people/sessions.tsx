import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { sessionEnded } from "../../api/events.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { browserText } from "./browser-text.ts";

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
  {
    title: "Address and browser",
    cell: ({ address, userAgent }) => (
      <>
        {address} <span title={userAgent ?? undefined}>{browserText(userAgent)}</span>
      </>
    ),
  },
  { title: "Expires", cell: ({ endsAt }) => <Instant at={endsAt} relative /> },
  {
    title: "",
    cell: ({ id, current, userAgent }) =>
      !current && (
        <Operate
          operation="endSession"
          title="End session"
          about={browserText(userAgent)}
          action="End session"
          submit={(_, end) => end({ params: { path: { session_id: id } } })}
        >
          <Text>Signs the user out in that browser immediately. The user can sign in again.</Text>
        </Operate>
      ),
  },
];

/** The table of the signed-in user's sessions on the Access page, or of another user's sessions, for an administrator. */
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

/** The button that ends all sessions of the user. The page then asks for a sign-in, because its own session ended too. */
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
      <Text>Ends all your sessions in all browsers, including this one. You can sign in again.</Text>
      <CheckField name="apiTokens" label="Also revoke my API tokens" hint="Revoked tokens can't be restored." />
    </Operate>
  </div>
);
