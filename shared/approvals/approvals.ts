import type { Administrators } from "../access/administrators.ts";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Config } from "../platform/config/config.ts";
import type { GuardedRequest } from "../platform/http/admission.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { LIST_PREFIX } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ApprovalView } from "./api.ts";
import { APPROVALS, type ApprovalRecord, type ApprovalRow, Approvals } from "./approval.ts";
import { detailsOf, digestsOf, pathOf } from "./request-digest.ts";
import { approvalView, stateOf } from "./views.ts";

/** Time from the request in which it can be approved and sent again. */
const VALID_MS = DAY_MS;
/** Time for which a decided, used or expired approval is listed. */
const LISTED_MS = 30 * DAY_MS;
/** Maximum number of open requests of one requester, which limits the list. */
const MAX_OPEN = 20;
/** Maximum number of requests of one requester in 24 hours that were not used. Withdrawn ones count, so that they can't fill the list. */
const MAX_UNUSED = 100;
/** Attempts to write an approval while other requests write it. */
const ATTEMPTS = 5;

/**
 * The second person: with the setting requireApproval, a guarded request needs the approval of another administrator. An
 * approval is bound to the requester and the whole request, and can be used once within 24 hours.
 */
export interface ApprovalService {
  /**
   * Uses the approval of exactly this request up. Without one, stores the request for approval. The approval is used up before
   * the request runs, so that it can't run twice, also if the process crashes or the request fails.
   *
   * @throws {Problem} approvalRequired with the ID of the approval; conflict if the requester has too many open requests.
   */
  require(request: GuardedRequest): Promise<void>;
  /** Lists approvals, newest first. */
  list(state: ApprovalView["state"] | undefined, page: PageRequest): Promise<Page<ApprovalView>>;
  /** Returns an approval. @throws {Problem} notFound */
  get(id: string): Promise<ApprovalView>;
  /** Approves a request. @throws {Problem} notFound, conflict (the actor's own request, or no longer pending) */
  approve(id: string, actor: Actor, caller: Caller): Promise<ApprovalView>;
  /** Rejects a request, or withdraws an approval that was not used. @throws {Problem} notFound, conflict */
  reject(id: string, actor: Actor, caller: Caller): Promise<ApprovalView>;
  /** Records expired approvals in the audit log, and deletes old ones. */
  cleanUp(caller: Caller): Promise<void>;
}

/** Creates the approvals of guarded requests by a second administrator. */
export function createApprovals(deps: {
  tables: Tables;
  administrators: Administrators;
  audit: Audit;
  config: Pick<Config, "JWT_SIGNING_KEYS">;
  clock: Clock;
  randomness: Randomness;
}): ApprovalService {
  const { tables, administrators, audit, config, clock, randomness } = deps;
  /** Returns a new ID for each write, so that a write whose answer was lost recognizes itself. */
  const writeId = () => randomness.ulid(clock.now());

  /**
   * Returns all approvals. Their keys (ULIDs) sort before those of the partition's lists of rows, with which the tables detect
   * removed and older rows. A row that can't be read approves nothing, and must not block other requests. The tables report it.
   */
  async function readAll(): Promise<ApprovalRow[]> {
    const all: ApprovalRow[] = [];
    const range = { partitionKey: APPROVALS, before: LIST_PREFIX, onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(Approvals, range)) all.push(...rows);
    return all;
  }

  async function read(id: string): Promise<ApprovalRow> {
    const row = await tables.get(Approvals, APPROVALS, id);
    if (!row) throw notFound("This approval");
    return row;
  }

  /** Writes a change of an approval on its ETag, between two audit entries. */
  async function write(
    type: string,
    row: ApprovalRow,
    change: Partial<ApprovalRecord>,
    caller: Caller,
    details: Record<string, unknown> = {},
  ): Promise<ApprovalRow> {
    return await audited(audit, eventOf(type, row.rowKey, row, caller, details), () =>
      tables.replace(Approvals, { ...row, ...change, writeId: writeId() }),
    );
  }

  /** Uses an approval up. Returns false if the approver may no longer approve, which ends the approval. */
  async function use(row: ApprovalRow, caller: Caller): Promise<boolean> {
    // Compares unique IDs, because the name of the approver may belong to another user now.
    const approverId = await administrators.uidOf(row.decidedBy ?? "");
    if (approverId === undefined || approverId !== row.deciderId || approverId === row.requesterId) {
      await write("approval.expired", row, { state: "expired" }, caller, { reason: "approverNotAdministrator" });
      return false;
    }
    const details = { approvedBy: row.decidedBy };
    await write("approval.used", row, { state: "used", usedAt: clock.now().toISOString() }, caller, details);
    return true;
  }

  /** Stores a request for approval, and throws approvalRequired. Limits the requester's requests. */
  async function request(
    guarded: GuardedRequest,
    requesterId: string,
    digest: string,
    { open, unused }: { open: number; unused: number },
  ): Promise<never> {
    if (unused >= MAX_UNUSED) {
      throw new Problem(
        "conflict",
        `You sent ${unused} requests for approval in the last 24 hours that were not used. Wait until they expire.`,
      );
    }
    if (open >= MAX_OPEN) {
      throw new Problem(
        "conflict",
        `You have ${open} requests that wait for approval or use. Wait until they are decided or expire, or withdraw some: POST /approvals/{approval_id}/reject.`,
      );
    }
    const now = clock.now();
    const id = randomness.ulid(now);
    const record: ApprovalRecord = {
      state: "pending",
      summary: guarded.endpoint.summary,
      method: guarded.endpoint.method,
      path: pathOf(guarded),
      details: detailsOf(guarded),
      digest,
      requestedBy: guarded.actor.username,
      requesterId,
      createdAt: now.toISOString(),
      expiresAt: new Date(now.getTime() + VALID_MS).toISOString(),
      writeId: writeId(),
    };
    await audited(audit, eventOf("approval.requested", id, record, guarded.caller), () =>
      tables.insert(Approvals, APPROVALS, id, record),
    );
    throw approvalRequired(id, record);
  }

  return {
    async require(guarded) {
      const requesterId = await administrators.idOf(guarded.actor);
      const digests = digestsOf(guarded, requesterId, config.JWT_SIGNING_KEYS);
      await repeatOnConflict(async () => {
        const now = clock.now();
        const ownRequests = (await readAll()).filter((row) => row.requesterId === requesterId);
        const openRequests = ownRequests.filter((row) => ["pending", "approved"].includes(stateOf(row, now)));
        const unused = ownRequests.filter(
          ({ state, expiresAt }) => state !== "used" && Date.parse(expiresAt) > now.getTime(),
        );
        const sameRequests = openRequests.filter(({ digest }) => digests.includes(digest));
        const approved = sameRequests.find(({ state }) => state === "approved");
        if (approved && (await use(approved, guarded.caller))) return;
        const pending = sameRequests.find(({ state }) => state === "pending");
        if (pending) throw approvalRequired(pending.rowKey, pending);
        // The first digest is that of the current key. Approvals of a former key stay usable.
        await request(guarded, requesterId, digests[0]!, { open: openRequests.length, unused: unused.length });
      }, ATTEMPTS);
    },

    async list(state, page) {
      const now = clock.now();
      const views = (await readAll()).map((row) => approvalView(row, now));
      // `pageOfAll` sorts by this key: the newest first.
      const wanted = views.filter((view) => state === undefined || view.state === state);
      return pageOfAll(wanted, page, ({ id, createdAt }) => `${Number.MAX_SAFE_INTEGER - Date.parse(createdAt)}${id}`);
    },

    get: async (id) => approvalView(await read(id), clock.now()),

    async approve(id, actor, caller) {
      const deciderId = await administrators.idOf(actor);
      const row = await repeatOnConflict(async () => {
        const current = await read(id);
        // The answer to an earlier request of the same user may have been lost.
        const isRepeated = current.state === "approved" && current.deciderId === deciderId;
        if (isRepeated && stateOf(current, clock.now()) === "approved") return current;
        if (deciderId === current.requesterId) {
          const problem = new Problem("conflict", "Another administrator must approve your request.");
          await audit.refused({
            ...eventOf("approval.approved", id, current, caller, { reason: "ownRequest" }),
            outcome: "refused",
          });
          throw problem;
        }
        requireState(current, ["pending"], clock);
        const decision = { decidedBy: actor.username, deciderId, decidedAt: clock.now().toISOString() };
        return await write("approval.approved", current, { state: "approved", ...decision }, caller);
      }, ATTEMPTS);
      return approvalView(row, clock.now());
    },

    async reject(id, actor, caller) {
      const deciderId = await administrators.idOf(actor);
      const row = await repeatOnConflict(async () => {
        const current = await read(id);
        if (current.state === "rejected") return current;
        requireState(current, ["pending", "approved"], clock);
        const decision = { decidedBy: actor.username, deciderId, decidedAt: clock.now().toISOString() };
        return await write("approval.rejected", current, { state: "rejected", ...decision }, caller);
      }, ATTEMPTS);
      return approvalView(row, clock.now());
    },

    async cleanUp(caller) {
      const now = clock.now();
      for (const row of await readAll()) {
        if (row.state !== "expired" && stateOf(row, now) === "expired") {
          await repeatOnConflict(async () => {
            const current = await read(row.rowKey);
            if (current.state !== "expired" && stateOf(current, now) === "expired")
              await write("approval.expired", current, { state: "expired" }, caller);
          }, ATTEMPTS);
        } else if (Date.parse(row.expiresAt) + LISTED_MS <= now.getTime()) {
          await tables.remove(Approvals, APPROVALS, row.rowKey);
        }
      }
    },
  };
}

/** Returns the audit event of an approval. */
const eventOf = (
  type: string,
  id: string,
  { summary, method, path, requestedBy }: ApprovalRecord,
  caller: Caller,
  more: Record<string, unknown> = {},
) => ({
  type,
  caller,
  target: { type: "approval", id },
  details: { summary, request: `${method} ${path}`, requestedBy, ...more },
});

function requireState(row: ApprovalRow, states: readonly string[], clock: Clock): void {
  const state = stateOf(row, clock.now());
  if (!states.includes(state)) throw new Problem("conflict", `This request can't be decided any more: it is ${state}.`);
}

const approvalRequired = (approvalId: string, { expiresAt }: Pick<ApprovalRecord, "expiresAt">): Problem =>
  new Problem(
    "approvalRequired",
    `Another administrator must approve this: ask one to open Access > Approvals, or POST /approvals/${approvalId}/approve. Then send exactly the same request again, until ${expiresAt}.`,
    { members: { approvalId, expiresAt } },
  );
