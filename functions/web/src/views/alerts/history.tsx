import { Link } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { DELIVERY_STATUSES, METHODS } from "../../parts/notification-texts.ts";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";

type Entry = Schemas["AlertHistoryEntry"];

const COLUMNS: Column<Entry>[] = [
  {
    title: "Sent",
    cell: ({ id, createdAt }) => (
      <Link href={createHref(`/alerts/history/${id}`)}>
        <Instant at={createdAt} />
      </Link>
    ),
  },
  { title: "Rule", cell: ({ ruleName, test }) => `${ruleName}${test ? " (test)" : ""}` },
  { title: "Alerts", cell: ({ itemsTotal }) => itemsTotal.toLocaleString() },
  {
    title: "Recipients",
    cell: ({ deliveryMethod, recipients }) =>
      recipients.map(({ recipient }) => recipient).join(", ") || METHODS[deliveryMethod],
  },
  {
    title: "Status",
    cell: ({ status, error, nextAttemptAt, recipients }) => (
      <>
        {DELIVERY_STATUSES[status]} {error}
        {nextAttemptAt && (
          <>
            . Next attempt <Instant at={nextAttemptAt} relative />
          </>
        )}
        {/* Why mails wait: a rate limit. Several recipients can have the same reason. */}
        {[...new Set(recipients.map(({ waitsFor }) => waitsFor))].map((reason) => reason && ` ${reason}`)}
      </>
    ),
  },
];

const FILTERS = [
  { name: "status", label: "Status", values: DELIVERY_STATUSES },
  { name: "start_date", label: "Sent since", type: "date" as const },
];

/** The table of sent and pending notifications on the Alerts page, newest first. */
export function History() {
  const [params] = useSearchParams();
  const filters = givenFilters(params, FILTERS);
  const isFiltered = Object.keys(filters).length > 0;
  const query = { limit: 50, ...filters };
  const list = api.useInfiniteQuery("get", "/alerts/history", { params: { query } }, BY_CURSOR);
  return (
    <>
      <Filters of={FILTERS} />
      <PagedTable
        of={list}
        columns={COLUMNS}
        keyOf={({ id }) => id}
        label="Sent notifications"
        empty={
          isFiltered ? (
            "No notifications match the filters. Clear the filters to see all notifications."
          ) : (
            <NothingSent />
          )
        }
      />
    </>
  );
}

/** The empty state: when the rules are evaluated next. Rules without a digest are evaluated at the same time. */
function NothingSent() {
  const rules = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const enabledRules = (rules.data?.pages ?? []).flatMap(({ items }) => items).filter(({ enabled }) => enabled);
  const ruleId = (enabledRules.find(({ deliveryMode }) => deliveryMode !== "digest") ?? enabledRules[0])?.id;
  const options = { enabled: ruleId !== undefined };
  const params = { path: { rule_id: ruleId ?? "" } };
  const preview = api.useQuery("get", "/alerts/rules/{rule_id}/preview", { params }, options);
  const evaluatedAt = preview.data?.evaluatedAt;
  if (rules.data && ruleId === undefined)
    return "No notification was sent yet. No alert rule is enabled, so none will be sent.";
  return (
    <>
      No notification was sent yet. This does not mean that nothing expires: the first evaluation of a rule finds all
      existing problems.
      {evaluatedAt && (
        <>
          {" "}
          Next evaluation: <Instant at={evaluatedAt} relative />.
        </>
      )}
    </>
  );
}
