import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { CheckField, LongField, NumberField } from "../../parts/fields.tsx";
import { fieldEntries, fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { HANDOVER, SAVE_TO_MATCHES } from "../../parts/rotation-texts.ts";
import { useParams } from "../../parts/router.tsx";
import { useAutomationSetting } from "../../parts/setting-value.ts";
import { ValidityField } from "../../parts/validity-field.tsx";
import { View } from "../../parts/view.tsx";
import { Credentials } from "./applications.tsx";
import { MaintenanceWindowFields, windowOf, windowText } from "./maintenance-window.tsx";
import { Matches } from "./matches.tsx";
import { Secretless } from "./secretless.tsx";

/** The page of one application: its credentials, the vault secrets that store them, and its rotation policy. */
export default function OneApplication() {
  const { appId = "" } = useParams();
  return (
    <FeatureGate
      operation="getApplication"
      description="Shows the credentials of an application, the key vault secrets that store them, and the rotation policy."
    >
      <Application appId={appId} />
    </FeatureGate>
  );
}

/** The content of the page. Rendered, and its data loaded, only if the role and the license allow it. */
function Application({ appId }: { appId: string }) {
  const application = api.useQuery("get", "/api/automation/rotation/apps/{app_id}", {
    params: { path: { app_id: appId } },
  });
  return (
    <QueryResult of={application}>
      {(data) => (
        <View title={data.displayName}>
          <Text>
            Client ID: {data.appId}. <Link href={createHref("/rotation")}>All applications and rotations</Link>
          </Text>
          {/* `reasons`: why the service can't rotate secrets of the application. The Credentials card shows them beside each client
              secret, so they are shown here only if the application has none. */}
          {!data.credentials.some(({ kind }) => kind === "secret") &&
            data.reasons.map(({ code, message }) => <Text key={code}>{message}</Text>)}
          <Card title="Credentials">
            <Credentials application={data} isDetailed />
            {/* A federated credential trusts tokens of another issuer. It has no secret to rotate, so it is only listed. */}
            {data.federated?.map(({ id, name, issuer, subject }) => (
              <div key={id}>
                Federated credential: {name}, {issuer}, {subject}
              </div>
            ))}
          </Card>
          <Card title="Matching key vault secrets">
            <Text>
              Key vault secrets that may store a secret of this application. A rotation saves the new secret only to
              those that a test or a user has confirmed.
            </Text>
            <Matches application={data} />
          </Card>
          {data.credentials.some(({ kind }) => kind === "secret") && (
            <Card title="Replacement of client secrets">
              <Text>
                Whether the known consumers of each client secret can sign in with a managed identity or a federated
                credential instead. The report changes nothing.
              </Text>
              <Secretless appId={appId} />
            </Card>
          )}
          <Card title="Rotation policy">
            {data.policy === null ? <NoPolicy appId={appId} /> : <Policy appId={appId} />}
          </Card>
        </View>
      )}
    </QueryResult>
  );
}

const NoPolicy = ({ appId }: { appId: string }) => (
  <>
    <Text>
      No rotation policy, so the secrets of this application are not rotated automatically. Set a policy to rotate them
      before they expire.
    </Text>
    <div>
      <EditPolicy appId={appId} />
    </div>
  </>
);

/** The rotation policy with the buttons that edit and delete it. Rendered only if the application has a policy. */
function Policy({ appId }: { appId: string }) {
  const params = { path: { app_id: appId } };
  const policy = api.useQuery("get", "/api/automation/rotation/apps/{app_id}/policy", { params });
  return (
    <QueryResult of={policy}>
      {(data) => (
        <>
          <Text>
            Automatic rotation is {data.automatic ? "on" : "off"}. Overlap period: {counted(data.overlapDays, "day")}.{" "}
            {data.targets.length > 0 &&
              `Key Vault secrets to update: ${data.targets.map((id) => titleOfId(id)).join(", ")}.`}{" "}
            {windowText(data.maintenanceWindow)} Last modified by {data.updatedBy}{" "}
            <Instant at={data.updatedAt} relative />.
          </Text>
          {/* `attention`: why the service can't rotate automatically now. Null otherwise. */}
          {data.attention && (
            <Text>
              {data.attention.message} {data.attention.remedy}
            </Text>
          )}
          <ButtonRow>
            <EditPolicy appId={appId} policy={data} />
            <Operate
              operation="deleteRotationPolicy"
              title="Delete policy"
              action="Delete policy"
              submit={(_, remove) => remove({ params: { ...params, header: { "If-Match": data.etag } } })}
            >
              <Text>
                Stops the automatic rotation of this application's secrets. A rotation in progress continues. You can
                set a new policy at any time.
              </Text>
            </Operate>
          </ButtonRow>
        </>
      )}
    </QueryResult>
  );
}

/** The form of a policy. Without `policy`, the form creates a policy, so no etag is sent. */
function EditPolicy({ appId, policy }: { appId: string; policy?: Schemas["RotationPolicy"] }) {
  const params = { path: { app_id: appId }, ...(policy && { header: { "If-Match": policy.etag } }) };
  return (
    <Operate
      operation="setRotationPolicy"
      title={policy ? "Edit policy" : "Set policy"}
      action="Save policy"
      submit={async (form, set) => {
        const expiryDays = fieldText(form, "expiryDays");
        await set({
          params,
          body: {
            automatic: form.has("automatic"),
            expiryDays: expiryDays === "" ? null : Number(expiryDays),
            overlapDays: Number(fieldText(form, "overlapDays")),
            updateKeyVaults: form.has("updateKeyVaults"),
            targets: fieldEntries(form, "targets"),
            maintenanceWindow: windowOf(form),
          },
        });
      }}
    >
      <AutomaticField defaultChecked={policy?.automatic ?? false} />
      <NumberField
        name="overlapDays"
        label="Overlap period (days)"
        hint="Number of days that the old and the new secret are both valid. Example: 7"
        required
        min={1}
        max={90}
        defaultValue={String(policy?.overlapDays ?? 7)}
      />
      <ValidityField defaultValue={String(policy?.expiryDays ?? "")} />
      <CheckField
        name="updateKeyVaults"
        label={SAVE_TO_MATCHES}
        hint={`Updates the confirmed matching key vault secrets. If off: ${HANDOVER}`}
        defaultChecked={policy?.updateKeyVaults ?? true}
      />
      <LongField
        name="targets"
        label="Key Vault secrets to update"
        hint="Enter one asset ID per line, for example kv-analytics-prod.secret.api-key. If empty, updates all secrets with a confirmed match and all secrets that an earlier rotation updated. If there are none, no rotation starts."
        defaultValue={policy?.targets.join("\n") ?? ""}
      />
      <MaintenanceWindowFields window={policy?.maintenanceWindow ?? null} />
    </Operate>
  );
}

/** The switch for automatic rotation. The hint contains the lead time of the settings if the user can read it. */
function AutomaticField({ defaultChecked }: { defaultChecked: boolean }) {
  const leadDays = useAutomationSetting("rotationTriggerDays");
  const start =
    leadDays === undefined ? "before expiry, by the rotation lead time" : `${counted(leadDays, "day")} before expiry`;
  return (
    <CheckField
      name="automatic"
      label="Rotate secrets automatically before they expire"
      hint={`Starts ${start} (set in Settings). The other settings of this policy apply only to automatic rotations.`}
      defaultChecked={defaultChecked}
    />
  );
}
