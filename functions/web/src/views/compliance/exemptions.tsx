import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Exemption = Schemas["Exemption"];

const COLUMNS: Column<Exemption>[] = [
  { title: "Check", cell: ({ checkId }) => checkId },
  {
    title: "Scope",
    cell: ({ scope }) => (scope.type === "all" ? "All assets and vaults" : `${scope.type} ${scope.id ?? ""}`),
  },
  { title: "Reason", cell: ({ reason, ticket }) => `${reason} ${ticket ?? ""}` },
  { title: "Expires", cell: ({ until, active }) => (active ? <Instant at={until} /> : "Expired") },
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
