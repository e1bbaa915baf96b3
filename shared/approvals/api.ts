import * as z from "zod";
import { pageParameters } from "../platform/http/paging.ts";
import { APPROVAL_STATES } from "./approval.ts";

// Schemas of requests that need another administrator's approval in the API.

const instant = z.iso.datetime();
const state = z.enum(APPROVAL_STATES).meta({
  description:
    "`pending`: waits for another administrator. `approved`: the requester can send the request again, once. `rejected`, `used` and `expired` are final.",
});

export const ApprovalView = z
  .object({
    id: z.string().meta({ description: "ID of the approval.", example: "01KAZ5S1J3V9Y6W8Q2M4N7P0RT" }),
    state,
    summary: z.string().meta({ description: "Effect of the request.", example: "Create an API token" }),
    method: z.string().meta({ description: "HTTP method of the request.", example: "POST" }),
    path: z.string().meta({ description: "Path of the request.", example: "/auth/tokens" }),
    details: z
      .record(z.string(), z.unknown())
      .meta({ description: "Query and body of the request, without secrets.", example: {} }),
    requestedBy: z
      .string()
      .meta({ description: "Username of the administrator who sent the request.", example: "maria.lopez" }),
    createdAt: instant,
    expiresAt: instant.meta({ description: "Time until which the request can be approved and sent again." }),
    decidedBy: z
      .string()
      .nullable()
      .meta({ description: "Username of the administrator who decided. Null before.", example: null }),
    decidedAt: instant.nullable().meta({ description: "Time of the decision. Null before." }),
    usedAt: instant.nullable().meta({ description: "Time at which the approved request was sent again. Null before." }),
  })
  .meta({ id: "Approval" });
export type ApprovalView = z.infer<typeof ApprovalView>;

export const ApprovalQuery = z.strictObject({ state: state.optional(), ...pageParameters });
export const ApprovalParams = z.object({
  approval_id: z.string().max(64).meta({
    description: "ID of the approval, from the problem `approvalRequired`.",
    example: "01KAZ5S1J3V9Y6W8Q2M4N7P0RT",
  }),
});
