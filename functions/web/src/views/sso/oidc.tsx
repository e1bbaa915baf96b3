import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { ExpiryField, SecretField, TextField } from "../../parts/fields.tsx";
import { expiryOf, given, typed, typedList } from "../../parts/form-dialog.tsx";

/** The OpenID Connect fields. */
export function OidcFields({ now }: { now: Schemas["SsoConfiguration"] }) {
  const [isAnother, setAnother] = useState(false);
  return (
    <>
      <TextField
        name="oidcIssuer"
        label="Issuer"
        hint="Must match issuer in the provider's discovery document exactly"
        type="url"
        required
        defaultValue={now.oidcIssuer ?? ""}
      />
      <TextField name="oidcClientId" label="Client ID" required defaultValue={now.oidcClientId ?? ""} />
      <SecretField
        name="oidcClientSecret"
        label="Client secret"
        hint={
          now.oidcClientSecretSet
            ? "Leave empty to keep the current secret. Required for another issuer."
            : "Leave empty for a public client"
        }
        onFilled={setAnother}
      />
      <ExpiryField
        name="oidcClientSecretExpiresOn"
        label="Client secret expires"
        hint="Alert rules notify before this date"
        end={now.oidcClientSecretExpiresOn}
        isAnother={isAnother}
      />
      <TextField
        name="oidcScopes"
        label="Scopes"
        hint="Example: profile email. The service always adds openid."
        defaultValue={now.oidcScopes.join(" ")}
      />
    </>
  );
}

/** Returns the configuration from the form data: `tested` is the part that a connection test uses. */
export function oidcOf(form: FormData) {
  return {
    tested: {
      oidcIssuer: typed(form, "oidcIssuer"),
      oidcClientId: typed(form, "oidcClientId"),
      ...given({ oidcClientSecret: typed(form, "oidcClientSecret") }),
    },
    others: {
      oidcScopes: typedList(form, "oidcScopes"),
      ...expiryOf(form, "oidcClientSecretExpiresOn"),
    },
  };
}
