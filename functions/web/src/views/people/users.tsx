import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ChoiceField, SecretField, TextField } from "../../parts/fields.tsx";
import { chosen, typed, typedOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { ROLE_TEXTS, ROLES } from "./roles.ts";

type UserAccount = Schemas["UserAccount"];

const STATES = { active: "Active", disabled: "Disabled" } as const satisfies Record<UserAccount["state"], string>;
const SOURCES = { local: "Local", sso: "Single sign-on" } as const satisfies Record<UserAccount["source"], string>;

const COLUMNS: Column<UserAccount>[] = [
  { title: "User", cell: ({ username, email }) => `${username} ${email ?? ""}` },
  { title: "Role", cell: ({ role }) => role },
  {
    title: "Source",
    cell: ({ source, sso }) => (sso && source === "local" ? "Local, linked to single sign-on" : SOURCES[source]),
  },
  {
    title: "Status",
    cell: ({ state, lockedUntil, mustChangePassword }) =>
      `${lockedUntil === null ? STATES[state] : "Locked"}${mustChangePassword ? ", must change password" : ""}`,
  },
  { title: "Last sign-in", cell: ({ lastSignInAt }) => <Instant at={lastSignInAt} relative /> },
  { title: "", cell: (user) => <Actions user={user} /> },
];

/** The user accounts. */
export function Users() {
  const list = api.useInfiniteQuery("get", "/auth/users", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <>
      <div>
        <Operate
          operation="createUser"
          title="Create user"
          action="Create user"
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
          <TextField name="email" label="Email address" type="email" />
          <SecretField
            name="password"
            label="Password"
            hint="At least 12 characters. The user must change it at the first sign-in."
            required
          />
          <ChoiceField name="role" label="Role" options={ROLE_TEXTS} />
        </Operate>
      </div>
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="Users" empty="No users." />
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
      <EditUser user={user} />
      {source === "local" && (
        <Operate
          operation="changeUser"
          title="Reset password"
          about={username}
          action="Reset password"
          appearance="transparent"
          submit={(form, change) => change({ params: held, body: { password: String(form.get("password")) } })}
        >
          <Text>Ends all sessions of the user and revokes their API tokens.</Text>
          <SecretField
            name="password"
            label="New password"
            hint="At least 12 characters. The user must change it at the next sign-in."
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
          <Text>The user can sign in again immediately.</Text>
        </Operate>
      )}
      <Operate
        operation="deleteUser"
        title="Delete"
        about={username}
        action="Delete user"
        appearance="transparent"
        submit={(_, remove) => remove({ params: held })}
      >
        <Text>
          Deletes the user with all sessions and API tokens. You can't undo this.
          {source === "sso" && " The identity can't sign in through single sign-on until an administrator unblocks it."}
        </Text>
      </Operate>
    </>
  );
}

/** Sends only edited fields: the API rejects, for example, a role that single sign-on manages. */
function EditUser({ user: { id, username, email, role, state, sso, source, etag } }: { user: UserAccount }) {
  return (
    <Operate
      operation="changeUser"
      title="Edit"
      about={username}
      action="Save"
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
      <ChoiceField name="role" label="Role" options={ROLE_TEXTS} defaultValue={role} />
      <ChoiceField name="state" label="Status" options={STATES} defaultValue={state} />
      <TextField name="email" label="Email address" type="email" defaultValue={email ?? ""} />
      {source === "local" && (
        <>
          <TextField
            name="issuer"
            member="sso.issuer"
            label="Single sign-on: issuer"
            hint="Links an identity to this user. The audit log shows issuer and subject of denied sign-ins. Leave empty to unlink."
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
