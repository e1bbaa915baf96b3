import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { chosen, typed, typedList, typedOrNull } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";

type Configuration = Schemas["SsoConfiguration"];

const DEFAULTS = { "": "None (deny sign-in)", user: "User", auditor: "Auditor", operator: "Operator" } as const;
type Role = "user" | "auditor" | "operator" | "admin";

/** Account creation and roles of users who sign in through single sign-on. */
export function People({ now }: { now: Configuration }) {
  const { autoCreateUsers, defaultRole, rolesClaim, roleMapping, allowedEmailDomains, etag } = now;
  const mapping = mappingText(roleMapping as Record<string, Role> | null);
  const fallback = DEFAULTS[(defaultRole ?? "") as keyof typeof DEFAULTS] ?? defaultRole;
  return (
    <>
      <Text>
        {autoCreateUsers
          ? "A new user gets an account at the first sign-in."
          : "Only users with an account can sign in."}{" "}
        {roleMapping === null
          ? autoCreateUsers && `Role of new users: ${fallback}.`
          : `Roles come from "${rolesClaim}" at each sign-in. Role without a match: ${fallback}.`}{" "}
        {allowedEmailDomains && `Allowed email domains: ${allowedEmailDomains.join(", ")}.`}
      </Text>
      {roleMapping !== null && (
        <ul>
          {mapping.split("\n").map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
      <div>
        <Operate
          operation="putSsoConfiguration"
          title="Edit user access"
          action="Save"
          submit={(form, put) => {
            const roles = mappingOf(typed(form, "roleMapping"));
            const domains = typedList(form, "allowedEmailDomains");
            return put({
              params: { header: { "If-Match": etag } },
              body: {
                autoCreateUsers: form.has("autoCreateUsers"),
                defaultRole: chosen(form, "defaultRole", ["user", "auditor", "operator", ""]) || null,
                rolesClaim: typedOrNull(form, "rolesClaim"),
                roleMapping: roles,
                allowedEmailDomains: domains.length === 0 ? null : domains,
              },
            });
          }}
        >
          {now.ssoOnlyMode && <Text>Passwords are off. Saving a change turns them on again.</Text>}
          <CheckField
            name="autoCreateUsers"
            label="Create an account at the first sign-in"
            defaultChecked={autoCreateUsers}
          />
          <ChoiceField
            name="defaultRole"
            label="Role without a match"
            options={DEFAULTS}
            defaultValue={(defaultRole ?? "") as keyof typeof DEFAULTS}
          />
          <TextField
            name="rolesClaim"
            label="Roles claim or attribute"
            hint="A name such as roles, or a JSON pointer such as /realm_access/roles"
            defaultValue={rolesClaim ?? ""}
          />
          <LongField
            name="roleMapping"
            label="Role mapping"
            hint="One per line, as value = role. Roles: user, auditor, operator, admin. Leave empty for no mapping."
            rows={4}
            defaultValue={mapping}
          />
          <TextField
            name="allowedEmailDomains"
            label="Allowed email domains"
            hint="Example: contoso.com. Leave empty to allow any domain."
            defaultValue={allowedEmailDomains?.join(", ") ?? ""}
          />
        </Operate>
      </div>
    </>
  );
}

const mappingText = (mapping: Record<string, Role> | null): string =>
  Object.entries(mapping ?? {})
    .map(([value, role]) => `${value} = ${role}`)
    .join("\n");

/** The last equals sign separates the role. The API validates the role. */
function mappingOf(text: string): Record<string, Role> | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  if (lines.length === 0) return null;
  return Object.fromEntries(
    lines.map((line) => {
      const at = line.lastIndexOf("=");
      return [line.slice(0, Math.max(0, at)).trim(), line.slice(at + 1).trim() as Role];
    }),
  );
}
