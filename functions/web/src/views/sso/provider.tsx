import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { CheckField, TextField } from "../../parts/fields.tsx";
import { given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { OidcFields, oidcOf } from "./oidc.tsx";
import { SamlFields, samlOf } from "./saml.tsx";

type Configuration = Schemas["SsoConfiguration"];

/** The provider as it is saved, and the forms that try it before they save it. */
export function Provider({ now }: { now: Configuration }) {
  const { providerType, isEnabled, totalSsoLogins, lastSuccessfulLoginAt, updatedAt, updatedBy, etag } = now;
  const isSet = providerType === "oidc" ? now.oidcIssuer !== null : now.samlIdpEntityId !== null;
  return (
    <>
      <Text>
        {isSet ? `${providerType === "oidc" ? "OpenID Connect" : "SAML"} with ` : "None is set up."}
        {isSet && (providerType === "oidc" ? now.oidcIssuer : now.samlIdpEntityId)}
        {isSet && (isEnabled ? ", switched on." : ", switched off.")} {totalSsoLogins.toLocaleString()} sign-ins
        {lastSuccessfulLoginAt && (
          <>
            , the last <Instant at={lastSuccessfulLoginAt} relative />
          </>
        )}
        .
        {updatedAt && (
          <>
            {" "}
            Changed by {updatedBy} <Instant at={updatedAt} relative />.
          </>
        )}
      </Text>
      <Ends now={now} />
      <div>
        <Change now={now} type="oidc" /> <Change now={now} type="saml" />{" "}
        {updatedAt !== null && (
          <Operate
            operation="deleteSsoConfiguration"
            title="Remove"
            action="Remove"
            submit={(_, remove) => remove({ params: { header: { "If-Match": etag } } })}
          >
            <Text>Nobody signs in by it any more. Its credentials are deleted; passwords work again.</Text>
          </Operate>
        )}
      </div>
    </>
  );
}

function Ends({ now }: { now: Configuration }) {
  const ends = [
    ["The client secret", now.oidcClientSecretExpiresOn],
    ...now.samlIdpCertificates.map(({ expiresOn }) => ["A certificate of the provider", expiresOn] as const),
    ["Our own certificate", now.samlServiceCertificate?.expiresOn ?? null],
  ] as const;
  return ends.map(
    ([what, at]) =>
      at && (
        <Text key={`${what} ${at}`} block>
          {what} ends <Instant at={at} />.
        </Text>
      ),
  );
}

/** The form of one protocol. It is tried as it is typed before it can be saved. */
function Change({ now, type }: { now: Configuration; type: "oidc" | "saml" }) {
  const { Fields, membersOf, title } = FORMS[type];
  return (
    <Operate
      operation="putSsoConfiguration"
      title={title}
      action="Save"
      preview={{
        operation: "testSsoConfiguration",
        action: "Test",
        first: true,
        load: async (form, test) => (
          <Outcome of={await test({ body: { providerType: type, ...membersOf(form).tried } })} />
        ),
      }}
      submit={(form, put) => {
        const { tried, others } = membersOf(form);
        return put({
          params: { header: { "If-Match": now.etag } },
          body: {
            providerType: type,
            isEnabled: form.has("isEnabled"),
            ...given({ loginButtonText: typed(form, "loginButtonText") }),
            ...tried,
            ...others,
          },
        });
      }}
    >
      {now.ssoOnlyMode && <Text>Passwords are off. A change of the provider switches them on again.</Text>}
      <Fields now={now} />
      <CheckField name="isEnabled" label="People sign in by it" defaultChecked={now.isEnabled} />
      <TextField name="loginButtonText" label="Text of the sign-in button" defaultValue={now.loginButtonText} />
    </Operate>
  );
}

const FORMS = {
  oidc: { Fields: OidcFields, membersOf: oidcOf, title: "Set up OpenID Connect" },
  saml: { Fields: SamlFields, membersOf: samlOf, title: "Set up SAML" },
} as const;

const CHECKS = {
  address: "Address",
  document: "Discovery document",
  keys: "Keys",
  client: "Client",
} as const;

function Outcome({ of: { success, checks } }: { of: Schemas["SsoTestResult"] }) {
  return (
    <>
      <Text block weight="semibold">
        {success ? "It works." : "It does not work yet."}
      </Text>
      <ul>
        {checks.map(({ name, passed, detail }) => (
          <li key={`${name} ${detail}`}>
            {CHECKS[name]}: {passed ? "good" : "not good"}. {detail}
          </li>
        ))}
      </ul>
    </>
  );
}
