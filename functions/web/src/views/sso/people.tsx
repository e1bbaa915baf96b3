import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { fieldChoice, fieldEntries, fieldText, fieldTextOrNull } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";

type Configuration = Schemas["SsoConfiguration"];

/** Roles that a user without a matching role mapping can get. The API accepts no default role `admin`. */
const DEFAULTS = { "": "None (sign-in is denied)", user: "User", auditor: "Auditor", operator: "Operator" } as const;
type Role = "user" | "auditor" | "operator" | "admin";

/** The card of the Single sign-on page with the account creation and the roles of users who sign in through it. */
export function People({ saved }: { saved: Configuration }) {
  const { autoCreateUsers, defaultRole, rolesClaim, roleMapping, allowedEmailDomains, etag } = saved;
  const mapping = mappingText(roleMapping as Record<string, Role> | null);
  const defaultRoleText = DEFAULTS[(defaultRole ?? "") as keyof typeof DEFAULTS] ?? defaultRole;
  return (
    <>
      <Text>
        {autoCreateUsers
          ? "A new user gets an account at the first sign-in."
          : "Only users with an account can sign in."}{" "}
        {roleMapping === null
          ? autoCreateUsers && `Role of new users: ${defaultRoleText}.`
          : `At each sign-in, the claim "${rolesClaim}" sets the user's role. Default role if no value matches: ${defaultRoleText}.`}{" "}
        {allowedEmailDomains && `Allowed email domains: ${allowedEmailDomains.join(", ")}.`}
      </Text>
      {roleMapping !== null && (
        <>
          <Text>Values of the claim and their roles:</Text>
          <ul>
            {mapping.split("\n").map((line) => (
              <li key={line}>{line.replace(/ = (\w+)$/, ": role $1")}</li>
            ))}
          </ul>
        </>
      )}
      <div>
        <Operate
          operation="putSsoConfiguration"
          title="Edit user access"
          action="Save user access"
          submit={(form, put) => {
            const roles = mappingOf(fieldText(form, "roleMapping"));
            const domains = fieldEntries(form, "allowedEmailDomains");
            return put({
              params: { header: { "If-Match": etag } },
              body: {
                autoCreateUsers: form.has("autoCreateUsers"),
                defaultRole: fieldChoice(form, "defaultRole", ["user", "auditor", "operator", ""]) || null,
                rolesClaim: fieldTextOrNull(form, "rolesClaim"),
                roleMapping: roles,
                allowedEmailDomains: domains.length === 0 ? null : domains,
              },
            });
          }}
        >
          <Text>
            A role mapping replaces the roles of users whom single sign-on created, at their next sign-in. Users with a
            password keep their role.
          </Text>
          {saved.ssoOnlyMode && <Text>Password sign-in is off. Saving a change turns password sign-in on again.</Text>}
          <CheckField
            name="autoCreateUsers"
            label="Create an account at the first sign-in"
            defaultChecked={autoCreateUsers}
          />
          <ChoiceField
            name="defaultRole"
            label="Default role"
            hint="Role of users for whom no role mapping matches."
            options={DEFAULTS}
            defaultValue={(defaultRole ?? "") as keyof typeof DEFAULTS}
          />
          <TextField
            name="rolesClaim"
            label="Roles claim or attribute"
            hint="Claim (OpenID Connect) or attribute (SAML) that contains the user's roles or groups. Required with a role mapping, and only then. Example: roles, or the JSON pointer /realm_access/roles"
            defaultValue={rolesClaim ?? ""}
          />
          <LongField
            name="roleMapping"
            label="Role mapping"
            hint="One line per value of the claim, as value = role. Example: Lifecycle.Admin = admin. Roles: user, auditor, operator, admin. If several values match, admin comes first and user last. A user with both auditor and operator, but not admin, can't sign in. If empty, administrators set the roles."
            rows={4}
            defaultValue={mapping}
          />
          <TextField
            name="allowedEmailDomains"
            label="Allowed email domains"
            hint="Example: contoso.com, contoso.de. Users of other domains can't sign in. Leave empty to allow any domain."
            defaultValue={allowedEmailDomains?.join(", ") ?? ""}
          />
        </Operate>
      </div>
    </>
  );
}

/** Returns the role mapping as text, one line for each value of the roles claim: `Admins = admin`. */
const mappingText = (mapping: Record<string, Role> | null): string =>
  Object.entries(mapping ?? {})
    .map(([value, role]) => `${value} = ${role}`)
    .join("\n");

/**
 * Returns the role mapping in the text, or null if the text is empty. The last equals sign of a line separates the role,
 * because a value can contain one. The API validates the roles.
 */
function mappingOf(text: string): Record<string, Role> | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length === 0) return null;
  return Object.fromEntries(
    lines.map((line) => {
      const equals = line.lastIndexOf("=");
      return [line.slice(0, Math.max(0, equals)).trim(), line.slice(equals + 1).trim() as Role];
    }),
  );
}
