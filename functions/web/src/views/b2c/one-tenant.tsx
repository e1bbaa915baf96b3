import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { untilOver } from "../../parts/follow.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { TenantFields, tenantOf } from "./tenant-form.tsx";

type Tenant = Schemas["B2cTenant"];

/** One tenant: how it is read, and what it holds. */
export default function OneTenant() {
  const { tenantId = "" } = useParams();
  const tenant = api.useQuery(
    "get",
    "/b2c/tenants/{tenant_id}",
    { params: { path: { tenant_id: tenantId } } },
    untilOver<Tenant>(({ state }) => state !== "discovering"),
  );
  return (
    <Answer of={tenant}>
      {(data) => (
        <View title={data.displayName}>
          <Text>
            {data.tenantId}, {data.tenantDomain}. <Link href={createHref("/b2c", {})}>To the tenants</Link>
          </Text>
          <Actions tenant={data} />
          <Card title="How it is">
            <State tenant={data} />
          </Card>
          <Card title="What it holds">
            <Holds tenant={data} />
          </Card>
        </View>
      )}
    </Answer>
  );
}

function State({
  tenant: { state, lastDiscoveredAt, nextDiscoveryAt, clientId, clientSecretExpiresOn, failures },
}: {
  tenant: Tenant;
}) {
  return (
    <>
      <Text>
        {state}, read <Instant at={lastDiscoveredAt} relative />
        {nextDiscoveryAt && (
          <>
            , next <Instant at={nextDiscoveryAt} relative />
          </>
        )}
        . The service signs in as {clientId}
        {clientSecretExpiresOn && (
          <>
            , whose secret ends <Instant at={clientSecretExpiresOn} relative />
          </>
        )}
        .
      </Text>
      {failures.length > 0 && (
        <ul>
          {failures.map(({ list, code, message, remedy }) => (
            <li key={`${list} ${code}`}>
              {list}: {message} {remedy}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Holds({ tenant: { counts } }: { tenant: Tenant }) {
  if (counts === null) return <Text>It was not read yet.</Text>;
  return (
    <>
      <ul>
        <li>{counts.applications.toLocaleString()} secrets and certificates of applications</li>
        <li>{counts.policyKeys.toLocaleString()} keys of policies</li>
        <li>{counts.identityProviders.toLocaleString()} identity providers</li>
        <li>{counts.expiring.toLocaleString()} of them end soon</li>
      </ul>
      <Link href={createHref("/inventory", { source: "b2c" })}>In the inventory</Link>
    </>
  );
}

function Actions({ tenant }: { tenant: Tenant }) {
  const { tenantId, displayName, etag } = tenant;
  const params = { path: { tenant_id: tenantId } };
  const held = { ...params, header: { "If-Match": etag } };
  return (
    <div>
      <Operate
        operation="testB2cTenant"
        title="Test"
        action="Test"
        submit={async (_, test) => <Outcome of={await test({ params })} />}
      >
        <Text>Signs in there and looks what can be read. Nothing is changed.</Text>
      </Operate>{" "}
      <Operate
        operation="discoverB2cTenant"
        title="Read it now"
        action="Read"
        submit={(_, discover) => discover({ params })}
      >
        <Text>Its credentials are read into the inventory. Nothing is changed there.</Text>
      </Operate>{" "}
      <Operate
        operation="changeB2cTenant"
        title="Change"
        action="Save"
        submit={(form, change) => change({ params: held, body: tenantOf(form) })}
      >
        <TenantFields tenant={tenant} />
      </Operate>{" "}
      <Operate
        operation="deleteB2cTenant"
        title="Remove"
        action="Remove"
        submit={async (_, remove) => {
          await remove({ params: held });
          location.hash = createHref("/b2c", {});
        }}
      >
        <Text>{displayName} is no longer read, and its credentials leave the inventory. Nothing is changed there.</Text>
      </Operate>
    </div>
  );
}

const CHECKS: Record<Schemas["B2cTenantTest"]["checks"][number]["name"], string> = {
  signIn: "Signs in",
  consent: "Consent",
  tenant: "The tenant's id",
  domain: "The domain",
  applications: "Applications",
  policyKeys: "Keys of policies",
  identityProviders: "Identity providers",
};
const OUTCOMES = {
  ok: "good",
  failed: "not good",
  notApplicable: "there are none in such a tenant",
  notTried: "not tried",
} as const;

const Outcome = ({ of: { ok, checks } }: { of: Schemas["B2cTenantTest"] }) => (
  <>
    <Text block weight="semibold">
      {ok ? "All can be read." : "Not all can be read yet."}
    </Text>
    <ul>
      {checks.map(({ name, outcome, permission, message, remedy }) => (
        <li key={name}>
          {CHECKS[name]}: {OUTCOMES[outcome]}.{" "}
          {outcome === "failed" && `${message ?? ""} ${remedy ?? permission ?? ""}`}
        </li>
      ))}
    </ul>
  </>
);
