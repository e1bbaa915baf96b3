import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import type { paths } from "../../api/schema.d.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { ExactJson } from "../../parts/exact-json.tsx";
import { type Filter, Filters, givenFilters } from "../../parts/filters.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { visibleText } from "../../parts/visible-text.ts";

type Proposal = Schemas["Proposal"];
type Query = NonNullable<paths["/api/proposals"]["get"]["parameters"]["query"]>;

const STATES = {
  pending: "Waiting for approval",
  started: "Approved, outcome unknown",
  done: "Done",
  failed: "Rejected by the service",
  unknown: "Failed, outcome unknown",
  rejected: "Rejected",
  expired: "Expired",
} as const satisfies Record<Proposal["state"], string>;

const FILTERS = [{ name: "state", label: "Status", values: STATES }] as const satisfies Filter[];

const COLUMNS: Column<Proposal>[] = [
  { title: "Change", cell: ({ summary, method, path }) => `${summary} (${method} ${isolated(path)})` },
  { title: "Reason", cell: ({ reason }) => isolated(visibleText(reason)) },
  { title: "Proposed by", cell: ({ proposedBy }) => isolated(proposedBy) },
  {
    title: "Status",
    cell: ({ state, decidedBy, detail }) =>
      `${STATES[state]}${decidedBy === null ? "" : ` (${decidedBy})`}${detail === null ? "" : `: ${detail}`}`,
  },
  { title: "Expires", cell: ({ expiresAt }) => <Instant at={expiresAt} relative /> },
  {
    title: "",
    cell: (proposal) =>
      proposal.state === "pending" && (
        <ButtonRow>
          <Approve proposal={proposal} />
          <Reject proposal={proposal} />
        </ButtonRow>
      ),
  },
];

/** The Proposals page: changes that assistants proposed, and the decisions on them. */
export default function Proposals() {
  const [params] = useSearchParams();
  const query: Query = { limit: 100, ...givenFilters(params, FILTERS) };
  const list = api.useInfiniteQuery("get", "/api/proposals", { params: { query } }, BY_CURSOR);
  return (
    <View title="Proposals">
      <Card title="Proposed changes">
        <Filters of={FILTERS} />
        <PagedTable
          of={list}
          columns={COLUMNS}
          keyOf={({ id }) => id}
          label="Proposals"
          empty={
            <>
              No proposals. An assistant that is connected with an API token can propose changes. They wait here until
              you approve or reject them. <Link href={createHref("/access")}>API tokens</Link>
            </>
          }
        />
      </Card>
    </View>
  );
}

/** The exact request, and what its dry run returned. */
const Details = ({ proposal }: { proposal: Proposal }) => {
  const { proposedBy, reason, method, path, query, body, dryRun } = proposal;
  const hasQuery = Object.keys(query).length > 0;
  return (
    <>
      <Text block>
        {isolated(proposedBy)} proposed this through an assistant. Reason: {isolated(visibleText(reason))}
      </Text>
      <Text block weight="semibold">
        Request
      </Text>
      <ExactJson value={{ method, path, ...(hasQuery && { query }), ...(body !== undefined && { body }) }} />
      <Text block weight="semibold">
        Dry run
      </Text>
      <ExactJson value={dryRun} />
    </>
  );
};

const Approve = ({ proposal }: { proposal: Proposal }) => (
  <Operate
    operation="approveProposal"
    title="Approve"
    kind="proposal"
    about={proposal.summary}
    action="Approve and run"
    submit={async (_, approve) => {
      const { state, detail } = await approve({ params: { path: { proposal_id: proposal.id } } });
      if (state === "done") return undefined;
      return detail === null ? `${STATES[state]}.` : `The service rejected the change: ${detail}`;
    }}
  >
    <Details proposal={proposal} />
    <Text block>The service sends exactly this request as you, once.</Text>
  </Operate>
);

const Reject = ({ proposal }: { proposal: Proposal }) => (
  <Operate
    operation="rejectProposal"
    title="Reject"
    kind="proposal"
    about={proposal.summary}
    action="Reject proposal"
    submit={(_, reject) => reject({ params: { path: { proposal_id: proposal.id } } })}
  >
    <Details proposal={proposal} />
    <Text block>The proposal can't be approved any more. The assistant can make another one.</Text>
  </Operate>
);
