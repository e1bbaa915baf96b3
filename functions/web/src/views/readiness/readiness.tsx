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
type ProblemCode = Item["problems"][number]["code"];
type Query = NonNullable<paths["/compliance/certificates/readiness"]["get"]["parameters"]["query"]>;

const FILTERS = [
  { name: "failing", label: "State", values: { true: "Not ready", false: "Ready or unknown" } },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
] as const satisfies Filter[];

/** Texts of the rows of the table "Certificates by problem". Each certificate has its own `detail` with numbers and names. */
const PROBLEMS = {
  importedByHand: "Imported by hand, and not renewed automatically",
  noRenewer: "Not renewed automatically",
  renewerStopped: "Renewal is late",
  pinnedConsumer: "A consumer uses a fixed version, so it does not follow a renewal",
  keyNotExportable: "A consumer needs the private key, which can't be exported",
  noOwner: "No owner",
  // The policy renews 47 or more days before the expiry, so a certificate of 47 days would be renewed as soon as it is issued.
  triggerTooEarly: "With a validity of 47 days, the policy would renew too often",
  // The policy orders a validity in months. The authority may ignore it.
  orderNotMet: "The authority issued another validity than the policy asks for",
} as const satisfies Record<ProblemCode, string>;

const useStyles = makeStyles({ link: { marginInlineEnd: tokens.spacingHorizontalM } });

const STATES = {
  ready: { text: "Ready", color: "success" },
  failing: { text: "Not ready", color: "warning" },
  unknown: { text: "Unknown", color: "informative" },
} as const;

const numberText = (value: number | undefined): string => (value === undefined ? "Unknown" : value.toLocaleString());

const COLUMNS: Column<Item>[] = [
  {
    title: "Certificate",
    cell: ({ id, vaultName, name }) => (
      <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>
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
  {
    title: "Validity (days)",
    cell: ({ validityDays, publiclyTrusted }) => (
      <>
        {numberText(validityDays ?? undefined)}
        <div>{publiclyTrusted === null ? "Public or private: unknown" : publiclyTrusted ? "Public" : "Private"}</div>
      </>
    ),
  },
  {
    title: "Renewals needed a year",
    cell: ({ renewalsPerYear }) => (renewalsPerYear === null ? "Unknown" : <Renewals perYear={renewalsPerYear} />),
  },
];

/** The renewals of one certificate a year: today, and under the limits of 100 and 47 days. */
const Renewals = ({ perYear }: { perYear: NonNullable<Item["renewalsPerYear"]> }) => (
  <>
    <div>Today: {perYear.today.toLocaleString()}</div>
    <div>If valid for 100 days: {perYear.at100Days.toLocaleString()}</div>
    <div>If valid for 47 days: {perYear.at47Days.toLocaleString()}</div>
  </>
);

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
          15, 2029. Private certificates keep their validity, so their renewals stay the same under these limits. A
          certificate is public if browsers trust its issuer. The list has enabled certificates of key vaults. A
          certificate is ready for these shorter validities if the service found no problem that affects its renewals,
          such as a late renewal or a missing owner.
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
  const [params] = useSearchParams();
  const vault = params.get("vault");
  /** Returns the link to the list below, with the vault filter to which the sums belong. */
  const listHref = (filters: Record<string, string> = {}) =>
    createHref("/compliance/readiness", { ...(vault && { vault }), ...filters });
  return (
    <>
      <Text block>
        <Link href={listHref()}>{counted(certificates, "certificate")}</Link>: {ready.toLocaleString()} ready,{" "}
        <Link href={listHref({ failing: "true" })}>{failing.toLocaleString()} not ready</Link>
        {unknown > 0 && `, ${unknown.toLocaleString()} unknown until a scan reads the details again`}.
      </Text>
      <Text block>
        Renewals needed a year: {today.toLocaleString()} today, {at100Days.toLocaleString()} if certificates may be
        valid for 100 days, {at47Days.toLocaleString()} if for 47 days.
        {withoutRenewals > 0 &&
          ` Not included: ${counted(withoutRenewals, "certificate")} with an unknown validity or authority.`}
      </Text>
      {byRenewer.length > 0 && (
        <DataTable
          items={byRenewer}
          keyOf={({ renewedBy }) => renewedBy}
          label="Renewals by renewer"
          columns={[
            { title: "Renewed by", cell: ({ renewedBy }) => RENEWERS[renewedBy] },
            { title: "Certificates", cell: (row) => numberText(row.certificates) },
            { title: "Renewals a year, today", cell: (row) => numberText(row.renewalsPerYear.today) },
            { title: "Renewals a year, valid for 100 days", cell: (row) => numberText(row.renewalsPerYear.at100Days) },
            { title: "Renewals a year, valid for 47 days", cell: (row) => numberText(row.renewalsPerYear.at47Days) },
          ]}
        />
      )}
      {byProblem.length > 0 && (
        <>
          <Text block>
            A certificate with several problems is counted in each of their rows. To filter by a problem, use the column
            problems of the CSV file.
          </Text>
          <DataTable
            items={byProblem}
            keyOf={({ code }) => code}
            label="Certificates by problem"
            columns={[
              { title: "Problem", wide: true, cell: ({ code }) => PROBLEMS[code] },
              { title: "Certificates", cell: (row) => numberText(row.certificates) },
            ]}
          />
        </>
      )}
      {!summary.consumersKnown && (
        <Text block>
          Problems of consumers, such as fixed versions, are missing, because the service does not know the consumers
          yet. Dependency discovery finds them, which needs a PRO license.
        </Text>
      )}
    </>
  );
}
