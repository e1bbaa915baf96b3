import { Badge, Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { Kept } from "../../parts/kept.tsx";
import { Offered } from "../../parts/offered.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { View } from "../../parts/view.tsx";
import { NewTenantFields, newTenantOf } from "./tenant-form.tsx";
import { STATE_COLORS } from "./words.ts";

const COLUMNS: Column<Schemas["B2cTenant"]>[] = [
  {
    title: "Tenant",
    cell: ({ tenantId, displayName }) => <Link href={createHref(`/b2c/${tenantId}`, {})}>{displayName}</Link>,
  },
  { title: "Domain", cell: ({ tenantDomain }) => tenantDomain },
  { title: "Type", cell: ({ tenantType }) => tenantType ?? "not known yet" },
  {
    title: "State",
    cell: ({ state }) => (
      <Badge appearance="tint" color={STATE_COLORS[state]}>
        {state}
      </Badge>
    ),
  },
  { title: "Ends soon", cell: ({ counts }) => counts?.expiring.toLocaleString() },
  { title: "Read", cell: ({ lastDiscoveredAt }) => <Instant at={lastDiscoveredAt} relative /> },
  { title: "Failure", cell: ({ failure }) => failure && `${failure.message} ${failure.remedy}` },
];

/** The tenants that customers and partners sign in to, whose credentials are watched. */
export default function B2c() {
  return (
    <View title="B2C tenants">
      <Offered
        operation="registerB2cTenant"
        isQuiet
        what="The credentials of the tenants that customers and partners sign in to are watched beside those of your key vaults."
      >
        <div>
          <Operate
            operation="registerB2cTenant"
            title="Add a tenant"
            action="Add"
            submit={(form, register) => register({ body: newTenantOf(form) })}
          >
            <NewTenantFields />
          </Operate>
        </div>
      </Offered>
      <Kept>
        <Tenants />
      </Kept>
    </View>
  );
}

function Tenants() {
  const list = api.useInfiniteQuery("get", "/b2c/tenants", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ tenantId }) => tenantId}
      label="B2C tenants"
      none="No tenant is added."
    />
  );
}
