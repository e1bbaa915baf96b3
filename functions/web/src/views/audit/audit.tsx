import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Verification } from "./verification.tsx";

type Entry = Schemas["AuditEntry"];

const useStyles = makeStyles({
  link: { marginRight: tokens.spacingHorizontalM },
});

const FILTERS = [
  { name: "event_type", label: "Event" },
  { name: "actor", label: "Actor" },
  { name: "start_date", label: "From", type: "date" },
  { name: "end_date", label: "To", type: "date" },
] as const;

/** The audit log and its verification. */
export default function Audit() {
  const may = useMay();
  return (
    <View title="Audit log">
      {may("verifyAudit") && (
        <Card title="Verification">
          <Verification />
        </Card>
      )}
      <Card title="Entries">
        <Entries />
      </Card>
    </View>
  );
}

const COLUMNS: Column<Entry>[] = [
  { title: "Time", cell: ({ occurredAt }) => <Instant at={occurredAt} /> },
  { title: "Event", cell: ({ eventType }) => eventType },
  { title: "Outcome", cell: ({ outcome }) => outcome },
  { title: "Actor", cell: ({ actor, address }) => `${actor} ${address ?? ""}` },
  { title: "Target", cell: ({ target }) => target && `${target.type} ${target.id}` },
  { title: "Details", wide: true, cell: detailsOf },
];

function Entries() {
  const styles = useStyles();
  const may = useMay();
  const [params] = useSearchParams();
  const query = givenFilters(params, FILTERS);
  const list = api.useInfiniteQuery(
    "get",
    "/audit/entries",
    { params: { query: { limit: 100, ...query } } },
    BY_CURSOR,
  );
  return (
    <>
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="Entries"
        empty="No entries match the filters."
      />
      {may("exportAudit") && (
        <Text>
          Download these entries as{" "}
          {(["json", "csv", "pdf"] as const).map((format) => (
            <Link
              key={format}
              className={styles.link}
              href={`/audit/export?${new URLSearchParams({ ...query, format })}`}
            >
              {format.toUpperCase()}
            </Link>
          ))}
        </Text>
      )}
    </>
  );
}

function detailsOf({ details, before, after, count }: Entry) {
  const lines = [
    ...(count > 1 ? [`repeated ${count} times`] : []),
    ...linesOf("", details),
    ...linesOf("before: ", before),
    ...linesOf("after: ", after),
  ];
  return lines.length > 0 && lines.map((line) => <div key={line}>{line}</div>);
}

/** Returns a line per member of a details object. */
const linesOf = (prefix: string, members: Entry["details"]): string[] =>
  Object.entries(members ?? {}).map(
    ([name, value]) => `${prefix}${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
