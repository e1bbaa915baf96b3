import { Link, MessageBar, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { expiresWithin, WITHIN } from "../../parts/expires-within.ts";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { useSummary } from "./summary.ts";

const DAYS = 7;

/**
 * The second line of the Overview page: how many assets have expired or expire within a week, each number a link to the list that
 * it counts. Renders nothing for an empty inventory: the checklist then says what to do.
 */
export function ExpiredAndNext() {
  const summary = useSummary();
  // The same request as the list that the link opens, so that both show the same number. The summary counts only whole days.
  const next = api.useQuery("get", "/api/assets/discovery/assets", {
    params: { query: { ...expiresWithin(DAYS), counted: true, sort: "expiresOn", limit: 1 } },
  });
  // The card Expiring soon shows why the summary can't be read.
  if (next.error) return <QueryFailure of={next} />;
  if (!summary.data || !next.data || summary.data.assets === 0) return null;
  const { expired } = summary.data.byStatus;
  const { total, totalAtLeast } = next.data;
  const count = total ?? totalAtLeast ?? 0;
  const isExact = total !== null;
  return (
    <MessageBar intent={expired > 0 ? "error" : count > 0 ? "warning" : "success"} layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>
          <Link href={createHref("/inventory", { status: "expired", counted: "true" })}>
            {counted(expired, "asset")} expired
          </Link>
          ,{" "}
          <Link href={createHref("/inventory", { [WITHIN]: String(DAYS), counted: "true" })}>
            {isExact ? "" : "at least "}
            {count.toLocaleString()} {count === 1 ? "expires" : "expire"} within {DAYS} days
          </Link>
        </MessageBarTitle>
      </MessageBarBody>
    </MessageBar>
  );
}
