import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { TenantFields, tenantOf } from "./tenant-form.tsx";
import { STATES } from "./tenant-states.ts";

type Tenant = Schemas["B2cTenant"];

/** One tenant: its status, errors and credential counts. */
export default function OneTenant() {
  const { tenantId = "" } = useParams();
  const tenant = api.useQuery(
    "get",
    "/b2c/tenants/{tenant_id}",
    { params: { path: { tenant_id: tenantId } } },
    pollUntil<Tenant>(({ state }) => state !== "discovering"),
  );
  return (
    <QueryResult of={tenant}>
      {(data) => (
        <View title={data.displayName}>
          <Text>
            {data.tenantId}, {data.tenantDomain}. <Link href={createHref("/b2c", {})}>All tenants</Link>
          </Text>
          <Actions tenant={data} />
          <Card title="Status">
            <State tenant={data} />
          </Card>
          <Card title="Credentials">
            <Counts tenant={data} />
          </Card>
        </View>
      )}
    </QueryResult>
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
        {STATES[state]}. Last refreshed: <Instant at={lastDiscoveredAt} relative />
        {nextDiscoveryAt && (
          <>
            , next refresh <Instant at={nextDiscoveryAt} relative />
          </>
        )}
        . The service signs in with client ID {clientId}
        {clientSecretExpiresOn && (
          <>
            , whose secret expires <Instant at={clientSecretExpiresOn} relative />
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

function Counts({ tenant: { counts } }: { tenant: Tenant }) {
  if (counts === null) return <Text>This tenant was not read yet. Select Refresh to read it now.</Text>;
  return (
    <>
      <ul>
        <li>{counts.applications.toLocaleString()} application secrets and certificates</li>
        <li>{counts.policyKeys.toLocaleString()} policy keys</li>
        <li>{counts.identityProviders.toLocaleString()} identity providers</li>
        <li>{counts.expiring.toLocaleString()} expire soon</li>
      </ul>
      <Link href={createHref("/inventory", { source: "b2c" })}>Show in the inventory</Link>
    </>
  );
}

function Actions({ tenant }: { tenant: Tenant }) {
  const { tenantId, displayName, etag } = tenant;
  const params = { path: { tenant_id: tenantId } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <div>
      <Operate
        operation="testB2cTenant"
        title="Test connection"
        action="Test connection"
        submit={async (_, test) => <Outcome of={await test({ params })} />}
      >
        <Text>Signs in to the tenant and checks what the service can read. This makes no changes.</Text>
      </Operate>{" "}
      <Operate
        operation="discoverB2cTenant"
        title="Refresh"
        action="Refresh"
        submit={(_, discover) => discover({ params })}
      >
        <Text>Reads the tenant's credentials into the inventory now. This makes no changes in the tenant.</Text>
      </Operate>{" "}
      <Operate
        operation="changeB2cTenant"
        title="Edit"
        action="Save"
        submit={(form, change) => change({ params: conditionalParams, body: tenantOf(form) })}
      >
        <TenantFields tenant={tenant} />
      </Operate>{" "}
      <Operate
        operation="deleteB2cTenant"
        title="Remove tenant"
        action="Remove tenant"
        submit={async (_, remove) => {
          await remove({ params: conditionalParams });
          location.hash = createHref("/b2c", {});
        }}
      >
        <Text>
          The service stops reading {displayName} and deletes its credentials from the inventory. Nothing in the tenant
          is changed.
        </Text>
      </Operate>
    </div>
  );
}

const CHECKS: Record<Schemas["B2cTenantTest"]["checks"][number]["name"], string> = {
  signIn: "Sign-in",
  consent: "Admin consent",
  tenant: "Tenant ID",
  domain: "Domain",
  applications: "Applications",
  policyKeys: "Policy keys",
  identityProviders: "Identity providers",
};
const OUTCOMES = {
  ok: "passed",
  failed: "failed",
  notApplicable: "not available in this type of tenant",
  notTried: "not tested",
} as const;

const Outcome = ({ of: { ok, checks } }: { of: Schemas["B2cTenantTest"] }) => (
  <>
    <Text block weight="semibold">
      {ok ? "Connection test passed." : "Connection test failed."}
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
