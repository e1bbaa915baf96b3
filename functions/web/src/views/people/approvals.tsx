import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { ExactJson } from "../../parts/exact-json.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";

const STATES = {
  pending: "Waiting for approval",
  approved: "Approved, not used yet",
  rejected: "Rejected",
  used: "Used",
  expired: "Expired",
} as const satisfies Record<Schemas["Approval"]["state"], string>;

const COLUMNS: Column<Schemas["Approval"]>[] = [
  { title: "Request", cell: ({ summary, method, path }) => `${summary} (${method} ${path})` },
  { title: "Requested by", cell: ({ requestedBy }) => requestedBy },
  { title: "Status", cell: ({ state, decidedBy }) => `${STATES[state]}${decidedBy === null ? "" : ` (${decidedBy})`}` },
  { title: "Expires", cell: ({ expiresAt }) => <Instant at={expiresAt} relative /> },
  {
    title: "",
    cell: (approval) => (
      <ButtonRow>
        {approval.state === "pending" && <Approve approval={approval} />}
        {(approval.state === "pending" || approval.state === "approved") && <Reject approval={approval} />}
      </ButtonRow>
    ),
  },
];

/** The card of the Access page with requests that need another administrator's approval. */
export function Approvals() {
  const list = api.useInfiniteQuery("get", "/approvals", { params: { query: { limit: 100 } } }, BY_CURSOR);
  return (
    <PagedTable
      of={list}
      columns={COLUMNS}
      keyOf={({ id }) => id}
      label="Approvals"
      empty={
        <>
          No requests. If the setting “Require approval of requests that can expose a secret” is on, such requests wait
          here until another administrator approves them. Example: a sync that copies secrets to another store.{" "}
          <Link href={createHref("/settings")}>Settings</Link>
        </>
      }
    />
  );
}

const Details = ({ approval: { requestedBy, method, path, details } }: { approval: Schemas["Approval"] }) => (
  <>
    <Text block>
      {requestedBy} sent {method} {path}:
    </Text>
    <ExactJson value={details} />
  </>
);

const Approve = ({ approval }: { approval: Schemas["Approval"] }) => (
  <Operate
    operation="approveRequest"
    title="Approve"
    kind="request"
    about={approval.summary}
    action="Approve request"
    submit={(_, approve) => approve({ params: { path: { approval_id: approval.id } } })}
  >
    <Details approval={approval} />
    <Text block>{approval.requestedBy} can then send exactly this request again, once.</Text>
  </Operate>
);

const Reject = ({ approval }: { approval: Schemas["Approval"] }) => (
  <Operate
    operation="rejectRequest"
    title="Reject"
    kind="request"
    about={approval.summary}
    action="Reject request"
    submit={(_, reject) => reject({ params: { path: { approval_id: approval.id } } })}
  >
    <Details approval={approval} />
    <Text block>The request can't be approved or used any more. {approval.requestedBy} can send it again.</Text>
  </Operate>
);
