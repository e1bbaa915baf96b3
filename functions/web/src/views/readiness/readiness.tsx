import { Badge, Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { DataTable } from "../../parts/data-table.tsx";
import { type Filter, Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { RENEWERS } from "../../parts/renewers.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";

type Item = Schemas["CertificateReadiness"];
type Summary = Schemas["CertificateReadinessSummary"];
type Problem = Item["problems"][number]["code"];
type Query = NonNullable<paths["/compliance/certificates/readiness"]["get"]["parameters"]["query"]>;

const FILTERS = [
  { name: "failing", label: "Problems", values: { true: "With problems", false: "Without problems" } },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
] as const satisfies Filter[];

const PROBLEMS = {
  importedByHand: "Imported by hand, no renewer is known",
  noRenewer: "No renewer is known",
  renewerStopped: "Renewal is late",
  pinnedConsumer: "A consumer names a version",
  keyNotExportable: "A consumer needs the private key, which can't be exported",
  noOwner: "No owner",
  triggerTooEarly: "The policy renews earlier than 47 days allow",
  orderNotMet: "Another validity was issued than ordered",
} as const satisfies Record<Problem, string>;

const useStyles = makeStyles({ link: { marginInlineEnd: tokens.spacingHorizontalM } });

const STATES = {
  ready: { text: "Ready", color: "success" },
  failing: { text: "Has problems", color: "warning" },
  unknown: { text: "Unknown", color: "informative" },
} as const;

const numberText = (value: number | undefined): string => (value === undefined ? "Unknown" : value.toLocaleString());

const COLUMNS: Column<Item>[] = [
  {
    title: "Certificate",
    wide: true,
    cell: ({ id, vaultName, name }) => (
      <Link href={createHref(`/inventory/${encodeURIComponent(id)}`, {})}>
        {vaultName}/{name}
      </Link>
    ),
  },
  {
    title: "State",
    nowrap: true,
    cell: ({ state }) => (
      <Badge appearance="tint" color={STATES[state].color}>
        {STATES[state].text}
      </Badge>
    ),
  },
  {
    title: "Problems",
    wide: true,
    cell: ({ problems }) =>
      problems.map(({ code, detail }) => (
        <Text key={code} block>
          {isolated(detail)}
        </Text>
      )),
  },
  { title: "Renewed by", cell: ({ renewedBy }) => RENEWERS[renewedBy] },
  {
    title: "Renewal due by",
    cell: ({ windowEnd }) => (windowEnd === null ? "Unknown" : <Instant at={windowEnd} />),
  },
  { title: "Validity in days", cell: ({ validityDays }) => numberText(validityDays ?? undefined) },
  { title: "Renewals a year", cell: ({ renewalsPerYear }) => numberText(renewalsPerYear?.today) },
  { title: "At 100 days", cell: ({ renewalsPerYear }) => numberText(renewalsPerYear?.at100Days) },
  { title: "At 47 days", cell: ({ renewalsPerYear }) => numberText(renewalsPerYear?.at47Days) },
];

/** The readiness of certificates for shorter lifetimes: how often they are renewed, who renews them, and what would fail. */
export default function Readiness() {
  const styles = useStyles();
  const [params] = useSearchParams();
  const query: Query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/compliance/certificates/readiness", { params: { query } }, BY_CURSOR);
  const summary = list.data?.pages[0]?.summary;
  return (
    <View title="Certificate readiness">
      <Card title="Renewals">
        <Text>
          Public certificates may be valid for 200 days, for 100 days from March 15, 2027, and for 47 days from March
          15, 2029. Private certificates keep their validity.
        </Text>
        {summary && <Sums summary={summary} />}
        <Text>
          Download all certificates:{" "}
          {(["csv", "pdf"] as const).map((format) => (
            <Link key={format} className={styles.link} href={`/compliance/certificates/readiness/${format}`}>
              {format.toUpperCase()}
            </Link>
          ))}
        </Text>
      </Card>
      <Card title="Certificates">
        <Filters of={FILTERS} />
        <PagedTable
          of={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          label="Certificates"
          empty="No enabled certificates of key vaults match the filters. Clear the filters to see all certificates."
        />
      </Card>
    </View>
  );
}

/** The sums over all certificates that match the vault filter. */
function Sums({ summary }: { summary: Summary }) {
  const { certificates, ready, failing, unknown, renewalsPerYear, withoutRenewals, byRenewer, byProblem } = summary;
  const { today, at100Days, at47Days } = renewalsPerYear;
  return (
    <>
      <Text block>
        {counted(certificates, "certificate")}: {ready.toLocaleString()} ready, {failing.toLocaleString()} with
        problems.
        {unknown > 0 && ` ${counted(unknown, "certificate")} unknown until a scan reads the details again.`}
      </Text>
      <Text block>
        Renewals a year: {today.toLocaleString()} today, {at100Days.toLocaleString()} at 100 days,{" "}
        {at47Days.toLocaleString()} at 47 days.
        {withoutRenewals > 0 &&
          ` Left out because the validity or the authority is unknown: ${counted(withoutRenewals, "certificate")}.`}
      </Text>
      {byRenewer.length > 0 && (
        <DataTable
          items={byRenewer}
          keyOf={({ renewedBy }) => renewedBy}
          label="Renewals by renewer"
          columns={[
            { title: "Renewed by", cell: ({ renewedBy }) => RENEWERS[renewedBy] },
            { title: "Certificates", cell: (one) => numberText(one.certificates) },
            { title: "Renewals a year", cell: (one) => numberText(one.renewalsPerYear.today) },
            { title: "At 100 days", cell: (one) => numberText(one.renewalsPerYear.at100Days) },
            { title: "At 47 days", cell: (one) => numberText(one.renewalsPerYear.at47Days) },
          ]}
        />
      )}
      {byProblem.length > 0 && (
        <DataTable
          items={byProblem}
          keyOf={({ code }) => code}
          label="Certificates by problem"
          columns={[
            { title: "Problem", wide: true, cell: ({ code }) => PROBLEMS[code] },
            { title: "Certificates", cell: (one) => numberText(one.certificates) },
          ]}
        />
      )}
      {!summary.consumersKnown && (
        <Text block>
          Consumers are not known, so pinned versions are missing. With PRO, discover dependencies to include them.
        </Text>
      )}
    </>
  );
}
