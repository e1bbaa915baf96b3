import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";

/**
 * States of a request that needs another administrator's approval. `pending` waits for a decision, `approved` for its use. The
 * others are final.
 */
export const APPROVAL_STATES = ["pending", "approved", "rejected", "used", "expired"] as const;

const approval = z.object({
  state: z.enum(APPROVAL_STATES),
  /** The effect of the request: the summary of its endpoint. */
  summary: z.string(),
  method: z.string(),
  /** Path with the request's parameters. */
  path: z.string(),
  /** Query and body without secrets, for the approver. */
  details: z.record(z.string(), z.unknown()),
  /**
   * HMAC of requester, endpoint, parameters, query and body, secrets included, and of the stored state that the request is
   * about: see `digestsOf`.
   */
  digest: z.string(),
  requestedBy: z.string(),
  /** `uid` of the requester, or the name of an Entra principal. */
  requesterId: z.string(),
  createdAt: z.string(),
  expiresAt: z.string(),
  decidedBy: z.string().optional(),
  /** `uid` of the administrator who approved or rejected. */
  deciderId: z.string().optional(),
  decidedAt: z.string().optional(),
  usedAt: z.string().optional(),
  /** A random ID of the last write, so that a write whose answer was lost recognizes itself. */
  writeId: z.string(),
});
export type ApprovalRecord = z.infer<typeof approval>;
export type ApprovalRow = Row<ApprovalRecord>;

/**
 * Requests that need another administrator's approval. Row key: a ULID. The rows are signed and listed, so that someone who can
 * only write tables can neither approve a request nor return a used approval. `adopted`: unsigned rows of earlier versions are
 * accepted until they are signed. `uniqueWrites`: no two writes of a row have the same value, because of `writeId`.
 */
export const Approvals = entity("Approvals", approval, {
  signed: "adopted",
  listed: true,
  uniqueWrites: true,
});
/** The only partition. */
export const APPROVALS = "approvals";
