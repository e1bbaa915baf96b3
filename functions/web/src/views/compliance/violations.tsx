import { Accordion, AccordionHeader, AccordionItem, AccordionPanel, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { createHref } from "../../parts/address.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Exempt } from "../../parts/exempt.tsx";
import { type Filter, Filters, givenFilters } from "../../parts/filters.tsx";
import { ApiSentence, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { SEVERITIES, SeverityBadge } from "../../parts/status.tsx";

type Violation = Schemas["Violation"];
type Query = NonNullable<paths["/compliance/violations"]["get"]["parameters"]["query"]>;

const FILTERS = [
  { name: "severity", label: "Severity", values: SEVERITIES },
  { name: "exempted", label: "Exempt", values: { true: "Yes", false: "No" } },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
  { name: "owner", label: "Owner", placeholder: "Full owner tag" },
  { name: "hasOwner", label: "Has an owner", values: { true: "Yes", false: "No" } },
  { name: "subscription", label: "Subscription ID" },
  { name: "check", label: "Check ID", placeholder: "Such as secret-expired" },
] as const satisfies Filter[];

const COLUMNS: Column<Violation>[] = [
  {
    title: "Severity",
    cell: ({ severity }) => <SeverityBadge severity={severity} />,
  },
  { title: "Failed check", wide: true, cell: (violation) => <Details violation={violation} /> },
  {
    title: "Resource",
    // A vault has no page of its own. A credential outside key vaults has a title, because its name consists of IDs.
    cell: ({ resourceType, resourceId, resourceName, credentialTitle, vaultName }) =>
      resourceType === "vault" ? (
        resourceName
      ) : (
        <Link href={createHref(`/inventory/${encodeURIComponent(resourceId)}`)}>
          {vaultName !== null && `${vaultName}/`}
          {credentialTitle === null ? resourceName : isolated(credentialTitle)}
        </Link>
      ),
  },
  { title: "First found", cell: ({ firstSeenAt }) => <Instant at={firstSeenAt} relative /> },
];

/** The table of violations on the Compliance page, most severe first. The filters are in the address. */
export function Violations() {
  const [params] = useSearchParams();
  const frameworks = api.useQuery("get", "/compliance/frameworks");
  const options = frameworks.data?.items.map(({ id, name, version }) => [id, `${name} ${version}`] as const) ?? [];
  const filters = [...FILTERS, { name: "framework", label: "Framework", values: Object.fromEntries(options) }];
  const query: Query = { limit: 100, ...givenFilters(params, filters) };
  const list = api.useInfiniteQuery("get", "/compliance/violations", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Filters of={filters} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="Violations"
        empty="No violations match the filters. Clear the filters to see all violations."
      />
    </>
  );
}

/** The failed check. Expanded, the evidence, the remediation, the affected controls and the exemption button. */
function Details({ violation }: { violation: Violation }) {
  const { title, evidence, rationale, remediation, controls, exempted } = violation;
  return (
    <Accordion collapsible>
      <AccordionItem value="details">
        <AccordionHeader size="small">
          {title}
          {exempted && " (exempt)"}
        </AccordionHeader>
        <AccordionPanel>
          <Text block>
            <ApiSentence text={evidence} />
          </Text>
          <Text block>{rationale}</Text>
          <Text block>Azure portal: {remediation.portal}</Text>
          <Copyable label="Azure CLI" text={remediation.cli} />
          {remediation.bicep !== null && <Copyable label="Bicep" text={remediation.bicep} />}
          {controls.length > 0 && (
            <Text block>
              Controls that require this check:{" "}
              {controls.map(({ framework, control }) => `${framework} ${control}`).join(", ")}
            </Text>
          )}
          <Exempt violations={[violation]} />
        </AccordionPanel>
      </AccordionItem>
    </Accordion>
  );
}
