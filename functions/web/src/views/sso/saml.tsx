import type { Schemas } from "../../api/client.ts";
import { CheckField, LongField, TextField } from "../../parts/fields.tsx";
import { typed, typedOrNull } from "../../parts/form-dialog.tsx";

/** What is typed of SAML: the provider's metadata, or what it would say one by one. */
export function SamlFields({ now }: { now: Schemas["SsoConfiguration"] }) {
  return (
    <>
      <LongField
        name="samlIdpMetadataXml"
        label="The provider's metadata"
        hint="XML. Empty: as the three below say."
        rows={4}
      />
      <TextField
        name="samlEntryPoint"
        label="Address to sign in at"
        type="url"
        defaultValue={now.samlEntryPoint ?? ""}
      />
      <TextField name="samlIdpEntityId" label="The provider's entity id" defaultValue={now.samlIdpEntityId ?? ""} />
      <LongField
        name="samlIdpCertificates"
        label="The provider's certificates"
        hint="PEM, one after the other; two while it changes them"
        rows={6}
        defaultValue={now.samlIdpCertificates.map(({ certificate }) => certificate).join("\n")}
      />
      <TextField
        name="samlIdAttribute"
        label="Attribute that names a person for good"
        hint="Never an e-mail address. Empty: Entra's object identifier, else a persistent NameID."
        defaultValue={now.samlIdAttribute ?? ""}
      />
      <CheckField
        name="samlSignRequests"
        label="Sign our requests, with a key of our own"
        defaultChecked={now.samlSignRequests}
      />
    </>
  );
}

/** `tried` is what a test takes. */
export function samlOf(form: FormData) {
  const samlIdpMetadataXml = typed(form, "samlIdpMetadataXml");
  const certificates = typed(form, "samlIdpCertificates").match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g);
  return {
    tried:
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
