import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { OidcFields, oidcOf } from "./oidc.tsx";
import { SamlFields, samlOf } from "./saml.tsx";

type Configuration = Schemas["SsoConfiguration"];

/** The saved identity provider, and the forms that test a configuration before they save it. */
export function Provider({ now }: { now: Configuration }) {
  const { providerType, isEnabled, totalSsoLogins, lastSuccessfulLoginAt, updatedAt, updatedBy, etag } = now;
  const isSet = providerType === "oidc" ? now.oidcIssuer !== null : now.samlIdpEntityId !== null;
  return (
    <>
      <Text>
        {isSet ? `${providerType === "oidc" ? "OpenID Connect" : "SAML"} with ` : "No identity provider is configured."}
        {isSet && (providerType === "oidc" ? now.oidcIssuer : now.samlIdpEntityId)}
        {isSet && (isEnabled ? ", enabled." : ", disabled.")} {totalSsoLogins.toLocaleString()} sign-ins
        {lastSuccessfulLoginAt && (
          <>
            , last sign-in <Instant at={lastSuccessfulLoginAt} relative />
          </>
        )}
        .
        {updatedAt && (
          <>
            {" "}
            Last modified by {updatedBy} <Instant at={updatedAt} relative />.
          </>
        )}
      </Text>
      <ExpiryDates now={now} />
      <div>
        <ConfigureProvider now={now} type="oidc" /> <ConfigureProvider now={now} type="saml" />{" "}
        {updatedAt !== null && (
          <Operate
            operation="deleteSsoConfiguration"
            title="Delete configuration"
            action="Delete configuration"
            submit={(_, remove) => remove({ params: { header: { "If-Match": etag } } })}
          >
            <Text>
              Single sign-on stops working and its credentials are deleted. Passwords work again. You can't undo this.
            </Text>
          </Operate>
        )}
      </div>
    </>
  );
}

function ExpiryDates({ now }: { now: Configuration }) {
  const dates = [
    ["Client secret", now.oidcClientSecretExpiresOn],
    ...now.samlIdpCertificates.map(({ expiresOn }) => ["Provider certificate", expiresOn] as const),
    ["Certificate of this service", now.samlServiceCertificate?.expiresOn ?? null],
  ] as const;
  return dates.map(
    ([name, at]) =>
      at && (
        <Text key={`${name} ${at}`} block>
          {name} expires <Instant at={at} />.
        </Text>
      ),
  );
}

/** The form of one protocol. The test must run before the form can be saved. */
function ConfigureProvider({ now, type }: { now: Configuration; type: "oidc" | "saml" }) {
  const { Fields, membersOf, title } = FORMS[type];
  return (
    <Operate
      operation="putSsoConfiguration"
      title={title}
      action="Save"
      preview={{
        operation: "testSsoConfiguration",
        action: "Test connection",
        first: true,
        load: async (form, test) => (
          <Outcome of={await test({ body: { providerType: type, ...membersOf(form).tested } })} />
        ),
      }}
      submit={(form, put) => {
        const { tested, others } = membersOf(form);
        return put({
          params: { header: { "If-Match": now.etag } },
          body: {
            providerType: type,
            isEnabled: form.has("isEnabled"),
            ...given({ loginButtonText: typed(form, "loginButtonText") }),
            ...tested,
            ...others,
          },
        });
      }}
    >
      {now.ssoOnlyMode && <Text>Passwords are off. Saving a changed provider turns them on again.</Text>}
      <Fields now={now} />
      <CheckField name="isEnabled" label="Enable single sign-on" defaultChecked={now.isEnabled} />
      <TextField name="loginButtonText" label="Sign-in button text" defaultValue={now.loginButtonText} />
    </Operate>
  );
}

const FORMS = {
  oidc: { Fields: OidcFields, membersOf: oidcOf, title: "Configure OpenID Connect" },
  saml: { Fields: SamlFields, membersOf: samlOf, title: "Configure SAML" },
} as const;

const CHECKS = {
  address: "URL",
  document: "Discovery document",
  keys: "Signing keys",
  client: "Client",
} as const;

function Outcome({ of: { success, checks } }: { of: Schemas["SsoTestResult"] }) {
  return (
    <>
      <Text block weight="semibold">
        {success ? "Connection test passed." : "Connection test failed."}
      </Text>
      <ul>
        {checks.map(({ name, passed, detail }) => (
          <li key={`${name} ${detail}`}>
            {CHECKS[name]}: {passed ? "passed" : "failed"}. {detail}
          </li>
        ))}
      </ul>
    </>
  );
}
