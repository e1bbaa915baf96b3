import { Text } from "@fluentui/react-components";
import { usePerson } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { ChoiceField, NumberField, TextField } from "../../parts/fields.tsx";
import { chosen, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { ROLE_WORDS, ROLES } from "./roles.ts";

const COLUMNS: Column<Schemas["ApiToken"]>[] = [
  { title: "Name", cell: ({ name }) => name },
  { title: "Of", cell: ({ user }) => user },
  { title: "Role", cell: ({ role }) => role },
  { title: "Ends", cell: ({ expiresAt, expired }) => (expired ? "ended" : <Instant at={expiresAt} relative />) },
  { title: "Last used", cell: ({ lastUsedOn }) => lastUsedOn ?? "never" },
  {
    title: "",
    cell: ({ id, name }) => (
      <Operate
        operation="endToken"
        title="End"
        about={name}
        action="End"
        appearance="transparent"
        submit={(_, end) => end({ params: { path: { token_id: id } } })}
      >
        <Text>What signs in with it is refused at its next call.</Text>
      </Operate>
    ),
  },
];

/** What programs sign in with. A token is shown once. */
export function ApiTokens() {
  const { role } = usePerson();
  const list = api.useInfiniteQuery("get", "/auth/tokens", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const options = Object.fromEntries(
    ROLES.filter((one) => one === "user" || one === role || role === "admin").map((one) => [one, ROLE_WORDS[one]]),
  );
  return (
    <>
      <div>
        <Operate
          operation="createToken"
          title="New token"
          action="Create"
          submit={async (form, create) => {
            const { token } = await create({
              body: {
                name: typed(form, "name"),
                role: chosen(form, "role", ROLES),
                expiresInDays: Number(typed(form, "expiresInDays")),
              },
            });
            return <Copyable label="The token is shown only now." text={token} />;
          }}
        >
          <TextField name="name" label="Name" hint="What it is for" required />
          <ChoiceField name="role" label="Role" options={options} />
          <NumberField name="expiresInDays" label="Days it holds" required min={1} max={365} defaultValue="90" />
        </Operate>
      </div>
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="API tokens" none="There is none." />
    </>
  );
}
