import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId, UNNAMED_CREDENTIAL } from "../../parts/asset-name.ts";
import { isCredential } from "../../parts/dependency-texts.ts";
import { LastDay } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Exemption = Schemas["Exemption"];

/** Returns the columns. `titles`: titles of credentials by asset ID, whose IDs consist of GUIDs. */
const columnsOf = (titles: ReadonlyMap<string, string>): Column<Exemption>[] => [
  { title: "Check", cell: ({ checkId }) => checkId },
  { title: "Scope", cell: ({ scope }) => scopeOf(scope, titles) },
  { title: "Reason", cell: ({ reason, ticket }) => `${reason} ${ticket ?? ""}` },
  { title: "Expires", cell: ({ until, active }) => (active ? <LastDay until={until} /> : "Expired") },
  { title: "Created by", cell: ({ createdBy }) => createdBy },
  { title: "", cell: (exemption) => <Remove exemption={exemption} /> },
];

/** The table of exemptions on the Compliance page, including expired ones. */
export function Exemptions() {
  const list = api.useInfiniteQuery("get", "/compliance/exemptions", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const hasCredentials = list.data?.pages.some(({ items }) => items.some(({ scope }) => isCredential(scope.id ?? "")));
  // Only violations have the titles of credentials.
  const violations = api.useQuery(
    "get",
    "/compliance/violations",
    { params: { query: { exempted: true, limit: 1000 } } },
    { enabled: hasCredentials === true },
  );
  const titles = new Map(
    (violations.data?.items ?? []).map(({ resourceId, credentialTitle }) => [
      resourceId,
      credentialTitle ?? resourceId,
    ]),
  );
  return (
    <PagedTable
      of={list}
      columns={columnsOf(titles)}
      keyOf={({ id }) => id}
      label="Exemptions"
      empty="No exemptions. To exempt a violation from the score, open the violation in the list above and select Exempt from check."
    />
  );
}

/** Returns the scope as a link to its assets. Once the violation of a credential is fixed, its title is unknown. */
function scopeOf({ type, id }: Exemption["scope"], titles: ReadonlyMap<string, string>) {
  if (id === null) return "All assets and vaults";
  if (type === "subscription") return `Subscription ${id}`;
  if (type === "vault") return <Link href={createHref("/inventory", { vault: id })}>Vault {id}</Link>;
  const text = titleOfId(id, titles.get(id) ?? UNNAMED_CREDENTIAL);
  return <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>{text}</Link>;
}

/** The button that removes an exemption. */
function Remove({ exemption: { id, checkId } }: { exemption: Exemption }) {
  return (
    <Operate
      operation="removeExemption"
      title="Remove exemption"
      about={checkId}
      action="Remove exemption"
      submit={(_, remove) => remove({ params: { path: { exemption_id: id } } })}
    >
      <Text>Violations of the check {checkId} lower the compliance score again from now on.</Text>
    </Operate>
  );
}
