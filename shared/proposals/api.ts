import * as z from "zod";
import { pageParameters } from "../platform/http/paging.ts";
import { PROPOSAL_STATES } from "./proposal.ts";

// Schemas of proposed changes in the API.

const instant = z.iso.datetime();
const state = z.enum(PROPOSAL_STATES).meta({
  description:
    "`pending`: waits for a person. `started`: a person approved the change, and it runs. If it stays `started`, the process crashed, and the change may have taken effect. `done`, `failed` (no effect), `unknown` (an effect is possible), `rejected` and `expired` are final.",
});

export const ProposalView = z
  .object({
    id: z.string().meta({ description: "ID of the proposal.", example: "01KAZ5S1J3V9Y6W8Q2M4N7P0RT" }),
    state,
    summary: z.string().meta({ description: "Effect of the change.", example: "Change performance settings" }),
    method: z.string().meta({ description: "HTTP method of the change.", example: "PUT" }),
    path: z.string().meta({ description: "Path of the change.", example: "/api/settings/performance" }),
    query: z.record(z.string(), z.string()).meta({ description: "Query parameters of the change.", example: {} }),
    body: z.unknown().optional().meta({ description: "Exact body of the change. Absent if it has none.", example: {} }),
    dryRun: z.unknown().meta({
      description:
        "The whole answer of the dry run at the time of the proposal. An approval makes the dry run again, and fails with 409 if its answer is another one.",
      example: {},
    }),
    reason: z.string().meta({
      description: "Why the change is proposed, in the words of the program. It can be wrong.",
      example: "Scans take longer than an hour.",
    }),
    proposedBy: z.string().meta({ description: "Username of the program's token.", example: "maria.lopez" }),
    createdAt: instant,
    expiresAt: instant.meta({ description: "Time until which the proposal can be approved." }),
    decidedBy: z
      .string()
      .nullable()
      .meta({ description: "Username of the person who decided. Null before.", example: null }),
    decidedAt: instant.nullable().meta({ description: "Time of the decision. Null before." }),
    status: z.int().nullable().meta({ description: "HTTP status of the change. Null until it ended.", example: null }),
    code: z
      .string()
      .nullable()
      .meta({ description: "Code of the problem that ended the proposal. Null without one.", example: null }),
    detail: z.string().nullable().meta({
      description: "Detail of the problem that ended the proposal. Null without one.",
      example: null,
    }),
  })
  .meta({ id: "Proposal" });
export type ProposalView = z.infer<typeof ProposalView>;

export const ProposalQuery = z.strictObject({ state: state.optional(), ...pageParameters });
export const ProposalParams = z.object({
  proposal_id: z.string().max(64).meta({
    description: "ID of the proposal.",
    example: "01J9Z3K7Q8X2V5B6N4M1C0D8FG",
  }),
});
