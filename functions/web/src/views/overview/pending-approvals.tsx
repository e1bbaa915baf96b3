import { Link } from "@fluentui/react-components";
import { api } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";

/** The card of the Overview page with the number of requests that wait for approval. Renders nothing if there are none. */
export function PendingApprovals() {
  const pending = api.useQuery("get", "/approvals", { params: { query: { state: "pending", limit: 1 } } });
  if (pending.isPending || pending.data?.total === 0) return null;
  return (
    <Card title="Requests that wait for approval">
      <QueryResult of={pending}>
        {({ total }) => <Link href={createHref("/access")}>Review {counted(total ?? 1, "request")}</Link>}
      </QueryResult>
    </Card>
  );
}
