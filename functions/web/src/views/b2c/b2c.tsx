import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { FeatureGate } from "../../parts/feature-gate.tsx";
import { Instant } from "../../parts/instant.tsx";
import { LapsedProData } from "../../parts/lapsed-pro-data.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { type ExpiryThresholds, useExpiryThresholds } from "../../parts/setting-value.ts";
import { View } from "../../parts/view.tsx";
import { CredentialCount, statusCounts } from "./credential-count.tsx";
import { NewTenantFields, newTenantOf } from "./tenant-form.tsx";
import { STATE_COLORS, STATES, TENANT_TYPES } from "./tenant-states.ts";
import { TestOutcome } from "./test-outcome.tsx";

const columnsOf = (days: ExpiryThresholds | undefined): Column<Schemas["B2cTenant"]>[] => [
  {
    title: "Tenant",
    cell: ({ tenantId, displayName }) => <Link href={createHref(`/b2c/${tenantId}`)}>{displayName}</Link>,
  },
  { title: "Domain", cell: ({ tenantDomain }) => tenantDomain },
  { title: "Type", cell: ({ tenantType }) => (tenantType === null ? "Unknown" : TENANT_TYPES[tenantType]) },
  {
    title: "Status",
    nowrap: true,
    cell: ({ state }) => (
      <Badge appearance="tint" color={STATE_COLORS[state]}>
        {STATES[state]}
      </Badge>
    ),
  },
  ...statusCounts(days).map(({ title, status, countOf }) => ({
    title,
    cell: (tenant: Schemas["B2cTenant"]) => (
      <CredentialCount of={tenant} count={countOf(tenant.counts)} filters={{ status }} />
    ),
  })),
  { title: "Last refreshed", cell: ({ lastDiscoveredAt }) => <Instant at={lastDiscoveredAt} relative /> },
  { title: "Error", cell: ({ failure }) => (failure ? `${failure.message} ${failure.remedy}` : "None") },
];

/** The B2C tenants page: tenants for customers and partners whose credentials the service monitors. */
export default function B2c() {
  return (
    <View title="B2C tenants">
      <FeatureGate
        operation="registerB2cTenant"
        isQuiet
        description="Monitors the application secrets, certificates and policy keys of your B2C and External ID tenants."
      >
        <div>
          <Operate
            operation="registerB2cTenant"
            title="Add tenant"
            action="Add tenant"
            preview={{
              operation: "testNewB2cTenant",
              action: "Test connection",
              isRequired: true,
              load: async (form, test) => <TestOutcome result={await test({ body: newTenantOf(form) })} />,
            }}
            submit={(form, register) => register({ body: newTenantOf(form) })}
          >
            <Text>
              Test connection signs in to the tenant with these values. After the test you can add the tenant, also if
              checks failed.
            </Text>
            <NewTenantFields />
          </Operate>
        </div>
      </FeatureGate>
      <LapsedProData>
        <Tenants />
      </LapsedProData>
    </View>
  );
}

function Tenants() {
  const list = api.useInfiniteQuery("get", "/b2c/tenants", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const days = useExpiryThresholds();
  return (
    <PagedTable
      of={list}
      columns={columnsOf(days)}
      keyOf={({ tenantId }) => tenantId}
      label="B2C tenants"
      empty="No tenants yet. Add a B2C or External ID tenant to monitor the expiry dates of its credentials."
    />
  );
}
