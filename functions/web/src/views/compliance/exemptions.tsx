import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

type Exemption = Schemas["Exemption"];

const COLUMNS: Column<Exemption>[] = [
  { title: "Check", cell: ({ checkId }) => checkId },
  { title: "Scope", cell: ({ scope }) => `${scope.type} ${scope.id ?? ""}` },
  { title: "Reason", cell: ({ reason, ticket }) => `${reason} ${ticket ?? ""}` },
  { title: "Expires", cell: ({ until, active }) => (active ? <Instant at={until} /> : "Expired") },
  { title: "Created by", cell: ({ createdBy }) => createdBy },
  { title: "", cell: (exemption) => <Remove exemption={exemption} /> },
];

export function Exemptions() {
  const list = api.useInfiniteQuery("get", "/compliance/exemptions", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Exemptions"
      empty="No exemptions. To exempt a violation, open it in the list above."
    />
  );
}

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
      <Text>Violations of {checkId} count toward the score again.</Text>
    </Operate>
  );
}
