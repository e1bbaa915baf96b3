import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, LongField, TextField } from "../../parts/fields.tsx";
import { fieldText, fieldTextOrNull } from "../../parts/form-dialog.tsx";

/** The SAML fields: the provider's metadata, or its entity ID, URLs and certificates. */
export function SamlFields({ saved }: { saved: Schemas["SsoConfiguration"] }) {
  return (
    <>
      <Text>
        To enable single sign-on, enter the provider metadata, or the sign-in URL, provider entity ID and provider
        certificates. Metadata takes precedence over these fields and the single logout URL.
      </Text>
      <LongField
        name="samlIdpMetadataXml"
        label="Provider metadata"
        hint="Metadata XML of the identity provider. If you paste it here, the next four fields are ignored."
        rows={4}
      />
      <TextField name="samlEntryPoint" label="Sign-in URL" type="url" defaultValue={saved.samlEntryPoint ?? ""} />
      <TextField
        name="samlLogoutUrl"
        label="Single logout URL"
        hint="URL with the HTTP-Redirect binding. Used only if requests are signed. If empty, signing out ends only the session of this service."
        type="url"
        defaultValue={saved.samlLogoutUrl ?? ""}
      />
      <TextField name="samlIdpEntityId" label="Provider entity ID" defaultValue={saved.samlIdpEntityId ?? ""} />
      <LongField
        name="samlIdpCertificates"
        label="Provider certificates"
        hint="Signing certificates in PEM format. While the provider changes its certificate, enter the old and the new one."
        rows={6}
        defaultValue={saved.samlIdpCertificates.map(({ certificate }) => certificate).join("\n")}
      />
      <TextField
        name="samlIdAttribute"
        label="User ID attribute"
        hint="Attribute with an ID that never changes, so not an email address. Leave empty to use Entra's object identifier or a persistent NameID."
        defaultValue={saved.samlIdAttribute ?? ""}
      />
      <CheckField
        name="samlSignRequests"
        label="Sign requests with the service's own key"
        defaultChecked={saved.samlSignRequests}
      />
    </>
  );
}

/** Returns the configuration from the form data: `tested` is the part that a connection test uses. */
export function samlOf(form: FormData) {
  const samlIdpMetadataXml = fieldText(form, "samlIdpMetadataXml");
  // The provider can publish several certificates, so the field can contain several PEM blocks.
  const certificates = fieldText(form, "samlIdpCertificates").match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g);
  return {
    // Metadata replaces the four fields. Without metadata, an empty field deletes its saved value.
    tested:
      samlIdpMetadataXml === ""
        ? {
            samlEntryPoint: fieldTextOrNull(form, "samlEntryPoint"),
            samlLogoutUrl: fieldTextOrNull(form, "samlLogoutUrl"),
            samlIdpEntityId: fieldTextOrNull(form, "samlIdpEntityId"),
            samlIdpCertificates: certificates ? [...certificates] : null,
          }
        : { samlIdpMetadataXml },
    others: {
      samlIdAttribute: fieldTextOrNull(form, "samlIdAttribute"),
      samlSignRequests: form.has("samlSignRequests"),
    },
  };
}
