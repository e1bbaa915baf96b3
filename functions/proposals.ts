import type { Endpoint, Repeat, RequestContext } from "../shared/platform/http/endpoint.ts";
import { callInProcess } from "../shared/platform/http/in-process.ts";
import { pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { Problem } from "../shared/platform/http/problem.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { ProposalParams, ProposalQuery, ProposalView } from "../shared/proposals/api.ts";
import type { ProposalRow } from "../shared/proposals/proposal.ts";
import { endpoint } from "./declare.ts";
import { dryRunOf } from "./mcp/changes.ts";
import type { Services } from "./services.ts";

// Endpoints of the changes that assistants propose (docs/mcp.md). Only a person in a browser can decide on a proposal.

const tag = "Assistants";
/** A request that names a proposal. */
const example = { params: { proposal_id: "01J9Z3K7Q8X2V5B6N4M1C0D8FG" } };

const listProposals = endpoint({
  name: "listProposals",
  method: "GET",
  route: "api/proposals",
  summary: "List proposed changes",
  description:
    "Returns the changes that assistants proposed, newest first. They are listed for 30 days after they expire.",
  tag,
  access: "operator",
  tier: "core",
  query: ProposalQuery,
  responds: { 200: pageOf(ProposalView, "ProposalList") },
  handle: async ({ query, services }) => ok(await services.proposals.list(query.state, pageRequest(query))),
});

const getProposal = endpoint({
  name: "getProposal",
  method: "GET",
  route: "api/proposals/{proposal_id}",
  summary: "Get a proposed change",
  tag,
  access: "operator",
  tier: "core",
  params: ProposalParams,
  example,
  responds: { 200: ProposalView },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(await services.proposals.get(params.proposal_id)),
});

/** A decision that is sent again with its `Idempotency-Key` is answered with the current proposal. */
const repeat: Repeat<Services, unknown, ProposalView> = {
  idOf: ({ id }) => id,
  answer: ({ id, services }) => services.proposals.get(id),
};

const decision = {
  method: "POST",
  tag,
  access: "operator",
  tier: "core",
  credential: "session",
  params: ProposalParams,
  example,
  responds: { 200: ProposalView },
  repeat,
} as const;

const reject = endpoint({
  ...decision,
  name: "rejectProposal",
  route: "api/proposals/{proposal_id}/reject",
  summary: "Reject a proposed change",
  problems: ["notFound", "conflict"],
  handle: async ({ params, caller, services }) => ok(await services.proposals.reject(params.proposal_id, caller)),
});

/** Declares the endpoints of proposals. An approval calls the endpoint of the change. */
export function proposals(allEndpoints: () => Promise<Endpoint<Services>[]>): { endpoints: Endpoint<Services>[] } {
  const approve = endpoint({
    ...decision,
    name: "approveProposal",
    route: "api/proposals/{proposal_id}/approve",
    summary: "Approve and run a proposed change",
    description:
      "Sends exactly the proposed request as you, once. Needs the role, the license and the confirmations that the request itself needs. Returns the proposal with the outcome of the request: `done`, or `failed` with its problem.",
    problems: ["notFound", "conflict", "licenseRequired", "stepUpRequired", "approvalRequired"],
    handle: async ({ params, ...context }) => {
      const row = await context.services.proposals.pending(params.proposal_id);
      const proposed = (await allEndpoints()).find(({ name }) => name === row.endpoint);
      if (!proposed || dryRunOf(proposed) === undefined)
        throw new Problem("conflict", "This version of the service does not accept this change from a proposal.");
      return ok(await runProposal(row, proposed, context));
    },
  });
  return { endpoints: [listProposals, getProposal, approve, reject] };
}

/**
 * Runs a proposal once. Before its handler runs, the proposal is stored as started: of two requests, one can store that, and after
 * a crash none can.
 *
 * @throws {Problem} of the checks before the change, which leave the proposal pending
 */
async function runProposal(
  row: ProposalRow,
  proposed: Endpoint<Services>,
  { actor, caller, origin, services, log }: Omit<RequestContext<Services, unknown, unknown, unknown>, "params">,
): Promise<ProposalView> {
  const body = row.body === undefined ? undefined : (JSON.parse(row.body) as unknown);
  const input = { params: row.params, query: row.query, body };
  let started: ProposalRow | undefined;
  let status: number;
  try {
    const toolCaller = { actor, caller, origin, gate: services.gate, services, log };
    const reply = await callInProcess(proposed, input, toolCaller, async () => {
      started = await services.proposals.start(row, caller);
    });
    status = reply.status;
  } catch (error) {
    if (started === undefined) throw error;
    // A problem rejects a request that changed nothing. Any other error may have had an effect.
    if (error instanceof Problem) {
      const { status, code, message: detail } = error;
      return await services.proposals.end(started, { state: "failed", status, code, detail }, caller);
    }
    await services.proposals.end(started, { state: "unknown" }, caller);
    throw error;
  }
  return await services.proposals.end(started!, { state: "done", status }, caller);
}
