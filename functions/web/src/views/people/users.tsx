import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ChoiceField, SecretField, TextField } from "../../parts/fields.tsx";
import { chosen, typed, typedOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { ROLE_WORDS, ROLES } from "./roles.ts";

type UserAccount = Schemas["UserAccount"];

const COLUMNS: Column<UserAccount>[] = [
  { title: "Name", cell: ({ username, email }) => `${username} ${email ?? ""}` },
  { title: "Role", cell: ({ role }) => role },
  { title: "Source", cell: ({ source, sso }) => (sso && source === "local" ? "local, linked" : source) },
  {
    title: "State",
    cell: ({ state, lockedUntil, mustChangePassword }) =>
      `${lockedUntil === null ? state : "locked"}${mustChangePassword ? ", must choose a password" : ""}`,
  },
  { title: "Last sign-in", cell: ({ lastSignInAt }) => <Instant at={lastSignInAt} relative /> },
  { title: "", cell: (user) => <Actions user={user} /> },
];

/** The people who may sign in, and as what. */
export function Users() {
  const list = api.useInfiniteQuery("get", "/auth/users", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <>
      <div>
        <Operate
          operation="createUser"
          title="New user"
          action="Create"
          submit={(form, create) =>
            create({
              body: {
                username: typed(form, "username"),
                email: typedOrNull(form, "email"),
                password: String(form.get("password")),
                role: chosen(form, "role", ROLES),
              },
            })
          }
        >
          <TextField name="username" label="Username" required />
          <TextField name="email" label="E-mail address" type="email" />
          <SecretField
            name="password"
            label="Password"
            hint="At least 12 characters. Another one must be chosen at the first sign-in."
            required
          />
          <ChoiceField name="role" label="Role" options={ROLE_WORDS} />
        </Operate>
      </div>
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="Users" none="There is none." />
    </>
  );
}

function Actions({ user }: { user: UserAccount }) {
  const { id, username, lockedUntil, source, etag } = user;
  const params = { path: { user_id: id } };
  const held = { ...params, header: { "If-Match": etag } };
  return (
    <>
      <Link href={createHref("/access", { user: username })}>Sessions</Link>
      <Change user={user} />
      {source === "local" && (
        <Operate
          operation="changeUser"
          title="Reset the password"
          about={username}
          action="Reset"
          appearance="transparent"
          submit={(form, change) => change({ params: held, body: { password: String(form.get("password")) } })}
        >
          <Text>All sessions and API tokens of the user end.</Text>
          <SecretField
            name="password"
            label="New password"
            hint="At least 12 characters. Another one must be chosen at the next sign-in."
            required
          />
        </Operate>
      )}
      {lockedUntil !== null && (
        <Operate
          operation="unlockUser"
          title="Unlock"
          about={username}
          action="Unlock"
          appearance="transparent"
          submit={(_, unlock) => unlock({ params })}
        >
          <Text>The user may try again at once.</Text>
        </Operate>
      )}
      <Operate
        operation="deleteUser"
        title="Delete"
        about={username}
        action="Delete"
        appearance="transparent"
        submit={(_, remove) => remove({ params: held })}
      >
        <Text>
          The user is deleted, with all sessions and API tokens.
          {source === "sso" && " Who it was is refused by single sign-on until an administrator lets them in again."}
        </Text>
      </Operate>
    </>
  );
}

/** Only what was changed is sent: a role, for one, is not anybody's to give where single sign-on says it. */
function Change({ user: { id, username, email, role, state, sso, source, etag } }: { user: UserAccount }) {
  return (
    <Operate
      operation="changeUser"
      title="Change"
      about={username}
      action="Change"
      appearance="transparent"
      submit={(form, change) => {
        const issuer = typed(form, "issuer");
        const next = {
          email: typedOrNull(form, "email"),
          role: chosen(form, "role", ROLES),
          state: chosen(form, "state", ["active", "disabled"]),
          sso: issuer === "" ? null : { issuer, subject: typed(form, "subject") },
        };
        const isLinked = next.sso?.issuer !== sso?.issuer || next.sso?.subject !== sso?.subject;
        return change({
          params: { path: { user_id: id }, header: { "If-Match": etag } },
          body: {
            ...(next.email !== email && { email: next.email }),
            ...(next.role !== role && { role: next.role }),
            ...(next.state !== state && { state: next.state }),
            ...(source === "local" && isLinked && { sso: next.sso }),
          },
        });
      }}
    >
      <ChoiceField name="role" label="Role" options={ROLE_WORDS} defaultValue={role} />
      <ChoiceField name="state" label="State" options={["active", "disabled"]} defaultValue={state} />
      <TextField name="email" label="E-mail address" type="email" defaultValue={email ?? ""} />
      {source === "local" && (
        <>
          <TextField
            name="issuer"
            member="sso.issuer"
            label="Single sign-on: issuer"
            hint="Lets this identity sign in as the user. The audit log has it of who was refused. Empty: none."
            defaultValue={sso?.issuer ?? ""}
          />
          <TextField
            name="subject"
            member="sso.subject"
            label="Single sign-on: subject"
            defaultValue={sso?.subject ?? ""}
          />
        </>
      )}
    </Operate>
  );
}
