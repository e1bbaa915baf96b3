import type { Schemas } from "../../api/client.ts";
import { CheckField, LongField, TextField } from "../../parts/fields.tsx";
import { typed, typedOrNull } from "../../parts/form-dialog.tsx";

/** The SAML fields: the provider's metadata, or its entity ID, sign-in URL and certificates. */
export function SamlFields({ now }: { now: Schemas["SsoConfiguration"] }) {
  return (
    <>
      <LongField
        name="samlIdpMetadataXml"
        label="Provider metadata"
        hint="XML. Leave empty to use the three fields below."
        rows={4}
      />
      <TextField name="samlEntryPoint" label="Sign-in URL" type="url" defaultValue={now.samlEntryPoint ?? ""} />
      <TextField name="samlIdpEntityId" label="Provider entity ID" defaultValue={now.samlIdpEntityId ?? ""} />
      <LongField
        name="samlIdpCertificates"
        label="Provider certificates"
        hint="PEM. Add the old and the new certificate during a rollover."
        rows={6}
        defaultValue={now.samlIdpCertificates.map(({ certificate }) => certificate).join("\n")}
      />
      <TextField
        name="samlIdAttribute"
        label="Immutable user ID attribute"
        hint="Not an email address. Leave empty for Entra's object identifier or a persistent NameID."
        defaultValue={now.samlIdAttribute ?? ""}
      />
      <CheckField
        name="samlSignRequests"
        label="Sign requests with the service's own key"
        defaultChecked={now.samlSignRequests}
      />
    </>
  );
}

/** Returns the configuration from the form data: `tested` is the part that a connection test uses. */
export function samlOf(form: FormData) {
  const samlIdpMetadataXml = typed(form, "samlIdpMetadataXml");
  const certificates = typed(form, "samlIdpCertificates").match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g);
  return {
    tested:
      samlIdpMetadataXml === ""
        ? {
            samlEntryPoint: typedOrNull(form, "samlEntryPoint"),
            samlIdpEntityId: typedOrNull(form, "samlIdpEntityId"),
            samlIdpCertificates: certificates ? [...certificates] : null,
          }
        : { samlIdpMetadataXml },
    others: {
      samlIdAttribute: typedOrNull(form, "samlIdAttribute"),
      samlSignRequests: form.has("samlSignRequests"),
    },
  };
}
