import { Link, Text } from "@fluentui/react-components";
import { useCurrentUser } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { ChoiceField, SecretField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldText, fieldTextOrNull } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { ROLE_TEXTS, ROLES } from "./roles.ts";

type UserAccount = Schemas["UserAccount"];

const STATES = { active: "Active", disabled: "Disabled" } as const satisfies Record<UserAccount["state"], string>;
const SOURCES = { local: "Password", sso: "Single sign-on" } as const satisfies Record<UserAccount["source"], string>;

const COLUMNS: Column<UserAccount>[] = [
  { title: "User", cell: ({ username, email }) => `${username} ${email ?? ""}` },
  { title: "Role", cell: ({ role }) => role },
  {
    title: "Sign-in",
    cell: ({ source, sso, secondFactorEnrolled }) =>
      `${sso && source === "local" ? "Password and single sign-on" : SOURCES[source]}${secondFactorEnrolled ? ", second factor" : ""}`,
  },
  {
    title: "Status",
    cell: ({ state, lockedUntil, mustChangePassword }) =>
      `${lockedUntil === null ? STATES[state] : "Locked"}${mustChangePassword ? ", must change password" : ""}`,
  },
  { title: "Last sign-in", cell: ({ lastSignInAt }) => <Instant at={lastSignInAt} relative /> },
  { title: "", cell: (user) => <Actions user={user} /> },
];

/** The card of the Access page with the user accounts, their actions, and the form of a new user. */
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
                username: fieldText(form, "username"),
                email: fieldTextOrNull(form, "email"),
                password: String(form.get("password")),
                role: fieldChoice(form, "role", ROLES),
                mustChangePassword: true,
              },
            })
          }
        >
          <TextField name="username" label="Username" hint="Example: maria.lopez" required />
          <TextField
            name="email"
            label="Email address"
            hint="Shown in the list of users. Example: maria.lopez@contoso.com"
            type="email"
          />
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

/** The buttons of a user. Only users with a password (`local`) can get a new password. */
function Actions({ user }: { user: UserAccount }) {
  const { id, username, lockedUntil, source, etag, secondFactorEnrolled } = user;
  const { username: currentUser } = useCurrentUser();
  const params = { path: { user_id: id } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <ButtonRow>
      <Link href={createHref("/access", { user: username })}>Sessions</Link>
      <EditUser user={user} />
      {source === "local" && (
        <Operate
          operation="changeUser"
          title="Reset password"
          about={username}
          action="Reset password"
          submit={(form, change) =>
            change({ params: conditionalParams, body: { password: String(form.get("password")) } })
          }
        >
          <Text>
            Sets a new password, ends all sessions of the user and revokes the user's API tokens. Tell the user the new
            password.
          </Text>
          <SecretField
            name="password"
            label="New password"
            hint="At least 12 characters. The user must change it at the next sign-in."
            required
          />
        </Operate>
      )}
      {secondFactorEnrolled && username !== currentUser && (
        <Operate
          operation="resetSecondFactor"
          title="Reset second factor"
          about={username}
          action="Reset second factor"
          submit={(_, reset) => reset({ params })}
        >
          <Text>
            Removes the authenticator app, passkeys and recovery codes of the user, and ends all sessions. The next
            sign-in needs the password only. Make sure that the request comes from the user.
          </Text>
        </Operate>
      )}
      {lockedUntil !== null && (
        <Operate
          operation="unlockUser"
          title="Unlock"
          kind="user"
          about={username}
          action="Unlock user"
          submit={(_, unlock) => unlock({ params })}
        >
          <Text>The account is locked after too many failed sign-ins. The user can sign in again immediately.</Text>
        </Operate>
      )}
      <Operate
        operation="deleteUser"
        title="Delete user"
        about={username}
        action="Delete user"
        submit={(_, remove) => remove({ params: conditionalParams })}
      >
        <Text>
          Deletes the user with all sessions and API tokens. You can't undo this. The last administrator with a password
          can't be deleted.
          {username === currentUser && " This is your own account: you are signed out."}
          {source === "sso" && " The identity can't sign in through single sign-on until an administrator unblocks it."}
        </Text>
      </Operate>
    </ButtonRow>
  );
}

/**
 * The form of a user. It sends only edited fields: the API rejects, for example, a role that single sign-on manages. A user
 * with a password can be linked to an identity of single sign-on.
 */
function EditUser({ user: { id, username, email, role, state, sso, source, etag } }: { user: UserAccount }) {
  return (
    <Operate
      operation="changeUser"
      title="Edit"
      kind="user"
      about={username}
      action="Save user"
      submit={(form, change) => {
        const issuer = fieldText(form, "issuer");
        const edited = {
          email: fieldTextOrNull(form, "email"),
          role: fieldChoice(form, "role", ROLES),
          state: fieldChoice(form, "state", ["active", "disabled"]),
          sso: issuer === "" ? null : { issuer, subject: fieldText(form, "subject") },
        };
        const hasNewLink = edited.sso?.issuer !== sso?.issuer || edited.sso?.subject !== sso?.subject;
        return change({
          params: { path: { user_id: id }, header: { "If-Match": etag } },
          body: {
            ...(edited.email !== email && { email: edited.email }),
            ...(edited.role !== role && { role: edited.role }),
            ...(edited.state !== state && { state: edited.state }),
            ...(source === "local" && hasNewLink && { sso: edited.sso }),
          },
        });
      }}
    >
      <ChoiceField name="role" label="Role" options={ROLE_TEXTS} defaultValue={role} />
      <ChoiceField name="state" label="Status" options={STATES} defaultValue={state} />
      <TextField
        name="email"
        label="Email address"
        hint="Shown in the list of users."
        type="email"
        defaultValue={email ?? ""}
      />
      {source === "local" && (
        <>
          <TextField
            name="issuer"
            member="sso.issuer"
            label="Single sign-on: issuer"
            hint="Issuer (OpenID Connect) or entity ID (SAML) of the identity provider. To find both values, let the user try single sign-on once, and copy them from the denied sign-in in the audit log. Leave both fields empty for no link."
            defaultValue={sso?.issuer ?? ""}
          />
          <TextField
            name="subject"
            member="sso.subject"
            label="Single sign-on: subject"
            hint="OpenID Connect: the claim sub, which in Entra is not the object ID. SAML: the NameID."
            defaultValue={sso?.subject ?? ""}
          />
        </>
      )}
    </Operate>
  );
}
