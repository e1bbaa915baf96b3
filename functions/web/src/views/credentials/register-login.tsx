import { Button, Checkbox, Field, Input, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useState } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { ChoiceField, FormSection, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { Lines } from "../../parts/rotation-plan.tsx";

const useStyles = makeStyles({
  search: { display: "flex", gap: tokens.spacingHorizontalS },
  grows: { flexGrow: 1, minWidth: 0 },
});

const bodyOf = (form: FormData, dryRun: boolean): Schemas["RegisterCredentialRequest"] => ({
  serverId: fieldText(form, "serverId"),
  database: fieldText(form, "database"),
  users: [fieldText(form, "firstUser"), fieldText(form, "secondUser")],
  signInAs: fieldText(form, "signInAs"),
  places: form.getAll("places").map(String),
  dryRun,
});

/**
 * The button that registers two users of a database server, whose passwords the service then rotates. The form can be submitted
 * only after the service has checked the server, the users and the vault secrets. Nothing for other roles than administrators.
 */
export function RegisterLogin() {
  if (!useMay()("listDatabaseServers")) return null;
  return (
    <div>
      <Operate
        operation="registerRotationCredential"
        title="Register database login"
        action="Register database login"
        preview={{
          action: "Check login",
          isRequired: true,
          load: async (form, register) => <Missing of={await register({ body: bodyOf(form, true) })} />,
        }}
        submit={(form, register) => register({ body: bodyOf(form, false) })}
      >
        <Text>
          Two users of a database server with the same rights alternate: a rotation gives the one that is not in use a
          new password. The check signs in to the server and compares the rights of both users. Only names are stored.
        </Text>
        <LoginFields />
        <PlacesField />
      </Operate>
    </div>
  );
}

/** The result of the check: what prevents the registration. */
function Missing({ of: { missing } }: { of: Schemas["RegisteredRotationCredential"] }) {
  if (missing.length > 0) return <Lines title="The login can't be registered yet" lines={missing} />;
  return <Text>The service can sign in, and both users have the same rights. The login can be registered.</Text>;
}

function LoginFields() {
  const servers = api.useQuery("get", "/api/automation/rotation/database-servers");
  return (
    <>
      <QueryResult of={servers}>
        {({ items }) =>
          items.length === 0 ? (
            <Text>
              The service found no database server whose logins it can rotate. Give its identity the role Reader on the
              server. A new server appears after some minutes.
            </Text>
          ) : (
            <ChoiceField
              name="serverId"
              label="Server"
              options={Object.fromEntries(
                items.map(({ serverId, name, resourceGroup }) => [
                  serverId,
                  `${isolated(name)} in ${isolated(resourceGroup)}`,
                ]),
              )}
            />
          )
        }
      </QueryResult>
      <TextField name="database" label="Database" hint="To which the users connect. Example: payments" required />
      <TextField name="firstUser" label="First user" member="users.0" hint="Example: payments_a" required />
      <TextField name="secondUser" label="Second user" member="users.1" hint="Example: payments_b" required />
      <TextField
        name="signInAs"
        label="Role of the service"
        hint="Name of the database role that is mapped to the service's identity. Example: credential-lifecycle"
        required
      />
    </>
  );
}

/** Number of vault secrets that a search shows. */
const SHOWN_SECRETS = 20;

/** The vault secrets that store the login, selected from the results of a search in the inventory. */
function PlacesField() {
  const styles = useStyles();
  const [text, setText] = useState("");
  const [search, setSearch] = useState("");
  const [selected, setSelected] = useState<readonly string[]>([]);
  const found = api.useQuery(
    "get",
    "/api/assets/discovery/assets",
    { params: { query: { type: "secret", source: "keyVault", search, limit: SHOWN_SECRETS } } },
    { enabled: search !== "" },
  );
  const ids = [...new Set([...selected, ...(search === "" ? [] : (found.data?.items ?? []).map(({ id }) => id))])];
  const toggle = (id: string, isSelected: boolean) =>
    setSelected(isSelected ? [...selected, id] : selected.filter((one) => one !== id));
  return (
    <FormSection title="Key Vault secrets that store the login">
      <Field label="Secret name contains" hint="Select all secrets that store the login. Example: database">
        {(control) => (
          <div className={styles.search}>
            <Input
              {...control}
              className={styles.grows}
              value={text}
              autoComplete="off"
              onChange={(_, data) => setText(data.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || text.trim() === "") return;
                // Otherwise Enter would send the form.
                event.preventDefault();
                setSearch(text.trim());
              }}
            />
            <Button disabled={text.trim() === ""} onClick={() => setSearch(text.trim())}>
              Find secrets
            </Button>
          </div>
        )}
      </Field>
      {ids.map((id) => (
        <Checkbox
          key={id}
          name="places"
          value={id}
          label={titleOfId(id)}
          checked={selected.includes(id)}
          onChange={(_, data) => toggle(id, data.checked === true)}
        />
      ))}
      {search !== "" && (
        <QueryResult of={found}>
          {({ items, nextCursor }) =>
            nextCursor !== null ? (
              <Text>Not all results are shown. Enter a longer part of the name.</Text>
            ) : items.length === 0 ? (
              <Text>
                No vault secret has this in its name. Scan its vault first, or enter another part of the name.
              </Text>
            ) : null
          }
        </QueryResult>
      )}
    </FormSection>
  );
}
