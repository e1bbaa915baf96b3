import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { ExpiryField, LongField, SecretField, TextField } from "../../parts/fields.tsx";
import { fieldExpiry, fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Provider = Schemas["SyncProvider"];
type Member = Exclude<keyof Schemas["SyncProviderChange"], "expiresOn">;

type Members = { name: Member; label: string; kind?: "secret" | "secretLines" | "lines" | "url" }[];

/**
 * The fields of each provider, by the API's member name. The API never returns the values of `secret` and `secretLines`.
 * `lines` and `secretLines` are multiline text.
 */
const MEMBERS: Record<string, Members> = {
  azure: [],
  aws: [
    { name: "accessKeyId", label: "Access key ID" },
    { name: "secretAccessKey", label: "Secret access key", kind: "secret" },
    { name: "region", label: "Region" },
  ],
  hashicorp: [
    { name: "address", label: "Address", kind: "url" },
    { name: "namespace", label: "Namespace" },
    { name: "mount", label: "Mount path" },
    { name: "caCertificate", label: "CA certificate (PEM)", kind: "lines" },
    { name: "token", label: "Token", kind: "secret" },
    { name: "roleId", label: "AppRole role ID (instead of a token)" },
    { name: "secretId", label: "AppRole secret ID", kind: "secret" },
    { name: "authMount", label: "AppRole mount path" },
  ],
  google: [
    { name: "projectId", label: "Project ID" },
    { name: "serviceAccountKey", label: "Service account key file (JSON)", kind: "secretLines" },
    { name: "location", label: "Location" },
  ],
  github: [
    { name: "apiUrl", label: "API URL (GitHub Enterprise Server)", kind: "url" },
    { name: "token", label: "Token", kind: "secret" },
    { name: "appId", label: "GitHub App ID (instead of a token)" },
    { name: "installationId", label: "Installation ID" },
    { name: "privateKey", label: "GitHub App private key (PEM)", kind: "secretLines" },
  ],
  kubernetes: [
    { name: "address", label: "Address", kind: "url" },
    { name: "caCertificate", label: "CA certificate (PEM)", kind: "lines" },
    { name: "namespace", label: "Namespace" },
    { name: "token", label: "Service account token", kind: "secret" },
  ],
};

/** The card of the Sync page with the providers that secrets are synced to, and the forms of their credentials. */
export function Providers() {
  const providers = api.useQuery("get", "/api/automation/sync/providers");
  return (
    <QueryResult of={providers}>
      {({ items }) => (
        <ul>
          {items.map((provider) => (
            <li key={provider.provider}>
              {provider.title}:{" "}
              {provider.provider === "azure"
                ? "uses the service's identity, no credentials needed"
                : provider.configured
                  ? "configured"
                  : "not configured"}
              {provider.refusedAt && (
                <>
                  , credentials rejected <Instant at={provider.refusedAt} relative />
                </>
              )}
              {provider.expiresOn && (
                <>
                  , credential expires <Instant at={provider.expiresOn} relative />
                </>
              )}{" "}
              <Actions provider={provider} />
            </li>
          ))}
        </ul>
      )}
    </QueryResult>
  );
}

/** The buttons of a provider. Azure has none: the service uses its own identity there. The etag is null without credentials. */
function Actions({ provider: details }: { provider: Provider }) {
  const { provider, title, etag } = details;
  const members = MEMBERS[provider] ?? [];
  if (members.length === 0) return null;
  const params = { path: { provider }, ...(etag !== null && { header: { "If-Match": etag } }) };
  return (
    <ButtonRow>
      <Operate
        operation="configureSyncProvider"
        title={etag === null ? "Configure" : "Edit"}
        about={title}
        action="Test and save"
        submit={(form, configure) => {
          // Empty fields are not sent. The API keeps the saved secrets if none is sent, and removes settings that are not sent.
          const texts = Object.fromEntries(members.map(({ name }) => [name, fieldText(form, name)]));
          return configure({ params, body: { ...withoutEmpty(texts), ...fieldExpiry(form, "expiresOn") } });
        }}
      >
        <Text>
          Credentials that the service uses to write secrets to {title}. They are tested first, and saved only if the
          test passes.
        </Text>
        <Fields provider={details} members={members} />
      </Operate>
      {etag !== null && (
        <Operate
          operation="deleteSyncProvider"
          title="Delete credentials"
          about={title}
          action="Delete credentials"
          submit={(_, remove) => remove({ params })}
        >
          <Text>
            Deletes the credentials that are stored for {title}. You can't undo this. Syncs to this provider fail until
            you configure the provider again. Existing copies stay in the provider.
          </Text>
        </Operate>
      )}
    </ButtonRow>
  );
}

/** The fields of a provider. `filled`: names of the secret fields with text, so the form has a new secret. */
function Fields({ provider: { secretsSet, settings, expiresOn }, members }: { provider: Provider; members: Members }) {
  const [filled, setFilled] = useState<readonly string[]>([]);
  function trackFilled(name: string, isFilled: boolean): void {
    setFilled((before) => [...before.filter((filledName) => filledName !== name), ...(isFilled ? [name] : [])]);
  }
  return (
    <>
      {members.map(({ name, label, kind }) => {
        const hint = secretsSet.includes(name) ? "Leave empty to keep the current value." : "";
        const secret = { name, label, hint, onFilled: (isFilled: boolean) => trackFilled(name, isFilled) };
        if (kind === "secret") return <SecretField key={name} {...secret} />;
        if (kind === "secretLines") return <LongField key={name} {...secret} />;
        const savedValue = (settings as Record<string, unknown>)[name];
        const defaultValue = typeof savedValue === "string" ? savedValue : "";
        return kind === "lines" ? (
          <LongField key={name} name={name} label={label} defaultValue={defaultValue} />
        ) : (
          <TextField key={name} name={name} label={label} type={kind ?? "text"} defaultValue={defaultValue} />
        );
      })}
      <ExpiryField
        name="expiresOn"
        label="Credential expires"
        hint="Alert rules of the type “Credential of this service expires soon” notify before this date."
        savedExpiry={expiresOn}
        hasNewSecret={filled.length > 0}
      />
    </>
  );
}
