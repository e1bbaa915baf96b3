import { Link, makeStyles, tokens } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ChoiceField, TextField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { StatusBadge } from "../../parts/status.tsx";
import { Discover } from "./discover.tsx";
import { Rotate } from "./rotate.tsx";

type Application = Schemas["Application"];

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", alignItems: "flex-start", gap: tokens.spacingHorizontalM },
});

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
  const styles = useStyles();
  const [params, setParams] = useSearchParams();
  const search = params.get("search") ?? "";
  const rotatable = params.get("rotatable") === "true";
  const query = { limit: 50, ...(search && { search }), ...(rotatable && { rotatable: "true" as const }) };
  const list = api.useInfiniteQuery("get", "/api/automation/rotation/apps", { params: { query } }, BY_CURSOR);
  const set = (name: string, value: string) =>
    setParams((before) => {
      before.delete(name);
      if (value) before.set(name, value);
      return before;
    });
  return (
    <>
      <Discover />
      <form
        className={styles.filters}
        onSubmit={(event) => {
          event.preventDefault();
          set("search", String(new FormData(event.currentTarget).get("search") ?? ""));
        }}
      >
        <TextField name="search" label="Part of the name" hint="Enter searches" defaultValue={search} />
        <ChoiceField
          name="rotatable"
          label="Which"
          options={{ "": "all", true: "those that can be rotated" }}
          value={rotatable ? "true" : ""}
          choose={(value) => set("rotatable", value)}
        />
      </form>
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
