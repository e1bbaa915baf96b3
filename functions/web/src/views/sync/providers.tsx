import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { ExpiryField, LongField, SecretField, TextField } from "../../parts/fields.tsx";
import { expiryOf, given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Provider = Schemas["SyncProvider"];
type Member = Exclude<keyof Schemas["SyncProviderChange"], "expiresOn">;

type Members = { name: Member; label: string; kind?: "secret" | "secretLines" | "lines" | "url" }[];

/** The fields of each provider. The API never returns a `secret`. `lines` is multiline text. */
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

/** The sync providers and their credentials. */
export function Providers() {
  const providers = api.useQuery("get", "/api/automation/sync/providers");
  return (
    <QueryResult of={providers}>
      {({ items }) => (
        <ul>
          {items.map((one) => (
            <li key={one.provider}>
              {one.title}: {one.configured ? "configured" : "not configured"}
              {one.refusedAt && (
                <>
                  , credentials rejected <Instant at={one.refusedAt} relative />
                </>
              )}
              {one.expiresOn && (
                <>
                  , credential expires <Instant at={one.expiresOn} relative />
                </>
              )}{" "}
              <Actions provider={one} />
            </li>
          ))}
        </ul>
      )}
    </QueryResult>
  );
}

function Actions({ provider: one }: { provider: Provider }) {
  const { provider, title, etag } = one;
  const members = MEMBERS[provider] ?? [];
  if (members.length === 0) return null;
  const params = { path: { provider }, ...(etag !== null && { header: { "If-Match": etag } }) };
  return (
    <>
      <Operate
        operation="configureSyncProvider"
        title={etag === null ? "Configure" : "Edit"}
        about={title}
        action="Test and save"
        submit={(form, configure) => {
          const texts = Object.fromEntries(members.map(({ name }) => [name, typed(form, name)]));
          return configure({ params, body: { ...given(texts), ...expiryOf(form, "expiresOn") } });
        }}
      >
        <Text>The service tests the credentials and saves them only if the test passes.</Text>
        <Fields provider={one} members={members} />
      </Operate>{" "}
      {etag !== null && (
        <Operate
          operation="deleteSyncProvider"
          title="Remove"
          about={title}
          action="Remove credentials"
          submit={(_, remove) => remove({ params })}
        >
          <Text>
            Deletes the credentials. Syncs to this provider fail until you configure it again. Existing copies stay
            there.
          </Text>
        </Operate>
      )}
    </>
  );
}

function Fields({ provider: { secretsSet, settings, expiresOn }, members }: { provider: Provider; members: Members }) {
  const [filled, setFilled] = useState<readonly string[]>([]);
  function trackFilled(name: string, isFilled: boolean): void {
    setFilled((before) => [...before.filter((one) => one !== name), ...(isFilled ? [name] : [])]);
  }
  return (
    <>
      {members.map(({ name, label, kind }) => {
        const hint = secretsSet.includes(name) ? "Leave empty to keep the current value" : "";
        const secret = { name, label, hint, onFilled: (isFilled: boolean) => trackFilled(name, isFilled) };
        if (kind === "secret") return <SecretField key={name} {...secret} />;
        if (kind === "secretLines") return <LongField key={name} {...secret} />;
        const now = (settings as Record<string, unknown>)[name];
        const defaultValue = typeof now === "string" ? now : "";
        return kind === "lines" ? (
          <LongField key={name} name={name} label={label} defaultValue={defaultValue} />
        ) : (
          <TextField key={name} name={name} label={label} type={kind ?? "text"} defaultValue={defaultValue} />
        );
      })}
      <ExpiryField
        name="expiresOn"
        label="Credential expires"
        hint="Alert rules notify before this date"
        end={expiresOn}
        isAnother={filled.length > 0}
      />
    </>
  );
}
