import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { CheckField, LongField, NumberField } from "../../parts/fields.tsx";
import { typed, typedList } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Offered } from "../../parts/offered.tsx";
import { Operate } from "../../parts/operate.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Credentials } from "./applications.tsx";
import { Matches } from "./matches.tsx";

/** One application: what it signs in with, which vault secrets hold that, and whether it is rotated by itself. */
export default function OneApplication() {
  const { appId = "" } = useParams();
  return (
    <Offered
      operation="getApplication"
      what="What an application signs in with, which vault secrets hold it, and when it is rotated by itself."
    >
      <Application appId={appId} />
    </Offered>
  );
}

function Application({ appId }: { appId: string }) {
  const application = api.useQuery("get", "/api/automation/rotation/apps/{app_id}", {
    params: { path: { app_id: appId } },
  });
  return (
    <Answer of={application}>
      {(data) => (
        <View title={data.displayName}>
          <Text>
            {data.appId}. <Link href={createHref("/rotation", {})}>To the rotations</Link>
          </Text>
          {data.reasons.map(({ code, message }) => (
            <Text key={code}>{message}</Text>
          ))}
          <Card title="Signs in with">
            <Credentials application={data} />
            {data.federated?.map(({ id, name, issuer, subject }) => (
              <div key={id}>
                without a secret: {name}, {issuer}, {subject}
              </div>
            ))}
          </Card>
          <Card title="Vault secrets that hold it">
            <Matches application={data} />
          </Card>
          <Card title="By itself">{data.policy === null ? <NoPolicy appId={appId} /> : <Policy appId={appId} />}</Card>
        </View>
      )}
    </Answer>
  );
}

const NoPolicy = ({ appId }: { appId: string }) => (
  <>
    <Text>Nobody has said when it is rotated by itself.</Text>
    <div>
      <ChangePolicy appId={appId} />
    </div>
  </>
);

function Policy({ appId }: { appId: string }) {
  const params = { path: { app_id: appId } };
  const policy = api.useQuery("get", "/api/automation/rotation/apps/{app_id}/policy", { params });
  return (
    <Answer of={policy}>
      {(data) => (
        <>
          <Text>
            {data.automatic ? "It is rotated by itself" : "It is not rotated by itself"}, with {data.overlapDays} days
            in which both secrets hold. {data.targets.length > 0 && `Only ${data.targets.join(", ")} are written.`} Set
            by {data.updatedBy} <Instant at={data.updatedAt} relative />.
          </Text>
          {data.attention && (
            <Text>
              {data.attention.message} {data.attention.remedy}
            </Text>
          )}
          <div>
            <ChangePolicy appId={appId} policy={data} />{" "}
            <Operate
              operation="deleteRotationPolicy"
              title="Remove the policy"
              action="Remove"
              submit={(_, remove) => remove({ params: { ...params, header: { "If-Match": data.etag } } })}
            >
              <Text>It is no longer rotated by itself. A rotation that has begun goes on.</Text>
            </Operate>
          </div>
        </>
      )}
    </Answer>
  );
}

function ChangePolicy({ appId, policy }: { appId: string; policy?: Schemas["RotationPolicy"] }) {
  const params = { path: { app_id: appId }, ...(policy && { header: { "If-Match": policy.etag } }) };
  return (
    <Operate
      operation="setRotationPolicy"
      title={policy ? "Change the policy" : "Set a policy"}
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
        label="Rotate what ends soon without anybody asking"
        defaultChecked={policy?.automatic ?? false}
      />
      <NumberField
        name="overlapDays"
        label="Days in which both hold"
        required
        min={1}
        max={90}
        defaultValue={String(policy?.overlapDays ?? 7)}
      />
      <NumberField
        name="expiryDays"
        label="Days the new one holds"
        hint="Empty: as the settings say"
        min={1}
        max={730}
        defaultValue={String(policy?.expiryDays ?? "")}
      />
      <CheckField
        name="updateKeyVaults"
        label="Write it into the key vault secrets that are known to hold the old one"
        defaultChecked={policy?.updateKeyVaults ?? true}
      />
      <LongField
        name="targets"
        label="Only these vault secrets"
        hint="Asset ids. Empty: every certain match."
        defaultValue={policy?.targets.join("\n") ?? ""}
      />
    </Operate>
  );
}
