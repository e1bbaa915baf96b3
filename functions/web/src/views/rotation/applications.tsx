import { Badge, Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useMemo, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { deleteSecretCommand } from "../../parts/asset-commands.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { RotateConfirmed, RotationReadiness, rotationBlockers } from "../../parts/rotation-readiness.tsx";
import { MATCH_MEANING } from "../../parts/rotation-texts.ts";
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
  { title: "Next step", cell: (application) => <NextStep application={application} /> },
];

/** What to do for the application, most urgent first, or why its secrets can't be rotated. */
function NextStep({ application }: { application: Application }) {
  const { appId, displayName } = application;
  const blockers = rotationBlockers(application);
  const main = secretToRotateFirst(application);
  const hasSuperseded = application.credentials.some((credential) => isSuperseded(credential, main));
  const href = createHref(`/rotation/apps/${appId}`);
  return (
    <>
      {main === undefined && application.kind === "application" ? (
        <CertificateSteps application={application} />
      ) : blockers.length > 0 ? (
        <>
          Rotation not possible. {blockers.map(({ message }) => message).join(" ")}{" "}
          {application.kind === "application" && (
            <Link href={href} aria-label={`Fix the cause: ${displayName}`}>
              Fix the cause
            </Link>
          )}
        </>
      ) : (
        <>
          {main?.status === "healthy" ? "Nothing is due. To rotate it anyway: " : ""}
          <Link href={href} aria-label={`Confirm which vault secret stores it, then rotate: ${displayName}`}>
            Confirm which vault secret stores it, then rotate
          </Link>
        </>
      )}
      {hasSuperseded && (
        <Text block>
          <Link href={href} aria-label={`Delete the expired secret if it is unused: ${displayName}`}>
            Delete the expired secret if it is unused
          </Link>
        </Text>
      )}
    </>
  );
}

/** The next step of an application with certificates only: to renew those that expire soon in Entra, on the certificate's page. */
function CertificateSteps({ application: { credentials } }: { application: Application }) {
  const due = credentials.filter(({ kind, status }) => kind === "certificate" && status !== "healthy");
  return (
    <>
      {due.map(({ assetId, keyId, displayName }) => (
        <Text key={keyId} block>
          <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>
            Renew the certificate in Microsoft Entra: {isolated(displayName ?? keyId)}
          </Link>
        </Text>
      ))}
      {due.length === 0 && "Nothing is due. "}
      The service rotates client secrets only, and this application has none.
    </>
  );
}

const ownerName = ({ id, displayName, userPrincipalName }: NonNullable<Application["owners"]>[number]): string =>
  userPrincipalName ?? displayName ?? id;

/** Number of applications in one response. The same as on the Credentials page, so that both pages share the response. */
const LIMIT = 1000;
/** Number of applications that are rendered at first, and with each "Load more". */
const ROWS = 50;

/**
 * The table of Entra applications with their credentials, on the Rotation page, those that are due first in front. The API lists
 * applications by name only, so the loaded ones are sorted here. The filters are in the address.
 */
export function Applications() {
  const [params] = useSearchParams();
  const [shown, setShown] = useState(ROWS);
  const query = { limit: LIMIT, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/automation/rotation/apps", { params: { query } }, BY_CURSOR);
  const loaded = useMemo(() => sortedByDue(list.data?.pages.flatMap(({ items }) => items) ?? []), [list.data]);
  const items = loaded.slice(0, shown);
  const table = {
    ...list,
    data: list.data && { pages: [{ items, nextCursor: null }], pageParams: [null] },
    hasNextPage: loaded.length > shown || list.hasNextPage,
    fetchNextPage: async () => {
      setShown(shown + ROWS);
      if (loaded.length <= shown + ROWS && list.hasNextPage) await list.fetchNextPage();
    },
  };
  return (
    <>
      {list.data && <Totals of={loaded} isIncomplete={list.hasNextPage} />}
      <Text>{MATCH_MEANING}</Text>
      <Discover />
      <Filters of={FILTERS} />
      <PagedTable
        of={table}
        columns={COLUMNS}
        keyOf={({ objectId }) => objectId}
        label="Applications"
        empty="No applications match the filters. Clear the filters, or select Refresh applications to read them from Entra."
      />
    </>
  );
}

/** How many applications need attention, and when they were last read. The list below starts with them. */
function Totals({ of: applications, isIncomplete }: { of: Application[]; isIncomplete: boolean }) {
  const countOf = (...statuses: Credential["status"][]) =>
    applications.filter((application) => {
      const due = dueCredential(application);
      return due !== undefined && statuses.includes(due.status);
    }).length;
  const lastSeenAt = applications.reduce((last, app) => ((app.lastSeenAt ?? "") > last ? app.lastSeenAt! : last), "");
  return (
    <Text>
      {isIncomplete && "At least "}
      {counted(applications.length, "application")}, soonest expiry first: {countOf("expired").toLocaleString()} with
      expired credentials only, {countOf("critical", "warning").toLocaleString()} whose credential expires soon.
      {lastSeenAt !== "" && (
        <>
          {" "}
          Last read from Entra <Instant at={lastSeenAt} relative />.
        </>
      )}
      {isIncomplete && " Not all applications are loaded. The order covers the loaded ones."}
    </Text>
  );
}

const CredentialLink = ({ credential: { assetId, displayName, keyId } }: { credential: Credential }) => (
  <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>{isolated(displayName ?? keyId)}</Link>
);

/** Returns the credentials, soonest expiry first. Credentials without an expiry are last. */
const sortedByExpiry = (credentials: readonly Credential[]): Credential[] =>
  [...credentials].sort((a, b) => (a.expiresOn ?? "9999").localeCompare(b.expiresOn ?? "9999"));

const isClientSecret = ({ kind, of }: Credential): boolean => kind === "secret" && of === "application";

/**
 * Returns the client secret whose rotation is the main action of the application's page: of the secrets that have not expired,
 * the next one to expire. If all have expired, the one that expired last. Undefined if the application has none.
 */
function secretToRotateFirst({ credentials }: Application): Credential | undefined {
  const secrets = sortedByExpiry(credentials.filter(isClientSecret));
  return secrets.find(({ status }) => status !== "expired") ?? secrets.at(-1);
}

/** Returns whether a client secret has expired and the application has a valid one, which is `main`. */
const isSuperseded = (credential: Credential, main: Credential | undefined): boolean =>
  isClientSecret(credential) && credential.status === "expired" && main !== undefined && main.status !== "expired";

/**
 * Returns the credential by which an application is due: the client secret to rotate first, or for an application without one, its
 * certificate that expires last.
 */
const dueCredential = (application: Application): Credential | undefined =>
  secretToRotateFirst(application) ?? sortedByExpiry(application.credentials).at(-1);

/** Returns the applications, soonest expiry first, then by name. Applications without an expiry are last. */
const sortedByDue = (applications: readonly Application[]): Application[] =>
  applications
    .map((application) => ({
      application,
      order: `${dueCredential(application)?.expiresOn ?? "9999"}\n${application.displayName.toLowerCase()}`,
    }))
    .sort((a, b) => (a.order < b.order ? -1 : 1))
    .map(({ application }) => application);

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
        This secret has expired, so no sign-in with it succeeds. Delete it if no consumer is still set up with it. "
        <CredentialLink credential={usable} />
        ", which expires <Instant at={usable.expiresOn} relative />, replaces it
        {usable.status === "healthy" ? "." : ", and is the one to rotate."}
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
  const mainSecret = secretToRotateFirst(application);
  return sortedByExpiry(application.credentials).map((credential) => {
    const isMain = credential === mainSecret && credential.status !== "healthy";
    // A rotation of an expired secret would leave the application's other secret unchanged.
    const isOld = isSuperseded(credential, mainSecret);
    return (
      <div key={credential.keyId} className={isDetailed ? styles.detailed : undefined}>
        <span>
          {isOld ? (
            <Badge appearance="tint" color="informative">
              expired, replaced
            </Badge>
          ) : (
            <StatusBadge status={credential.status} />
          )}{" "}
          {credential.kind} "<CredentialLink credential={credential} />"
          {credential.status === "expired" ? ", expired " : ", expires "}
          <Instant at={credential.expiresOn} relative />
        </span>
        {isDetailed && credential.kind === "certificate" && credential.status !== "healthy" && (
          <Text block>
            The service can't renew certificates of applications.{" "}
            <Link
              href={createHref(`/inventory/${encodeURIComponent(credential.assetId)}`)}
              aria-label={`Renew the certificate in Microsoft Entra: ${credential.displayName ?? credential.keyId}`}
            >
              Renew the certificate in Microsoft Entra
            </Link>
          </Text>
        )}
        {isDetailed && isOld && mainSecret && (
          <Superseded application={application} expired={credential} usable={mainSecret} />
        )}
        {isDetailed && isClientSecret(credential) && !isOld && (
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
