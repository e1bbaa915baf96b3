import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { EndField, SecretField, TextField } from "../../parts/fields.tsx";
import { endOf, given, typed, typedList } from "../../parts/form-dialog.tsx";

/** What is typed of OpenID Connect. */
export function OidcFields({ now }: { now: Schemas["SsoConfiguration"] }) {
  const [isAnother, setAnother] = useState(false);
  return (
    <>
      <TextField
        name="oidcIssuer"
        label="Issuer"
        hint="As the provider's discovery document has it, to the letter"
        type="url"
        required
        defaultValue={now.oidcIssuer ?? ""}
      />
      <TextField name="oidcClientId" label="Client id" required defaultValue={now.oidcClientId ?? ""} />
      <SecretField
        name="oidcClientSecret"
        label="Client secret"
        hint={
          now.oidcClientSecretSet ? "Set. Empty: as it is; another issuer needs it again." : "Empty: a public client"
        }
        typedInto={setAnother}
      />
      <EndField
        name="oidcClientSecretExpiresOn"
        label="The client secret ends on"
        hint="An alert tells of it before"
        end={now.oidcClientSecretExpiresOn}
        isAnother={isAnother}
      />
      <TextField
        name="oidcScopes"
        label="Scopes"
        hint="openid is always asked for"
        defaultValue={now.oidcScopes.join(" ")}
      />
    </>
  );
}

/** `tried` is what a test takes. */
export function oidcOf(form: FormData) {
  return {
    tried: {
      oidcIssuer: typed(form, "oidcIssuer"),
      oidcClientId: typed(form, "oidcClientId"),
      ...given({ oidcClientSecret: typed(form, "oidcClientSecret") }),
    },
    others: {
      oidcScopes: typedList(form, "oidcScopes"),
      ...endOf(form, "oidcClientSecretExpiresOn"),
    },
  };
}
