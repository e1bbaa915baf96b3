import {
  Accordion,
  AccordionHeader,
  AccordionItem,
  AccordionPanel,
  Button,
  Field,
  Input,
  Link,
  makeStyles,
  Select,
  Text,
  tokens,
} from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { createHref } from "../../parts/address.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { SEVERITIES, SeverityBadge } from "../../parts/status.tsx";
import { Exempt } from "./exempt.tsx";

type Violation = Schemas["Violation"];
type Query = NonNullable<paths["/compliance/violations"]["get"]["parameters"]["query"]>;

/** The filters of the API, as the address has them. */
const TYPED = [
  ["vault", "Vault"],
  ["owner", "Owner"],
  ["check", "Check"],
] as const;

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, alignItems: "flex-end" },
});

const COLUMNS: Column<Violation>[] = [
  {
    title: "Severity",
    cell: ({ severity }) => <SeverityBadge severity={severity} />,
  },
  { title: "What", wide: true, cell: (violation) => <Details violation={violation} /> },
  {
    title: "Where",
    cell: ({ resourceType, resourceId, resourceName, vaultName }) =>
      resourceType === "vault" ? (
        resourceName
      ) : (
        <Link href={createHref(`/inventory/${encodeURIComponent(resourceId)}`, {})}>
          {vaultName !== null && `${vaultName}/`}
          {resourceName}
        </Link>
      ),
  },
  { title: "Since", cell: ({ firstSeenAt }) => <Instant at={firstSeenAt} relative /> },
];

/** By severity; the filter is in the address. */
export function Violations() {
  const [params, setParams] = useSearchParams();
  const styles = useStyles();
  const severity = SEVERITIES.find((one) => one === params.get("severity"));
  const framework = params.get("framework") as Query["framework"];
  const exempted = (["true", "false"] as const).find((one) => one === params.get("exempted"));
  const typed = Object.fromEntries(TYPED.flatMap(([name]) => (params.get(name) ? [[name, params.get(name)!]] : [])));
  const query: Query = {
    limit: 100,
    ...(severity && { severity }),
    ...(framework && { framework }),
    ...(exempted && { exempted }),
    ...typed,
  };
  const list = api.useInfiniteQuery("get", "/compliance/violations", { params: { query } }, BY_CURSOR);
  return (
    <>
      <form
        className={styles.filters}
        // What another link filled in is shown.
        key={params.toString()}
        onSubmit={(event) => {
          event.preventDefault();
          const form = new FormData(event.currentTarget);
          setParams(Object.fromEntries([...form].filter(([, value]) => value !== "") as [string, string][]));
        }}
      >
        <Field label="Severity" size="small">
          <Select size="small" name="severity" defaultValue={severity ?? ""}>
            <option value="">any</option>
            {SEVERITIES.map((value) => (
              <option key={value}>{value}</option>
            ))}
          </Select>
        </Field>
        <Field label="Exempted" size="small">
          <Select size="small" name="exempted" defaultValue={exempted ?? ""}>
            <option value="">both</option>
            <option value="false">no</option>
            <option value="true">yes</option>
          </Select>
        </Field>
        {TYPED.map(([name, label]) => (
          <Field key={name} label={label} size="small">
            <Input size="small" name={name} defaultValue={params.get(name) ?? ""} />
          </Field>
        ))}
        {framework && <input type="hidden" name="framework" value={framework} />}
        <Button size="small" type="submit">
          Filter
        </Button>
        <Button size="small" onClick={() => setParams({})}>
          Clear
        </Button>
      </form>
      {framework && <Text>Only what fails a control of {framework}.</Text>}
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="Violations" none="There is none." />
    </>
  );
}

function Details({ violation }: { violation: Violation }) {
  const { title, evidence, rationale, remediation, controls, exempted } = violation;
  return (
    <Accordion collapsible>
      <AccordionItem value="details">
        <AccordionHeader size="small">
          {title}
          {exempted && " (exempted)"}
        </AccordionHeader>
        <AccordionPanel>
          <Text block>{evidence}</Text>
          <Text block>{rationale}</Text>
          <Text block>In the portal: {remediation.portal}</Text>
          <Copyable label="By the command line" text={remediation.cli} />
          {remediation.bicep !== null && <Copyable label="By Bicep" text={remediation.bicep} />}
          {controls.length > 0 && (
            <Text block>{controls.map(({ framework, control }) => `${framework} ${control}`).join(", ")}</Text>
          )}
          <Exempt violation={violation} />
        </AccordionPanel>
      </AccordionItem>
    </Accordion>
  );
}
