import { useState } from "react";
import type { Schemas } from "../../api/client.ts";
import { CheckField, EndField, NumberField, SecretField, TextField } from "../../parts/fields.tsx";
import { endOf, given, typed } from "../../parts/form-dialog.tsx";

type Tenant = Schemas["B2cTenant"];

/** What a new tenant is added with. */
export const NewTenantFields = () => (
  <>
    <TextField name="tenantId" label="Tenant id" hint="A GUID" required />
    <TenantFields />
  </>
);

/** What can be changed of a tenant. The secret goes in and never comes out. */
export function TenantFields({ tenant }: { tenant?: Tenant }) {
  const [isAnother, setAnother] = useState(false);
  return (
    <>
      <TextField name="displayName" label="Name" required defaultValue={tenant?.displayName ?? ""} />
      <TextField
        name="tenantDomain"
        label="Domain"
        hint="A verified one of the tenant"
        required
        defaultValue={tenant?.tenantDomain ?? ""}
      />
      <TextField
        name="clientId"
        label="Client id"
        hint="Of an application in that tenant, with the permissions that docs/b2c.md names"
        required
        defaultValue={tenant?.clientId ?? ""}
      />
      <SecretField
        name="clientSecret"
        label="Client secret"
        hint={tenant ? "Empty: as it is. Another client id needs it." : "The value, not its id"}
        required={!tenant}
        typedInto={setAnother}
      />
      <EndField
        name="clientSecretExpiresOn"
        label="The client secret ends on"
        hint="Empty: as the tenant says"
        end={tenant?.clientSecretExpiresOn}
        isAnother={isAnother}
      />
      <CheckField name="autoDiscover" label="Read it by itself" defaultChecked={tenant?.autoDiscover ?? true} />
      <NumberField
        name="discoveryIntervalHours"
        label="Every so many hours"
        required
        min={1}
        max={720}
        defaultValue={String(tenant?.discoveryIntervalHours ?? 24)}
      />
    </>
  );
}

/** What was typed; of a secret only what there is. */
export function tenantOf(form: FormData) {
  return {
    displayName: typed(form, "displayName"),
    tenantDomain: typed(form, "tenantDomain"),
    clientId: typed(form, "clientId"),
    autoDiscover: form.has("autoDiscover"),
    discoveryIntervalHours: Number(typed(form, "discoveryIntervalHours")),
    ...given({ clientSecret: typed(form, "clientSecret") }),
    ...endOf(form, "clientSecretExpiresOn"),
  };
}

export const newTenantOf = (form: FormData): Schemas["NewB2cTenant"] => ({
  ...tenantOf(form),
  tenantId: typed(form, "tenantId"),
  clientSecret: typed(form, "clientSecret"),
});
