import type { ApprovalView } from "./api.ts";
import type { ApprovalRow } from "./approval.ts";

/** Returns an approval as the API shows it. @param now - An open approval whose time has passed is shown as expired. */
export function approvalView(row: ApprovalRow, now: Date): ApprovalView {
  const { rowKey: id, summary, method, path, details, requestedBy, createdAt, expiresAt } = row;
  const { decidedBy = null, decidedAt = null, usedAt = null } = row;
  const times = { createdAt, expiresAt, decidedBy, decidedAt, usedAt };
  return { id, state: stateOf(row, now), summary, method, path, details, requestedBy, ...times };
}

/** Returns the state of an approval at a time. */
export function stateOf({ state, expiresAt }: Pick<ApprovalRow, "state" | "expiresAt">, now: Date) {
  const isOpen = state === "pending" || state === "approved";
  return isOpen && Date.parse(expiresAt) <= now.getTime() ? ("expired" as const) : state;
}
