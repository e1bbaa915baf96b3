import { SecondFactorGiven, SteppedUp } from "../shared/access/second-factor-api.ts";
import { ApprovalParams, ApprovalQuery, ApprovalView } from "../shared/approvals/api.ts";
import type { Endpoint, Repeat } from "../shared/platform/http/endpoint.ts";
import { pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints of the two confirmations that a guarded request can need: a step-up of the signed-in user, and the approval of
 * another administrator.
 */

const tag = "Confirmations";

const stepUp = endpoint({
  name: "stepUp",
  method: "POST",
  route: "auth/step-up",
  summary: "Confirm your identity with a second factor",
  description:
    "Confirms the token or session of this request for ten minutes, on every instance, so that it can send requests that return 403 `stepUpRequired`. Each code and challenge works once, and wrong ones count as failed sign-ins. Without a second factor in the body, returns 401 `secondFactorRequired` with `methods` and, for passkeys, `passkeyOptions`. Users of single sign-on without a second factor here sign in again instead: GET /auth/sso/login?prompt=login.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  body: SecondFactorGiven,
  example: { body: { totp: "123456" } },
  responds: { 200: SteppedUp },
  problems: ["secondFactorRequired", "secondFactorFailed", "stepUpRequired", "tooManyAttempts"],
  handle: async ({ body, actor, caller, services }) =>
    ok({ confirmedUntil: await services.access.stepUp.confirm(actor, body, caller) }),
});

/** A request that names an approval. */
const example = { params: { approval_id: "01J9Z3K7Q8X2V5B6N4M1C0D8FG" } };

const listApprovals = endpoint({
  name: "listApprovals",
  method: "GET",
  route: "approvals",
  summary: "List requests that need approval",
  description:
    "Returns the requests that were sent while the setting requireApproval was on, newest first. Final ones are listed for 30 days after they expire.",
  tag,
  access: "admin",
  tier: "core",
  query: ApprovalQuery,
  responds: { 200: pageOf(ApprovalView, "ApprovalList") },
  handle: async ({ query, services }) => ok(await services.approvals.list(query.state, pageRequest(query))),
});

const getApproval = endpoint({
  name: "getApproval",
  method: "GET",
  route: "approvals/{approval_id}",
  summary: "Get a request that needs approval",
  tag,
  access: "admin",
  tier: "core",
  params: ApprovalParams,
  example,
  responds: { 200: ApprovalView },
  problems: ["notFound"],
  handle: async ({ params, services }) => ok(await services.approvals.get(params.approval_id)),
});

/** A decision that is sent again with its `Idempotency-Key` is answered with the current approval. */
const repeat: Repeat<Services, unknown, ApprovalView> = {
  idOf: ({ id }) => id,
  answer: ({ id, services }) => services.approvals.get(id),
};

/** A decision needs no further approval, but the step-up that the request itself needs. */
const decision = {
  method: "POST",
  tag,
  access: "admin",
  tier: "core",
  interactive: true,
  params: ApprovalParams,
  example,
  guarded: () => "stepUp" as const,
  responds: { 200: ApprovalView },
  repeat,
  problems: ["notFound", "conflict"],
} as const;

const approve = endpoint({
  ...decision,
  name: "approveRequest",
  route: "approvals/{approval_id}/approve",
  summary: "Approve the request of another administrator",
  description:
    "The requester can then send exactly the same request again, once, until the approval expires. Returns 409 for your own request. The approval counts only while you are an active administrator.",
  handle: async ({ params, actor, caller, services }) =>
    ok(await services.approvals.approve(params.approval_id, actor, caller)),
});

const reject = endpoint({
  ...decision,
  name: "rejectRequest",
  route: "approvals/{approval_id}/reject",
  summary: "Reject a request or withdraw an approval",
  description: "Also withdraws your own request, and an approval that was not used yet.",
  handle: async ({ params, actor, caller, services }) =>
    ok(await services.approvals.reject(params.approval_id, actor, caller)),
});

export const endpoints: Endpoint<Services>[] = [stepUp, listApprovals, getApproval, approve, reject];
