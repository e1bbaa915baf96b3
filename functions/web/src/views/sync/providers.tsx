import { Text } from "@fluentui/react-components";
import { useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Answer } from "../../parts/answer.tsx";
import { EndField, LongField, SecretField, TextField } from "../../parts/fields.tsx";
import { endOf, given, typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";

type Provider = Schemas["SyncProvider"];
type Member = Exclude<keyof Schemas["SyncProviderChange"], "expiresOn">;

type Members = { name: Member; label: string; kind?: "secret" | "secretLines" | "lines" | "url" }[];

/** What each provider takes. A `secret` goes in and never comes out; `lines` are text of several lines. */
const MEMBERS: Record<string, Members> = {
  azure: [],
  aws: [
    { name: "accessKeyId", label: "Access key id" },
    { name: "secretAccessKey", label: "Secret access key", kind: "secret" },
    { name: "region", label: "Region" },
  ],
  hashicorp: [
    { name: "address", label: "Address", kind: "url" },
    { name: "namespace", label: "Namespace" },
    { name: "mount", label: "Mount" },
    { name: "caCertificate", label: "Certificate of its authority (PEM)", kind: "lines" },
    { name: "token", label: "Token", kind: "secret" },
    { name: "roleId", label: "Role id, in place of a token" },
    { name: "secretId", label: "Secret id of the role", kind: "secret" },
    { name: "authMount", label: "Mount of AppRole" },
  ],
  google: [
    { name: "projectId", label: "Project id" },
    { name: "serviceAccountKey", label: "Content of the service account's key file", kind: "secretLines" },
    { name: "location", label: "Location" },
  ],
  github: [
    { name: "apiUrl", label: "Address of the API, of a server of your own", kind: "url" },
    { name: "token", label: "Token", kind: "secret" },
    { name: "appId", label: "Id of the app, in place of a token" },
    { name: "installationId", label: "Installation id" },
    { name: "privateKey", label: "Private key of the app (PEM)", kind: "secretLines" },
  ],
  kubernetes: [
    { name: "address", label: "Address", kind: "url" },
    { name: "caCertificate", label: "Certificate of its authority (PEM)", kind: "lines" },
    { name: "namespace", label: "Namespace" },
    { name: "token", label: "Token of the service account", kind: "secret" },
  ],
};

/** How the service signs in where secrets are copied to. */
export function Providers() {
  const providers = api.useQuery("get", "/api/automation/sync/providers");
  return (
    <Answer of={providers}>
      {({ items }) => (
        <ul>
          {items.map((one) => (
            <li key={one.provider}>
              {one.title}: {one.configured ? "set up" : "not set up"}
              {one.refusedAt && (
                <>
                  , refused <Instant at={one.refusedAt} relative />
                </>
              )}
              {one.expiresOn && (
                <>
                  , its credential ends <Instant at={one.expiresOn} relative />
                </>
              )}{" "}
              <Actions provider={one} />
            </li>
          ))}
        </ul>
      )}
    </Answer>
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
        title={etag === null ? "Set up" : "Change"}
        about={title}
        action="Try and save"
        submit={(form, configure) => {
          const texts = Object.fromEntries(members.map(({ name }) => [name, typed(form, name)]));
          return configure({ params, body: { ...given(texts), ...endOf(form, "expiresOn") } });
        }}
      >
        <Text>What is typed is tried first. Nothing changes unless it works.</Text>
        <Fields provider={one} members={members} />
      </Operate>{" "}
      {etag !== null && (
        <Operate
          operation="deleteSyncProvider"
          title="Remove"
          about={title}
          action="Remove"
          submit={(_, remove) => remove({ params })}
        >
          <Text>Its credentials are deleted. Copies there fail until it is set up again; what lies there stays.</Text>
        </Operate>
      )}
    </>
  );
}

function Fields({ provider: { secretsSet, settings, expiresOn }, members }: { provider: Provider; members: Members }) {
  const [filled, setFilled] = useState<readonly string[]>([]);
  function note(name: string, isAnything: boolean): void {
    setFilled((before) => [...before.filter((one) => one !== name), ...(isAnything ? [name] : [])]);
  }
  return (
    <>
      {members.map(({ name, label, kind }) => {
        const hint = secretsSet.includes(name) ? "Set. Empty: as it is." : "";
        const secret = { name, label, hint, typedInto: (isAnything: boolean) => note(name, isAnything) };
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
      <EndField
        name="expiresOn"
        label="The credential ends on"
        hint="An alert tells of it before"
        end={expiresOn}
        isAnother={filled.length > 0}
      />
    </>
  );
}
