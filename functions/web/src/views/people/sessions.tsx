import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { sessionEnded } from "../../api/events.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const COLUMNS: Column<Schemas["Session"]>[] = [
  {
    title: "Since",
    cell: ({ createdAt, current }) => (
      <>
        <Instant at={createdAt} relative />
        {current && " (this one)"}
      </>
    ),
  },
  { title: "By", cell: ({ by }) => by },
  { title: "From", cell: ({ address, userAgent }) => `${address ?? ""} ${userAgent ?? ""}` },
  { title: "Ends", cell: ({ endsAt }) => <Instant at={endsAt} relative /> },
  {
    title: "",
    cell: ({ id, current, userAgent }) =>
      !current && (
        <Operate
          operation="endSession"
          title="End"
          about={userAgent ?? "a session"}
          action="End"
          appearance="transparent"
          submit={(_, end) => end({ params: { path: { session_id: id } } })}
        >
          <Text>That browser must sign in again.</Text>
        </Operate>
      ),
  },
];

/** Where the person is signed in, or another whom an administrator asks about. */
export function Sessions({ user }: { user?: string }) {
  const query = { limit: 100, ...(user !== undefined && { user }) };
  const list = api.useInfiniteQuery("get", "/auth/sessions", { params: { query } }, BY_CURSOR);
  const label = user === undefined ? "Your sessions" : `Sessions of ${user}`;
  return (
    <>
      {user === undefined && <SignOutEverywhere />}
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label={label} none="There is none." />
    </>
  );
}

const SignOutEverywhere = () => (
  <div>
    <Operate
      operation="signOut"
      title="Sign out everywhere"
      action="Sign out"
      submit={async (form, signOut) => {
        await signOut({ body: { everywhere: true, apiTokens: form.has("apiTokens") } });
        sessionEnded();
      }}
    >
      <Text>All your sessions and sign-ins end, this one too.</Text>
      <CheckField name="apiTokens" label="Your API tokens as well" />
    </Operate>
  </div>
);
