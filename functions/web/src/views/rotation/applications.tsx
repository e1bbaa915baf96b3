import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { RotateConfirmed, RotationReadiness, rotationBlockers } from "../../parts/rotation-readiness.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { Discover } from "./discover.tsx";

type Application = Schemas["Application"];

const FILTERS = [
  { name: "search", label: "Name contains" },
  { name: "rotatable", label: "Rotation possible", values: { true: "Yes", false: "No" } },
];

const COLUMNS: Column<Application>[] = [
  {
    title: "Application",
    // A service principal, whose application another tenant registered, has no view of its own: it can't be rotated here.
    cell: ({ appId, kind, displayName }) =>
      kind === "application" ? (
        <Link href={createHref(`/rotation/apps/${appId}`, {})}>{displayName}</Link>
      ) : (
        `${isolated(displayName)} (registered in another tenant)`
      ),
  },
  {
    title: "Owners",
    cell: ({ owners }) => [...new Set(owners?.filter(({ isService }) => !isService).map(ownerName))].join(", "),
  },
  { title: "Credentials", cell: (application) => <Credentials application={application} /> },
  {
    title: "Rotation",
    cell: ({ appId, displayName, reasons }) =>
      rotationBlockers({ reasons }).length === 0 ? (
        <Link href={createHref(`/rotation/apps/${appId}`, {})} aria-label={`Check whether it is ready: ${displayName}`}>
          Check whether it is ready
        </Link>
      ) : (
        `Not possible. ${rotationBlockers({ reasons })
          .map(({ message }) => message)
          .join(" ")}`
      ),
  },
];

const ownerName = ({ id, displayName, userPrincipalName }: NonNullable<Application["owners"]>[number]): string =>
  userPrincipalName ?? displayName ?? id;

/** The table of Entra applications with their credentials, on the Rotation page. The filters are in the address. */
export function Applications() {
  const [params] = useSearchParams();
  const query = { limit: 50, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/automation/rotation/apps", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Discover />
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ objectId }) => objectId}
        label="Applications"
        empty="No applications match the filters. Clear the filters, or select Refresh applications to read them from Entra."
      />
    </>
  );
}

/**
 * The credentials of an application, each with its status and expiry date: a cell of the table above, and a card of the
 * application's own page, where client secrets have the next step of their rotation. The service can't rotate certificates.
 */
export function Credentials({
  application,
  isDetailed = false,
}: {
  application: Application;
  /** Whether to show the state of each secret's rotation and its next step, which need a request for each application. */
  isDetailed?: boolean;
}) {
  return application.credentials.map((credential) => {
    const isClientSecret = credential.kind === "secret" && credential.of === "application";
    return (
      <div key={credential.keyId}>
        <StatusBadge status={credential.status} /> {credential.kind} "
        <Link href={createHref(`/inventory/${encodeURIComponent(credential.assetId)}`)}>
          {isolated(credential.displayName ?? credential.keyId)}
        </Link>
        "{credential.status === "expired" ? ", expired " : ", expires "}
        <Instant at={credential.expiresOn} relative />{" "}
        {isDetailed && isClientSecret && (
          <>
            <RotationReadiness application={application} credential={credential} isOnApplicationPage />
            {rotationBlockers(application).length === 0 && (
              <RotateConfirmed application={application} credential={credential} />
            )}
          </>
        )}
      </div>
    );
  });
}
