import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { deleteSecretCommand } from "../../parts/asset-commands.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { RotateConfirmed, RotationReadiness, rotationBlockers } from "../../parts/rotation-readiness.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { Discover } from "./discover.tsx";

type Application = Schemas["Application"];
type Credential = Schemas["ApplicationCredential"];

const useStyles = makeStyles({
  // The lines and buttons of one credential. The gap keeps a button apart from the button above.
  detailed: { display: "flex", flexDirection: "column", alignItems: "flex-start", gap: tokens.spacingVerticalS },
});

const FILTERS = [
  { name: "search", label: "Name contains" },
  { name: "rotatable", label: "Rotation", values: { true: "Possible", false: "Not possible" } },
];

const COLUMNS: Column<Application>[] = [
  {
    title: "Application",
    // A service principal, whose application another tenant registered, has no view of its own: it can't be rotated here.
    cell: ({ appId, kind, displayName }) =>
      kind === "application" ? (
        <Link href={createHref(`/rotation/apps/${appId}`)}>{displayName}</Link>
      ) : (
        `${isolated(displayName)} (registered in another tenant)`
      ),
  },
  {
    title: "Owners",
    cell: ({ owners }) =>
      owners === null
        ? "Unknown"
        : [...new Set(owners.filter(({ isService }) => !isService).map(ownerName))].join(", ") || "No owner",
  },
  { title: "Credentials", cell: (application) => <Credentials application={application} /> },
  {
    title: "Rotation",
    cell: ({ appId, displayName, reasons }) =>
      rotationBlockers({ reasons }).length === 0 ? (
        <Link href={createHref(`/rotation/apps/${appId}`)} aria-label={`Check what the rotation needs: ${displayName}`}>
          Check what the rotation needs
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

const CredentialLink = ({ credential: { assetId, displayName, keyId } }: { credential: Credential }) => (
  <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{isolated(displayName ?? keyId)}</Link>
);

const isClientSecret = ({ kind, of }: Credential): boolean => kind === "secret" && of === "application";

/**
 * Returns the client secret whose rotation is the main action of the application's page: of the secrets that have not expired,
 * the next one to expire. If all have expired, the one that expired last. Undefined if the application has none.
 */
function secretToRotateFirst({ credentials }: Application): Credential | undefined {
  const secrets = credentials
    .filter(isClientSecret)
    .sort((a, b) => (a.expiresOn ?? "9999").localeCompare(b.expiresOn ?? "9999"));
  return secrets.find(({ status }) => status !== "expired") ?? secrets.at(-1);
}

/** What to do with an expired client secret of an application that has another one: delete the expired one. */
function Superseded({
  application,
  expired,
  usable,
}: {
  application: Application;
  expired: Credential;
  /** The client secret that replaces the expired one. */
  usable: Credential;
}) {
  return (
    <div>
      <Text block>
        Nothing can sign in with an expired secret. Delete it if no application is still set up with it. Otherwise open
        the expired secret's page to rotate it. That does not replace "<CredentialLink credential={usable} />
        ", which expires <Instant at={usable.expiresOn} relative />.
        {usable.status !== "healthy" && " Rotate that secret too."}
      </Text>
      <Copyable
        label="Delete the expired secret (Azure CLI)"
        text={deleteSecretCommand(application.appId, expired.keyId)}
      />
      <Text size={200}>The command needs permission to change the application.</Text>
    </div>
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
  const styles = useStyles();
  const mainSecret = isDetailed ? secretToRotateFirst(application) : undefined;
  return application.credentials.map((credential) => {
    const isMain = credential === mainSecret && credential.status !== "healthy";
    // A rotation of an expired secret would leave the application's other secret as it is.
    const isSuperseded = mainSecret !== undefined && credential.status === "expired" && mainSecret.status !== "expired";
    return (
      <div key={credential.keyId} className={isDetailed ? styles.detailed : undefined}>
        <span>
          <StatusBadge status={credential.status} /> {credential.kind} "<CredentialLink credential={credential} />"
          {credential.status === "expired" ? ", expired " : ", expires "}
          <Instant at={credential.expiresOn} relative />
        </span>
        {isDetailed && isClientSecret(credential) && isSuperseded && (
          <Superseded application={application} expired={credential} usable={mainSecret} />
        )}
        {isDetailed && isClientSecret(credential) && !isSuperseded && (
          <>
            <RotationReadiness
              application={application}
              credential={credential}
              isOnApplicationPage
              isMainAction={isMain}
            />
            {rotationBlockers(application).length === 0 && (
              <RotateConfirmed
                application={application}
                credential={credential}
                {...(isMain && { appearance: "primary" })}
              />
            )}
          </>
        )}
      </div>
    );
  });
}
