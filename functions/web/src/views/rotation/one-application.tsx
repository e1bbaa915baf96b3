import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { CheckField, LongField, NumberField } from "../../parts/fields.tsx";
import { typed, typedList } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Credentials } from "./applications.tsx";
import { Matches } from "./matches.tsx";

/** One application: its credentials, the vault secrets that store them, and its rotation policy. */
export default function OneApplication() {
  const { appId = "" } = useParams();
  return (
    <FeatureGate
      operation="getApplication"
      description="Shows the credentials of an application, the vault secrets that store them, and the rotation policy."
    >
      <Application appId={appId} />
    </FeatureGate>
  );
}

function Application({ appId }: { appId: string }) {
  const application = api.useQuery("get", "/api/automation/rotation/apps/{app_id}", {
    params: { path: { app_id: appId } },
  });
  return (
    <QueryResult of={application}>
      {(data) => (
        <View title={data.displayName}>
          <Text>
            {data.appId}. <Link href={createHref("/rotation", {})}>All rotations</Link>
          </Text>
          {data.reasons.map(({ code, message }) => (
            <Text key={code}>{message}</Text>
          ))}
          <Card title="Credentials">
            <Credentials application={data} />
            {data.federated?.map(({ id, name, issuer, subject }) => (
              <div key={id}>
                Federated credential: {name}, {issuer}, {subject}
              </div>
            ))}
          </Card>
          <Card title="Matching vault secrets">
            <Matches application={data} />
          </Card>
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
    <Text>No policy. Set a policy to rotate this application's secrets automatically.</Text>
    <div>
      <EditPolicy appId={appId} />
    </div>
  </>
);

function Policy({ appId }: { appId: string }) {
  const params = { path: { app_id: appId } };
  const policy = api.useQuery("get", "/api/automation/rotation/apps/{app_id}/policy", { params });
  return (
    <QueryResult of={policy}>
      {(data) => (
        <>
          <Text>
            Automatic rotation is {data.automatic ? "on" : "off"}. Overlap period: {data.overlapDays} days.{" "}
            {data.targets.length > 0 && `Vault secrets to write: ${data.targets.join(", ")}.`} Last modified by{" "}
            {data.updatedBy} <Instant at={data.updatedAt} relative />.
          </Text>
          {data.attention && (
            <Text>
              {data.attention.message} {data.attention.remedy}
            </Text>
          )}
          <div>
            <EditPolicy appId={appId} policy={data} />{" "}
            <Operate
              operation="deleteRotationPolicy"
              title="Delete policy"
              action="Delete policy"
              submit={(_, remove) => remove({ params: { ...params, header: { "If-Match": data.etag } } })}
            >
              <Text>Stops automatic rotation of this application. A rotation in progress continues.</Text>
            </Operate>
          </div>
        </>
      )}
    </QueryResult>
  );
}

function EditPolicy({ appId, policy }: { appId: string; policy?: Schemas["RotationPolicy"] }) {
  const params = { path: { app_id: appId }, ...(policy && { header: { "If-Match": policy.etag } }) };
  return (
    <Operate
      operation="setRotationPolicy"
      title={policy ? "Edit policy" : "Set policy"}
      action="Save"
      submit={async (form, set) => {
        const expiryDays = typed(form, "expiryDays");
        await set({
          params,
          body: {
            automatic: form.has("automatic"),
            expiryDays: expiryDays === "" ? null : Number(expiryDays),
            overlapDays: Number(typed(form, "overlapDays")),
            updateKeyVaults: form.has("updateKeyVaults"),
            targets: typedList(form, "targets"),
          },
        });
      }}
    >
      <CheckField
        name="automatic"
        label="Rotate secrets automatically before they expire"
        defaultChecked={policy?.automatic ?? false}
      />
      <NumberField
        name="overlapDays"
        label="Overlap period (days)"
        hint="Both secrets are valid during this period"
        required
        min={1}
        max={90}
        defaultValue={String(policy?.overlapDays ?? 7)}
      />
      <NumberField
        name="expiryDays"
        label="Validity (days)"
        hint="Leave empty to use the default in Settings"
        min={1}
        max={730}
        defaultValue={String(policy?.expiryDays ?? "")}
      />
      <CheckField
        name="updateKeyVaults"
        label="Write the new value to matching vault secrets"
        defaultChecked={policy?.updateKeyVaults ?? true}
      />
      <LongField
        name="targets"
        label="Vault secrets to write"
        hint="Asset IDs, one per line. Leave empty to write every certain match that a user confirmed or an earlier rotation wrote."
        defaultValue={policy?.targets.join("\n") ?? ""}
      />
    </Operate>
  );
}
