import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { chosen, typed, typedList, typedOrNull } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";

type Configuration = Schemas["SsoConfiguration"];

const DEFAULTS = { "": "nothing: they are refused", user: "user", auditor: "auditor", operator: "operator" } as const;
type Role = "user" | "auditor" | "operator" | "admin";

/** Who becomes a user by signing in, and which role they get. */
export function People({ now }: { now: Configuration }) {
  const { autoCreateUsers, defaultRole, rolesClaim, roleMapping, allowedEmailDomains, etag } = now;
  const mapping = mappingText(roleMapping as Record<string, Role> | null);
  const fallback = DEFAULTS[(defaultRole ?? "") as keyof typeof DEFAULTS] ?? defaultRole;
  return (
    <>
      <Text>
        Who is unknown {autoCreateUsers ? "becomes a user" : "is refused"}.{" "}
        {roleMapping === null
          ? autoCreateUsers && `New users get ${fallback}.`
          : `What they may is said by ${rolesClaim} at every sign-in; who has none of these gets ${fallback}.`}{" "}
        {allowedEmailDomains && `Only with an address in ${allowedEmailDomains.join(", ")}.`}
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
          title="Change who comes in"
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
          {now.ssoOnlyMode && <Text>Passwords are off. A change of this switches them on again.</Text>}
          <CheckField
            name="autoCreateUsers"
            label="Who is unknown here becomes a user"
            defaultChecked={autoCreateUsers}
          />
          <ChoiceField
            name="defaultRole"
            label="Who has no role by the mapping gets"
            options={DEFAULTS}
            defaultValue={(defaultRole ?? "") as keyof typeof DEFAULTS}
          />
          <TextField
            name="rolesClaim"
            label="Where the provider says the roles"
            hint="A claim's or attribute's name, or a JSON pointer"
            defaultValue={rolesClaim ?? ""}
          />
          <LongField
            name="roleMapping"
            label="Role mapping"
            hint="A line each: the provider's value, an equals sign, and user, auditor, operator or admin. Empty: none."
            rows={4}
            defaultValue={mapping}
          />
          <TextField
            name="allowedEmailDomains"
            label="Only with a verified address in"
            hint="Domains. Empty: any."
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

/** The role is what follows the last equals sign; what is no role is for the API to refuse. */
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
