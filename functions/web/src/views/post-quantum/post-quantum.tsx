import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { DataTable } from "../../parts/data-table.tsx";
import { dayText } from "../../parts/dates.ts";
import { type Filter, Filters, givenFilters } from "../../parts/filters.tsx";
import { isolated } from "../../parts/isolated.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted } from "../../parts/plural.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";

type Item = Schemas["PostQuantumAsset"];
type Summary = Schemas["PostQuantumSummary"];
type Query = NonNullable<paths["/compliance/post-quantum"]["get"]["parameters"]["query"]>;

const FILTERS = [
  {
    name: "quantum",
    label: "Quantum computers",
    values: { vulnerable: "Break it", unknown: "Unknown", safe: "Not affected" },
  },
  { name: "type", label: "Type", values: { key: "Keys", certificate: "Certificates" } },
  { name: "vault", label: "Vault", placeholder: "Full vault name" },
] as const satisfies Filter[];

const STATES = {
  vulnerable: { text: "Quantum computers break it", color: "warning" },
  unknown: { text: "Unknown", color: "informative" },
  safe: { text: "Not affected", color: "success" },
} as const satisfies Record<Item["quantum"], unknown>;

const SOURCES = {
  tag: "by its tag",
  expiry: "its expiry",
  setting: "by default",
} as const satisfies Record<Item["protectUntilSource"], string>;

const STANDARDS = {
  nistIr8547: "NIST IR 8547",
  cnsa2: "CNSA 2.0",
  bsiTr02102: "BSI TR-02102",
} as const satisfies Record<Item["standards"][number]["standard"], string>;

const RULE_STATES = {
  allowed: "Allowed",
  deprecated: "Discouraged, but allowed",
  disallowed: "Not allowed",
} as const satisfies Record<Item["standards"][number]["state"], string>;

const day = (date: string): string => dayText(Date.parse(date));

/** Returns a standard's judgment, such as "NIST IR 8547: Allowed until Dec 31, 2035". */
function judgment({ standard, state, disallowedAfter }: Item["standards"][number]): string {
  const until =
    disallowedAfter === null
      ? ""
      : state === "disallowed"
        ? ` since ${day(disallowedAfter)}`
        : ` until ${day(disallowedAfter)}`;
  return `${STANDARDS[standard]}: ${RULE_STATES[state]}${until}`;
}

const COLUMNS: Column<Item>[] = [
  {
    title: "Asset",
    cell: ({ id, type, name, vaultName, credentialTitle }) => (
      <>
        <Link href={createHref(`/inventory/${encodeURIComponent(id)}`)}>
          {credentialTitle === null ? `${vaultName}/${name}` : isolated(credentialTitle)}
        </Link>{" "}
        ({type})
      </>
    ),
  },
  { title: "Algorithm", nowrap: true, cell: ({ algorithm }) => algorithm?.name ?? "Unknown" },
  {
    title: "Quantum computers",
    cell: ({ quantum }) => (
      <Badge appearance="tint" color={STATES[quantum].color}>
        {STATES[quantum].text}
      </Badge>
    ),
  },
  {
    title: "Must protect until",
    cell: ({ protectUntil, protectUntilSource, hasInvalidTag }) => (
      <>
        {day(protectUntil)} ({SOURCES[protectUntilSource]})
        {hasInvalidTag && <Text block>Its tag is neither a year nor a date.</Text>}
      </>
    ),
  },
  {
    title: "Standards",
    wide: true,
    cell: ({ standards }) =>
      standards.map((verdict) => (
        <Text key={verdict.standard} block>
          {judgment(verdict)}
        </Text>
      )),
  },
  { title: "Consumers", cell: ({ consumers }) => (consumers === null ? "Unknown" : consumers.toLocaleString()) },
];

/** Keys and certificates by how urgently they need algorithms that a quantum computer does not break. */
export default function PostQuantumReadiness() {
  const [params] = useSearchParams();
  const query: Query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/compliance/post-quantum", { params: { query } }, BY_CURSOR);
  const summary = list.data?.pages[0]?.summary;
  return (
    <View title="Post-quantum readiness">
      <Card title="Algorithms in use">
        <Text>
          A quantum computer breaks RSA and elliptic curves. The first assets in the list must protect the longest, then
          those with the most consumers. Data that is recorded today can be decrypted later.
        </Text>
        <Text>
          To set how long an asset must protect, add the tag that PROTECT_UNTIL_TAG names (protectUntil by default), for
          example protectUntil=2040. Keys without the tag use PROTECTION_YEARS from today, and certificates their
          expiration date. Both are environment settings of the service. Replace first what a standard does not allow.
        </Text>
        {summary && <Sums summary={summary} />}
        <Text>
          Download all keys and certificates: <Link href="/compliance/cbom">CycloneDX 1.7</Link>. A file has up to 5,000
          assets; the API has the next ones.
        </Text>
      </Card>
      <Card title="Keys and certificates">
        <Filters of={FILTERS} />
        <PagedTable
          of={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          label="Keys and certificates"
          empty="No enabled keys or certificates match the filters. Clear the filters to see all of them."
        />
      </Card>
    </View>
  );
}

/** The numbers of all assets that match the filters. */
function Sums({ summary }: { summary: Summary }) {
  const [params] = useSearchParams();
  const { assets, vulnerable, unknown, safe, byAlgorithm, consumersKnown } = summary;
  return (
    <>
      <Text block>
        {counted(assets, "key or certificate", "keys and certificates")}: quantum computers break{" "}
        {vulnerable.toLocaleString()}, {safe.toLocaleString()} not affected, {unknown.toLocaleString()} unknown.
      </Text>
      {unknown > 0 && (
        <Text block>
          Unknown: no scan could read the type and size of the key. The service may lack permission for the details, or
          the directory does not return them for credentials of applications and B2C tenants.{" "}
          <Link href={createHref("/compliance/post-quantum", { ...givenFilters(params, FILTERS), quantum: "unknown" })}>
            Show the {counted(unknown, "asset")} with an unknown algorithm
          </Link>
        </Text>
      )}
      {byAlgorithm.length > 0 && (
        <DataTable
          items={byAlgorithm}
          keyOf={({ algorithm }) => algorithm}
          label="Assets by algorithm"
          columns={[
            { title: "Algorithm", cell: ({ algorithm }) => algorithm },
            { title: "Assets", cell: (row) => row.assets.toLocaleString() },
          ]}
        />
      )}
      {!consumersKnown && (
        <Text block>
          The service does not know the consumers yet. Dependency discovery finds them, which needs a PRO license.
        </Text>
      )}
    </>
  );
}
