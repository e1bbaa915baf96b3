import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { DAY_MS } from "../../parts/time.ts";

type Exemption = Schemas["Exemption"];

const COLUMNS: Column<Exemption>[] = [
  { title: "Check", cell: ({ checkId }) => checkId },
  {
    title: "Scope",
    cell: ({ scope }) => <Scope of={scope} />,
  },
  { title: "Reason", cell: ({ reason, ticket }) => `${reason} ${ticket ?? ""}` },
  { title: "Expires", cell: ({ until, active }) => (active ? <LastDay until={until} /> : "Expired") },
  { title: "Created by", cell: ({ createdBy }) => createdBy },
  { title: "", cell: (exemption) => <Remove exemption={exemption} /> },
];

/** The table of exemptions on the Compliance page, including expired ones. */
export function Exemptions() {
  const list = api.useInfiniteQuery("get", "/compliance/exemptions", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Exemptions"
      empty="No exemptions. To exempt a violation from the score, open the violation in the list above and select Exempt violation."
    />
  );
}

/** The scope, with a link to the asset of an exemption for one asset. The name of a directory credential consists of IDs. */
function Scope({ of: { type, id } }: { of: Exemption["scope"] }) {
  if (type === "all" || id === null) return "All assets and vaults";
  if (type !== "asset") return `${type} ${id}`;
  const isCredential = /^(entra|b2c)\./.test(id);
  return (
    <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>
      {isCredential ? `Credential …${id.slice(-8)}` : id}
    </Link>
  );
}

/** The last day of an exemption that ends with a day in UTC, as the form sets it. Otherwise, the time of its end. */
function LastDay({ until }: { until: string }) {
  const end = new Date(until);
  if (end.getTime() % DAY_MS !== 0) return <Instant at={until} />;
  return <>{DATE.format(new Date(end.getTime() - DAY_MS))} (UTC)</>;
}

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeZone: "UTC" });

/** The button that removes an exemption. */
function Remove({ exemption: { id, checkId } }: { exemption: Exemption }) {
  return (
    <Operate
      operation="removeExemption"
      title="Remove exemption"
      about={checkId}
      action="Remove exemption"
      appearance="transparent"
      submit={(_, remove) => remove({ params: { path: { exemption_id: id } } })}
    >
      <Text>Violations of the check {checkId} lower the compliance score again from now on.</Text>
    </Operate>
  );
}
