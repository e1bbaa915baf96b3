import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { CheckField, ExpiryField, NumberField, SecretField, TextField } from "../../parts/fields.tsx";
import { fieldExpiry, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";

type Tenant = Schemas["B2cTenant"];

/** The fields of a new tenant. */
export const NewTenantFields = () => (
  <>
    <TextField name="tenantId" label="Tenant ID" hint="Example: a9086e3c-0b4a-428e-a3e8-def4ffe2d46b" required />
    <TenantFields />
  </>
);

/** The fields of a tenant that can be edited. The API never returns the client secret. */
export function TenantFields({ tenant }: { tenant?: Tenant }) {
  const [hasNewSecret, setHasNewSecret] = useState(false);
  return (
    <>
      <TextField
        name="displayName"
        label="Name"
        hint="Name to show on this page. Example: Contoso Shop"
        required
        defaultValue={tenant?.displayName ?? ""}
      />
      <TextField
        name="tenantDomain"
        label="Domain"
        hint="A verified domain of the tenant. Example: contoso.onmicrosoft.com"
        required
        defaultValue={tenant?.tenantDomain ?? ""}
      />
      <TextField
        name="clientId"
        label="Client ID"
        hint="Client ID of the application in that tenant with which the service signs in. The page B2C tenants of the documentation lists the permissions that the application needs."
        required
        defaultValue={tenant?.clientId ?? ""}
      />
      <SecretField
        name="clientSecret"
        label="Client secret"
        hint={
          tenant
            ? "Leave empty to keep the current secret. Required if you change the client ID."
            : "Value of the client secret, not its ID."
        }
        required={!tenant}
        onFilled={setHasNewSecret}
      />
      <ExpiryField
        name="clientSecretExpiresOn"
        label="Client secret expires"
        hint="Leave empty to read the expiry date from the tenant."
        savedExpiry={tenant?.clientSecretExpiresOn}
        hasNewSecret={hasNewSecret}
      />
      <CheckField
        name="autoDiscover"
        label="Refresh credentials automatically"
        defaultChecked={tenant?.autoDiscover ?? true}
      />
      <NumberField
        name="discoveryIntervalHours"
        label="Refresh interval (hours)"
        hint="Hours between two automatic refreshes. Example: 24"
        required
        min={1}
        max={720}
        defaultValue={String(tenant?.discoveryIntervalHours ?? 24)}
      />
    </>
  );
}

/** Returns the tenant from the form data, without an empty client secret. */
export function tenantOf(form: FormData) {
  return {
    displayName: fieldText(form, "displayName"),
    tenantDomain: fieldText(form, "tenantDomain"),
    clientId: fieldText(form, "clientId"),
    autoDiscover: form.has("autoDiscover"),
    discoveryIntervalHours: Number(fieldText(form, "discoveryIntervalHours")),
    ...withoutEmpty({ clientSecret: fieldText(form, "clientSecret") }),
    ...fieldExpiry(form, "clientSecretExpiresOn"),
  };
}

/** Returns the new tenant from the form data. */
export const newTenantOf = (form: FormData): Schemas["NewB2cTenant"] => ({
  ...tenantOf(form),
  tenantId: fieldText(form, "tenantId"),
  clientSecret: fieldText(form, "clientSecret"),
});
