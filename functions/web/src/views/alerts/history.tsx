import { Field, Link, Select } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
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

/** What was told, newest first, and what waits to be delivered. */
export function History() {
  const [params, setParams] = useSearchParams();
  const status = (Object.keys(STATUSES) as Entry["status"][]).find((one) => one === params.get("status"));
  const query = { limit: 50, ...(status && { status }) };
  const list = api.useInfiniteQuery("get", "/alerts/history", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Field label="Outcome">
        <Select value={status ?? ""} onChange={(_, { value }) => setParams(value === "" ? {} : { status: value })}>
          <option value="">any</option>
          {Object.entries(STATUSES).map(([value, words]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </Select>
      </Field>
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="History" none="There is none." />
    </>
  );
}
