import { Link } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { counted, countUnlessUnread } from "../../parts/plural.ts";
import type { ExpiryThresholds } from "../../parts/setting-value.ts";

type Tenant = Schemas["B2cTenant"];
type Counts = Tenant["counts"];

/**
 * Returns the numbers of a tenant's credentials by status, worst first, with the days of the settings in their titles. A tenant that an earlier version refreshed has no number of expired and
 * critical ones until its next refresh. `expiring` counts the critical credentials too.
 */
export const statusCounts = (days: ExpiryThresholds | undefined) => [
  { title: "Expired", status: "expired", countOf: (counts: Counts) => counts?.expired },
  {
    title: days ? `Expire within ${counted(days.critical, "day")}` : "Urgent",
    status: "critical",
    countOf: (counts: Counts) => counts?.critical,
  },
  {
    title: days ? `Expire later, within ${counted(days.warning, "day")}` : "Warning",
    status: "warning",
    countOf: (counts: Counts) => (counts?.critical === undefined ? undefined : counts.expiring - counts.critical),
  },
];

/** A number of a tenant's credentials, with a link to their list in the inventory. */
export function CredentialCount({
  of: { tenantId, failures },
  count,
  filters = {},
}: {
  of: Tenant;
  count: number | undefined;
  filters?: Record<string, string>;
}) {
  const text = countUnlessUnread(count, failures.length > 0);
  if (!count) return <>{text}</>;
  return <Link href={createHref("/inventory", { source: "b2c", b2cTenant: tenantId, ...filters })}>{text}</Link>;
}
