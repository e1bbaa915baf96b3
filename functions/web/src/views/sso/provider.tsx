import { MessageBar, MessageBarBody, Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { CheckField, TextField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { OidcFields, oidcOf } from "./oidc.tsx";
import { SamlFields, samlOf } from "./saml.tsx";
import { TestOutcome } from "./sign-in-status.tsx";

type Configuration = Schemas["SsoConfiguration"];

/** The card of the Single sign-on page with the identity provider, and the forms that test a configuration before saving it. */
export function Provider({ saved }: { saved: Configuration }) {
  const { providerType, isEnabled, updatedAt, updatedBy, etag } = saved;
  const issuer = providerType === "oidc" ? saved.oidcIssuer : saved.samlIdpEntityId;
  return (
    <>
      <Text>
        {issuer === null
          ? "No identity provider is configured."
          : `${providerType === "oidc" ? "OpenID Connect" : "SAML"} with ${issuer}, ${isEnabled ? "enabled" : "disabled"}.`}
        {updatedAt && (
          <>
            {" "}
            Last modified by {updatedBy} <Instant at={updatedAt} relative />.
          </>
        )}
      </Text>
      <ExpiryDates saved={saved} />
      <Text>Only one identity provider can be configured. Configuring another one replaces it.</Text>
      <ButtonRow>
        <ConfigureProvider saved={saved} type="oidc" />
        <ConfigureProvider saved={saved} type="saml" />
        {updatedAt !== null && (
          <Operate
            operation="deleteSsoConfiguration"
            title="Disable single sign-on"
            action="Disable single sign-on"
            submit={(_, remove) => remove({ params: { header: { "If-Match": etag } } })}
          >
            <Text>
              Users can no longer sign in with single sign-on. Users with a password can sign in with it
              {saved.ssoOnlyMode && ", because password sign-in is turned on again"}. The configuration stays saved, so
              that you can enable single sign-on again.
            </Text>
          </Operate>
        )}
      </ButtonRow>
    </>
  );
}

/** The known expiry dates of secrets and certificates. One line each, and none without a date. */
function ExpiryDates({ saved }: { saved: Configuration }) {
  const dates = [
    ["Client secret", saved.oidcClientSecretExpiresOn],
    ...saved.samlIdpCertificates.map(({ expiresOn }) => ["Provider certificate", expiresOn] as const),
    ["Certificate of this service", saved.samlServiceCertificate?.expiresOn ?? null],
  ] as const;
  return dates.map(
    ([name, at]) =>
      at && (
        <Text key={`${name} ${at}`} block>
          {name}: expires <Instant at={at} />.
        </Text>
      ),
  );
}

/** The form of one protocol. The test must run before the form can be saved. */
function ConfigureProvider({ saved, type }: { saved: Configuration; type: "oidc" | "saml" }) {
  const { Fields, membersOf, title } = FORMS[type];
  return (
    <Operate
      operation="putSsoConfiguration"
      title={title}
      action="Save configuration"
      preview={{
        operation: "testSsoConfiguration",
        action: "Test connection",
        isRequired: true,
        load: async (form, test) => (
          <TestOutcome of={await test({ body: { providerType: type, ...membersOf(form).tested } })} />
        ),
      }}
      submit={(form, put) => {
        const { tested, others } = membersOf(form);
        return put({
          params: { header: { "If-Match": saved.etag } },
          body: {
            providerType: type,
            isEnabled: form.has("isEnabled"),
            ...withoutEmpty({ loginButtonText: fieldText(form, "loginButtonText") }),
            ...tested,
            ...others,
          },
        });
      }}
    >
      <Text>
        Select Test connection first. You can save the configuration after the test. The test changes nothing.
      </Text>
      <ReplacedProvider saved={saved} type={type} />
      {saved.ssoOnlyMode && (
        <Text>Password sign-in is off. Saving a changed provider turns password sign-in on again.</Text>
      )}
      <Fields saved={saved} />
      <CheckField name="isEnabled" label="Enable single sign-on" defaultChecked={saved.isEnabled} />
      <TextField
        name="loginButtonText"
        label="Sign-in button text"
        hint="Text of the button on the sign-in page. Example: Sign in with Contoso"
        defaultValue={saved.loginButtonText}
      />
    </Operate>
  );
}

/**
 * A warning in the form of one protocol if a provider of the other one is saved. Users belong to the issuer that they come
 * from.
 */
function ReplacedProvider({ saved, type }: { saved: Configuration; type: "oidc" | "saml" }) {
  const current = saved.providerType === "oidc" ? saved.oidcIssuer : saved.samlIdpEntityId;
  if (saved.providerType === type || current === null) return null;
  return (
    <MessageBar intent="warning" layout="multiline">
      <MessageBarBody>
        Saving replaces {type === "saml" ? `OpenID Connect (issuer ${current})` : `SAML (entity ID ${current})`}. Users
        of the current provider can no longer sign in with it, and the service treats them as new users.
      </MessageBarBody>
    </MessageBar>
  );
}

/** The form of each protocol. `membersOf` splits the body into members that the test uses and all others. */
const FORMS = {
  oidc: { Fields: OidcFields, membersOf: oidcOf, title: "Configure OpenID Connect" },
  saml: { Fields: SamlFields, membersOf: samlOf, title: "Configure SAML" },
} as const;
