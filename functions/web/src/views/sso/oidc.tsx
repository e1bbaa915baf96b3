import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { ExpiryField, SecretField, TextField } from "../../parts/fields.tsx";
import { fieldEntries, fieldExpiry, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";

/** The OpenID Connect fields, filled with the saved configuration. */
export function OidcFields({ saved }: { saved: Schemas["SsoConfiguration"] }) {
  const [hasNewSecret, setHasNewSecret] = useState(false);
  return (
    <>
      <TextField
        name="oidcIssuer"
        label="Issuer"
        hint="Must be exactly the value of issuer in the provider's discovery document. Example: https://login.microsoftonline.com/{tenant ID}/v2.0"
        type="url"
        required
        defaultValue={saved.oidcIssuer ?? ""}
      />
      <TextField
        name="oidcClientId"
        label="Client ID"
        hint="ID of the application that you registered for this service at the provider."
        required
        defaultValue={saved.oidcClientId ?? ""}
      />
      <SecretField
        name="oidcClientSecret"
        label="Client secret"
        hint={
          saved.oidcClientSecretSet
            ? "Leave empty to keep the current secret. Required for another issuer."
            : "Leave empty if the application is a public client, without a secret."
        }
        onFilled={setHasNewSecret}
      />
      <ExpiryField
        name="oidcClientSecretExpiresOn"
        label="Client secret expires"
        hint="Alert rules of the type “Credential of this service expires soon” notify before this date."
        savedExpiry={saved.oidcClientSecretExpiresOn}
        hasNewSecret={hasNewSecret}
      />
      <TextField
        name="oidcScopes"
        label="Scopes"
        hint="Example: profile email. The service always adds openid."
        defaultValue={saved.oidcScopes.join(" ")}
      />
    </>
  );
}

/** Returns the configuration from the form data: `tested` is the part that a connection test uses. */
export function oidcOf(form: FormData) {
  return {
    tested: {
      oidcIssuer: fieldText(form, "oidcIssuer"),
      oidcClientId: fieldText(form, "oidcClientId"),
      ...withoutEmpty({ oidcClientSecret: fieldText(form, "oidcClientSecret") }),
    },
    others: {
      oidcScopes: fieldEntries(form, "oidcScopes"),
      ...fieldExpiry(form, "oidcClientSecretExpiresOn"),
    },
  };
}
