import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { MINUTE_MS } from "../../parts/time.ts";
import { View } from "../../parts/view.tsx";
import { detailLines, eventText, OUTCOMES, targetText } from "./entry-texts.ts";
import { type AuditRow, joinOutcomes } from "./join-outcomes.ts";
import { Streams } from "./streams.tsx";
import { Verification } from "./verification.tsx";

const useStyles = makeStyles({
  link: { marginRight: tokens.spacingHorizontalM },
});

const FILTERS = [
  { name: "search", label: "Contains", placeholder: "Text in any column" },
  { name: "event_type", label: "Event", placeholder: "Exact, such as user.signedIn" },
  { name: "actor", label: "Actor", placeholder: "Exact username" },
  { name: "start_date", label: "From", type: "date" },
  { name: "end_date", label: "To", type: "date" },
] as const;

/** The Audit log page: the verification of the log, and its entries. */
export default function Audit() {
  const may = useMay();
  return (
    <View title="Audit log">
      {may("verifyAudit") && (
        <Card title="Verification">
          <Text>
            Checks that no signed entry of the audit log was changed, deleted or inserted. Changes nothing. The service
            signs new entries every 10 minutes.{" "}
            <Link href={createHref("/audit", { event_type: "audit.verified" })}>Earlier verifications</Link>
          </Text>
          <Verification />
        </Card>
      )}
      {may("listAuditStreams") && (
        <Card title="Streams">
          <Streams />
        </Card>
      )}
      <Card title="Entries">
        <Entries />
      </Card>
    </View>
  );
}

const COLUMNS: Column<AuditRow>[] = [
  { title: "Time", cell: ({ occurredAt }) => <Instant at={occurredAt} /> },
  {
    title: "Event",
    cell: ({ eventType }) => (
      <>
        {eventText(eventType)}
        <Text block size={200}>
          {eventType}
        </Text>
      </>
    ),
  },
  {
    title: "Outcome",
    cell: ({ outcome, startedAt, occurredAt }) => (
      <>
        {OUTCOMES[outcome]}
        {startedAt !== undefined && Date.parse(occurredAt) - Date.parse(startedAt) >= MINUTE_MS && (
          <Text block size={200}>
            Action started: <Instant at={startedAt} />
          </Text>
        )}
      </>
    ),
  },
  { title: "Actor", cell: ({ actor, address }) => `${actor} ${address ?? ""}` },
  { title: "Target", breaks: true, cell: ({ target }) => target && targetText(target) },
  { title: "Details", wide: true, folds: true, cell: detailsOf },
];

/** The entries that match the filters in the address, and links that download all of them. */
function Entries() {
  const styles = useStyles();
  const may = useMay();
  const [params] = useSearchParams();
  const query = givenFilters(params, FILTERS);
  const { search, ...exported } = query;
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
        rowsOf={joinOutcomes}
        empty={
          search === undefined
            ? "No entries match the filters. Events and actors must match exactly. Clear the filters to see all entries."
            : "No entries contain the text and match the other filters. Clear the filters to see all entries."
        }
      />
      {may("exportAudit") && (
        <Text>
          {search === undefined
            ? "Download all entries that match the filters: "
            : "Download all entries that match the filters, whether they contain the text or not: "}
          {(["json", "csv", "pdf"] as const).map((format) => (
            <Link
              key={format}
              className={styles.link}
              href={`/audit/export?${new URLSearchParams({ ...exported, format })}`}
            >
              {format.toUpperCase()}
            </Link>
          ))}
        </Text>
      )}
    </>
  );
}

/** Number of lines of details that are visible before "Show more". */
const VISIBLE_LINES = 4;

/** Returns the details and changes of an entry, one per line. */
function detailsOf(entry: AuditRow) {
  const lines = detailLines(entry).map((line) => <div key={line}>{line}</div>);
  // A button in place of a single line would save no space.
  if (lines.length <= VISIBLE_LINES + 1) return lines.length > 0 && lines;
  return (
    <>
      {lines.slice(0, VISIBLE_LINES)}
      <details>
        <summary>Show {lines.length - VISIBLE_LINES} more</summary>
        {lines.slice(VISIBLE_LINES)}
      </details>
    </>
  );
}
