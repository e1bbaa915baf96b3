import { Text } from "@fluentui/react-components";
import { useCurrentUser } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { ChoiceField, NumberField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { ROLE_TEXTS, ROLES } from "./roles.ts";

const COLUMNS: Column<Schemas["ApiToken"]>[] = [
  { title: "Name", cell: ({ name }) => name },
  { title: "Owner", cell: ({ user }) => user },
  { title: "Role", cell: ({ role }) => role },
  { title: "Expires", cell: ({ expiresAt, expired }) => (expired ? "Expired" : <Instant at={expiresAt} relative />) },
  { title: "Last used", cell: ({ lastUsedOn }) => lastUsedOn ?? "Never" },
  {
    title: "",
    cell: ({ id, name }) => (
      <Operate
        operation="endToken"
        title="Revoke"
        kind="token"
        about={name}
        action="Revoke token"
        submit={(_, end) => end({ params: { path: { token_id: id } } })}
      >
        <Text>Requests with this token are denied immediately. You can't undo this.</Text>
      </Operate>
    ),
  },
];

/** The card of the Access page with API tokens for programs. A token is shown once, when it is created. */
export function ApiTokens() {
  const { role } = useCurrentUser();
  const list = api.useInfiniteQuery("get", "/auth/tokens", { params: { query: { limit: 100 } } }, BY_CURSOR);
  // A token has at most the permissions of its creator. Administrators can select every role.
  const options = Object.fromEntries(
    ROLES.filter((option) => option === "user" || option === role || role === "admin").map((option) => [
      option,
      ROLE_TEXTS[option],
    ]),
  );
  return (
    <>
      <div>
        <Operate
          operation="createToken"
          title="Create token"
          action="Create token"
          submit={async (form, create) => {
            const { token } = await create({
              body: {
                name: fieldText(form, "name"),
                role: fieldChoice(form, "role", ROLES),
                expiresInDays: Number(fieldText(form, "expiresInDays")),
              },
            });
            return <Copyable label="Copy the token now: it is shown only once." text={token} />;
          }}
        >
          <Text>Programs use the token to call the API of this service with your account and the selected role.</Text>
          <TextField name="name" label="Name" hint="Example: Nightly export" required />
          <ChoiceField name="role" label="Role" options={options} />
          <NumberField
            name="expiresInDays"
            label="Validity (days)"
            hint="The token stops working after this time. 1 to 365 days."
            required
            min={1}
            max={365}
            defaultValue="90"
          />
        </Operate>
      </div>
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="API tokens"
        empty="No API tokens. Create a token to call the API from a program."
      />
    </>
  );
}
