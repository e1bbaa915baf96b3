import { type Endpoint, mayCall, type Repeat, type RequestContext } from "../shared/platform/http/endpoint.ts";
import { callInProcess, type InProcessCaller, type RequestInput } from "../shared/platform/http/in-process.ts";
import { pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { Problem } from "../shared/platform/http/problem.ts";
import { ok, type Reply } from "../shared/platform/http/reply.ts";
import { ProposalParams, ProposalQuery, ProposalView } from "../shared/proposals/api.ts";
import { isSameDryRun } from "../shared/proposals/dry-run.ts";
import type { ProposalRow } from "../shared/proposals/proposal.ts";
import { endpoint } from "./declare.ts";
import { dryRunInput, dryRunOf } from "./mcp/changes.ts";
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
    "Returns the changes that assistants proposed, newest first. They are listed for 7 days after they expire. A page of large proposals has fewer than `limit`.",
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
      "Makes the dry run again. If it returns something else than the proposal shows, or if the proposer can no longer send the request, answers 409 and ends the proposal. Otherwise sends exactly the proposed request as you, once. Needs the role, the license and the confirmations that the request itself needs. Returns the proposal with the outcome of the request: `done`, or `failed` with its problem.",
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
 * Returns whether the proposer may still send the request: the user is the same and active, the API token was not revoked, and its
 * role is high enough. The service can't check a principal of Entra, whose token it does not keep.
 */
async function mayStillPropose(
  { proposedBy, proposerId, tokenId }: ProposalRow,
  proposed: Endpoint<Services>,
  { access }: Services,
): Promise<boolean> {
  if (tokenId === undefined) return true;
  const owner = await access.apiTokens.ownerOf(proposedBy, tokenId);
  return owner?.uid === proposerId && proposed.access !== "open" && mayCall(owner.role, proposed.access);
}

/** The dry run at an approval: its reply, or the problem with which the request itself would be rejected. */
type DryRunResult = { reply: Reply } | { rejected: Problem };

/** @throws {Problem} of the checks before the dry run, or if it is not possible now */
async function repeatDryRun(
  proposed: Endpoint<Services>,
  input: RequestInput,
  caller: InProcessCaller<Services>,
): Promise<DryRunResult> {
  let isAllowed = false;
  try {
    const reply = await callInProcess(proposed, dryRunInput(dryRunOf(proposed)!, input), caller, async () => {
      isAllowed = true;
    });
    return { reply };
  } catch (error) {
    if (isAllowed && error instanceof Problem && error.status < 500 && error.status !== 429) return { rejected: error };
    throw error;
  }
}

const CHANGED =
  "The dry run returns something else than at the time of the proposal, because something changed since. Nothing was done. Let the assistant propose it again.";
const NOT_ALLOWED_ANY_MORE =
  "The user who proposed this was disabled, deleted or has another role now, or the API token was revoked. Nothing was done.";

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
  const toolCaller = { actor, caller, origin, gate: services.gate, services, log };
  const expire = async (detail: string): Promise<never> => {
    await services.proposals.expire(row, detail, caller);
    throw new Problem("conflict", detail);
  };
  const dryRun = await repeatDryRun(proposed, input, toolCaller);
  if (!(await mayStillPropose(row, proposed, services))) return await expire(NOT_ALLOWED_ANY_MORE);
  if ("rejected" in dryRun) {
    const { status, code, message: detail } = dryRun.rejected;
    const used = await services.proposals.start(row, caller);
    return await services.proposals.end(used, { state: "failed", status, code, detail }, caller);
  }
  const dryRunEtag = dryRun.reply.headers?.ETag;
  if (!isSameDryRun(row, { dryRun: JSON.stringify(dryRun.reply.json ?? null), dryRunEtag }))
    return await expire(CHANGED);
  // A change after this dry run is rejected by the request itself, if it supports `If-Match`.
  const ifMatch = proposed.conditional ? dryRunEtag : undefined;
  let started: ProposalRow | undefined;
  let status: number;
  try {
    const reply = await callInProcess(proposed, { ...input, ifMatch }, toolCaller, async () => {
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
