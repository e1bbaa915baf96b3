import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { METHODS } from "./rule-words.ts";

type Entry = Schemas["AlertHistoryEntry"];

const STATUSES = {
  pending: "waiting",
  delivered: "delivered",
  partial: "partly delivered",
  failed: "failed",
  cancelled: "cancelled",
} as const satisfies Record<Entry["status"], string>;

const COLUMNS: Column<Entry>[] = [
  {
    title: "When",
    cell: ({ id, createdAt }) => (
      <Link href={createHref(`/alerts/history/${id}`, {})}>
        <Instant at={createdAt} />
      </Link>
    ),
  },
  { title: "Rule", cell: ({ ruleName, test }) => `${ruleName}${test ? " (test)" : ""}` },
  { title: "Told of", cell: ({ itemsTotal }) => itemsTotal.toLocaleString() },
  {
    title: "To",
    cell: ({ deliveryMethod, recipients }) =>
      recipients.map(({ recipient }) => recipient).join(", ") || METHODS[deliveryMethod],
  },
  {
    title: "Outcome",
    cell: ({ status, error, nextAttemptAt, recipients }) => (
      <>
        {STATUSES[status]} {error}
        {nextAttemptAt && (
          <>
            , tried again <Instant at={nextAttemptAt} relative />
          </>
        )}
        {[...new Set(recipients.map(({ waitsFor }) => waitsFor))].map((reason) => reason && ` ${reason}`)}
      </>
    ),
  },
];

const FILTERS = [{ name: "status", label: "Outcome", values: STATUSES }];

/** What was told, newest first, and what waits to be delivered. */
export function History() {
  const [params] = useSearchParams();
  const query = { limit: 50, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/alerts/history", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Filters of={FILTERS} />
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="History" none="Nothing was told yet." />
    </>
  );
}
