import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted, countUnlessUnread } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { useParams } from "../../parts/router.tsx";
import { useExpiryThresholds } from "../../parts/setting-value.ts";
import { View } from "../../parts/view.tsx";
import { CredentialCount, statusCounts } from "./credential-count.tsx";
import { TenantFields, tenantOf } from "./tenant-form.tsx";
import { STATES } from "./tenant-states.ts";
import { TestOutcome } from "./test-outcome.tsx";

type Tenant = Schemas["B2cTenant"];

/** The page of one tenant: its status, errors, credential counts and actions. */
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
            Tenant ID: {data.tenantId}. Domain: {data.tenantDomain}. <Link href={createHref("/b2c")}>All tenants</Link>
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

/** The status. Each failure names the list of credentials that the last refresh could not read. */
function State({
  tenant: { state, lastDiscoveredAt, nextDiscoveryAt, clientId, clientSecretExpiresOn, failures },
}: {
  tenant: Tenant;
}) {
  return (
    <>
      <Text>
        {STATES[state]}. Last refreshed: <Instant at={lastDiscoveredAt} relative />
        {/* A new tenant is due at once, so the time of its first refresh is in the past. A timer starts it every 10 minutes. */}
        {nextDiscoveryAt && state === "new" && ". The first refresh starts within 10 minutes"}
        {nextDiscoveryAt && state !== "new" && (
          <>
            , next refresh <Instant at={nextDiscoveryAt} relative />
          </>
        )}
        . The service signs in with client ID {clientId}
        {clientSecretExpiresOn && (
          <>
            . Its client secret expires <Instant at={clientSecretExpiresOn} relative />
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

/** The numbers of credentials. Null before the first refresh. */
function Counts({ tenant }: { tenant: Tenant }) {
  const { counts, failures } = tenant;
  const days = useExpiryThresholds();
  // `signIn` and `organization` are read first: without them, no list can be read.
  const isUnread = (kind: string) => failures.some(({ list }) => [kind, "signIn", "organization"].includes(list));
  if (counts === null)
    return <Text>The credentials of this tenant were not read yet. Select Refresh credentials to read them now.</Text>;
  const total = counts.applications + counts.policyKeys + counts.identityProviders;
  // A tenant that an earlier version refreshed has no number of expired credentials.
  const others = counts.expired === undefined ? undefined : total - counts.expired - counts.expiring;
  return (
    <>
      <Text>
        {failures.length > 0 && "At least "}
        {counted(total, "credential")}, by kind:
      </Text>
      <ul>
        <li>
          Secrets and certificates of applications: {countUnlessUnread(counts.applications, isUnread("applications"))}
        </li>
        <li>Policy keys: {countUnlessUnread(counts.policyKeys, isUnread("policyKeys"))}</li>
        <li>
          Secrets of identity providers: {countUnlessUnread(counts.identityProviders, isUnread("identityProviders"))}
        </li>
      </ul>
      <Text>The same credentials, by status:</Text>
      <ul>
        {statusCounts(days).map(({ title, status, countOf }) => (
          <li key={status}>
            {title}: <CredentialCount of={tenant} count={countOf(counts)} filters={{ status }} />
          </li>
        ))}
        {others !== undefined && (
          <li>
            Not expiring soon: <CredentialCount of={tenant} count={others} filters={{ status: "healthy" }} />
          </li>
        )}
      </ul>
      <Text>These are the numbers of the last refresh.</Text>
      <Link href={createHref("/inventory", { source: "b2c", b2cTenant: tenant.tenantId })}>
        Show all credentials of this tenant in the inventory
      </Link>
    </>
  );
}

/** The buttons of a tenant: test the connection, refresh now, edit and remove. */
function Actions({ tenant }: { tenant: Tenant }) {
  const { tenantId, displayName, etag } = tenant;
  const params = { path: { tenant_id: tenantId } };
  const conditionalParams = { ...params, header: { "If-Match": etag } };
  return (
    <ButtonRow>
      <Operate
        operation="testB2cTenant"
        title="Test connection"
        action="Test connection"
        submit={async (_, test) => <TestOutcome result={await test({ params })} />}
      >
        <Text>Signs in to the tenant and checks which credentials the service can read. This makes no changes.</Text>
      </Operate>
      <Operate
        operation="discoverB2cTenant"
        title="Refresh credentials"
        action="Refresh credentials"
        submit={(_, discover) => discover({ params })}
      >
        <Text>
          Reads the names and expiry dates of the tenant's credentials into the inventory now. The tenant is not
          changed.
        </Text>
      </Operate>
      <Operate
        operation="changeB2cTenant"
        title="Edit tenant"
        action="Save tenant"
        submit={(form, change) => change({ params: conditionalParams, body: tenantOf(form) })}
      >
        <TenantFields tenant={tenant} />
      </Operate>
      <Operate
        operation="deleteB2cTenant"
        title="Remove tenant"
        action="Remove tenant"
        submit={async (_, remove) => {
          await remove({ params: conditionalParams });
          location.hash = createHref("/b2c");
        }}
      >
        <Text>
          The service stops monitoring {displayName}, and deletes the tenant's credentials from the inventory and the
          stored client secret. You can't undo this, but you can add the tenant again. The tenant is not changed.
        </Text>
      </Operate>
    </ButtonRow>
  );
}
