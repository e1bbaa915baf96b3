import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { Discover } from "./discover.tsx";
import { Rotate } from "./rotate.tsx";

type Application = Schemas["Application"];

const FILTERS = [
  { name: "search", label: "Part of the name" },
  { name: "rotatable", label: "Can be rotated", values: { true: "yes", false: "no" } },
];

const COLUMNS: Column<Application>[] = [
  {
    title: "Application",
    cell: ({ appId, kind, displayName }) =>
      kind === "application" ? (
        <Link href={createHref(`/rotation/apps/${appId}`, {})}>{displayName}</Link>
      ) : (
        `${isolated(displayName)} (another tenant's)`
      ),
  },
  {
    title: "Owners",
    cell: ({ owners }) => owners?.map((one) => one.displayName ?? one.userPrincipalName ?? one.id).join(", "),
  },
  { title: "Signs in with", cell: (application) => <Credentials application={application} /> },
  {
    title: "Can be rotated",
    cell: ({ rotatable, reasons }) => (rotatable ? "yes" : reasons.map(({ message }) => message).join(" ")),
  },
];

/** The applications and what they sign in with. */
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
        none="No application was found."
      />
    </>
  );
}

/** Each credential with its end, and what may be done about it. */
export function Credentials({ application }: { application: Application }) {
  return application.credentials.map((credential) => (
    <div key={credential.keyId}>
      <StatusBadge status={credential.status} /> {credential.kind}{" "}
      {isolated(credential.displayName ?? credential.keyId)}, ends <Instant at={credential.expiresOn} relative />
      {application.rotatable && credential.kind === "secret" && (
        <Rotate application={application} credential={credential} />
      )}
    </div>
  ));
}
