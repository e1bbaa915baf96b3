import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";

/**
 * States of a proposed change. `pending` waits for a decision. `started`: a person approved it, and the change runs or its
 * process crashed. The others are final: `done` (the change took effect), `failed` (the service rejected the change, which had
 * no effect), `unknown` (the change failed in a way that may have had an effect), `rejected` and `expired`.
 */
export const PROPOSAL_STATES = ["pending", "started", "done", "failed", "unknown", "rejected", "expired"] as const;

const proposal = z.object({
  state: z.enum(PROPOSAL_STATES),
  /** Name of the endpoint that the proposal calls. */
  endpoint: z.string(),
  /** The effect of the request: the summary of its endpoint. */
  summary: z.string(),
  method: z.string(),
  /** Path with the request's parameters. */
  path: z.string(),
  params: z.record(z.string(), z.string()),
  query: z.record(z.string(), z.string()),
  /** The exact body, as JSON text. Absent for a request without a body. */
  body: z.string().optional(),
  /** The whole answer of the dry run, as JSON text, and the ETag of what it describes, if it has one. */
  dryRun: z.string(),
  dryRunEtag: z.string().optional(),
  /** Why the change is proposed, in the words of the program that proposes it. */
  reason: z.string(),
  proposedBy: z.string(),
  /** The `uid` of the user, or the name of an Entra principal, because another user can get the name later. */
  proposerId: z.string(),
  /** ID of the API token. Absent for a token of Entra. */
  tokenId: z.string().optional(),
  createdAt: z.string(),
  expiresAt: z.string(),
  decidedBy: z.string().optional(),
  decidedAt: z.string().optional(),
  /** Status of the answer to the change, and the code and detail of its problem. */
  status: z.number().optional(),
  code: z.string().optional(),
  detail: z.string().optional(),
  /** A random ID of the last write, so that a write whose answer was lost recognizes itself. */
  writeId: z.string(),
});
export type ProposalRecord = z.infer<typeof proposal>;
export type ProposalRow = Row<ProposalRecord>;

/**
 * Changes that programs proposed and that a person approves. Row key: a ULID. The rows are signed and listed, so that someone who
 * can only write tables can neither change what a person approves nor return a used proposal. `uniqueWrites`: no two writes of a
 * row have the same value, because of `writeId`.
 */
export const Proposals = entity("Proposals", proposal, { signed: "adopted", listed: true, uniqueWrites: true });
/** The only partition. */
export const PROPOSALS = "proposals";
