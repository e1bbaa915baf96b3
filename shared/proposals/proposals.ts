import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { LIST_PREFIX } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ProposalView } from "./api.ts";
import { PROPOSALS, type ProposalRecord, type ProposalRow, Proposals } from "./proposal.ts";

/** Time in which a proposal can be approved. */
const VALID_MS = DAY_MS;
/** Time for which a proposal is listed after it expires. */
const LISTED_MS = 30 * DAY_MS;
/** Maximum number of pending proposals of one user, which limits the list. */
const MAX_PENDING = 20;
/** Maximum number of proposals of one user in 24 hours. Rejected ones count, so that a program can't fill the list. */
const MAX_A_DAY = 100;

/** The parts of a proposal that its program decides. */
export type NewProposal = Pick<
  ProposalRecord,
  "endpoint" | "summary" | "method" | "path" | "params" | "query" | "body" | "dryRun" | "reason"
>;

/** The end of a change that was approved. */
export type ProposalEnd = Pick<ProposalRecord, "state" | "status" | "code" | "detail">;

/**
 * Changes that a program proposes and that a person approves. A proposal runs at most once: `start` writes that it was used before
 * the change runs. If the process crashes after that, the proposal stays `started`, and nothing runs it again.
 */
export interface ProposalService {
  /** Stores a proposal. @throws {Problem} conflict if the user has too many proposals */
  create(proposal: NewProposal, caller: Caller): Promise<ProposalView>;
  /** Lists proposals, newest first. */
  list(state: ProposalView["state"] | undefined, page: PageRequest): Promise<Page<ProposalView>>;
  /** Returns a proposal. @throws {Problem} notFound */
  get(id: string): Promise<ProposalView>;
  /** Returns the row of a proposal that can be approved. @throws {Problem} notFound, conflict if it was decided or expired */
  pending(id: string): Promise<ProposalRow>;
  /** Uses a proposal up, before its change runs. @throws {Problem} conflict if another request decided it first */
  start(row: ProposalRow, caller: Caller): Promise<ProposalRow>;
  /** Stores how the change of a started proposal ended. */
  end(row: ProposalRow, end: ProposalEnd, caller: Caller): Promise<ProposalView>;
  /** Rejects a proposal. @throws {Problem} notFound, conflict */
  reject(id: string, caller: Caller): Promise<ProposalView>;
  /** Deletes old proposals. */
  cleanUp(): Promise<void>;
}

/** Creates the proposals of programs. */
export function createProposals(deps: {
  tables: Tables;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
}): ProposalService {
  const { tables, audit, clock, randomness } = deps;
  /** Returns a new ID for each write, so that a write whose answer was lost recognizes itself. */
  const writeId = () => randomness.ulid(clock.now());

  /**
   * Returns all proposals. Their keys (ULIDs) sort before those of the partition's lists of rows, with which the tables detect
   * removed and older rows. A row that can't be read must not block other proposals. The tables report it.
   */
  async function readAll(): Promise<ProposalRow[]> {
    const all: ProposalRow[] = [];
    const range = { partitionKey: PROPOSALS, before: LIST_PREFIX, onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(Proposals, range)) all.push(...rows);
    return all;
  }

  async function read(id: string): Promise<ProposalRow> {
    const row = await tables.get(Proposals, PROPOSALS, id);
    if (!row) throw notFound("This proposal");
    return row;
  }

  async function pending(id: string): Promise<ProposalRow> {
    const row = await read(id);
    const state = stateOf(row, clock.now());
    if (state !== "pending") throw decided(state);
    return row;
  }

  /** Writes a decision on the row's ETag, between two audit entries. @throws {Problem} conflict after another decision */
  async function decide(row: ProposalRow, state: "started" | "rejected", caller: Caller): Promise<ProposalRow> {
    const decision = { state, decidedBy: caller.actor, decidedAt: clock.now().toISOString(), writeId: writeId() };
    const type = state === "started" ? "proposal.approved" : "proposal.rejected";
    try {
      return await audited(audit, eventOf(type, row.rowKey, row, caller), () =>
        tables.replace(Proposals, { ...row, ...decision }),
      );
    } catch (error) {
      if (isConflict(error)) throw decided((await read(row.rowKey)).state);
      throw error;
    }
  }

  return {
    async create(proposal, caller) {
      const now = clock.now();
      const own = (await readAll()).filter(({ proposedBy }) => proposedBy === caller.actor);
      if (own.filter((row) => stateOf(row, now) === "pending").length >= MAX_PENDING) {
        throw new Problem(
          "conflict",
          `You have ${MAX_PENDING} proposals that wait. Wait until a person decides on them.`,
        );
      }
      if (own.filter(({ createdAt }) => Date.parse(createdAt) > now.getTime() - DAY_MS).length >= MAX_A_DAY)
        throw new Problem(
          "conflict",
          `You made ${MAX_A_DAY} proposals in the last 24 hours. Wait before the next one.`,
        );
      const id = randomness.ulid(now);
      const record: ProposalRecord = {
        ...proposal,
        state: "pending",
        proposedBy: caller.actor,
        createdAt: now.toISOString(),
        expiresAt: new Date(now.getTime() + VALID_MS).toISOString(),
        writeId: writeId(),
      };
      const row = await audited(audit, eventOf("proposal.created", id, record, caller), () =>
        tables.insert(Proposals, PROPOSALS, id, record),
      );
      return proposalView(row, now);
    },

    async list(state, page) {
      const now = clock.now();
      const views = (await readAll()).map((row) => proposalView(row, now));
      const wanted = views.filter((view) => state === undefined || view.state === state);
      // `pageOfAll` sorts by this key: the newest first.
      return pageOfAll(wanted, page, ({ id, createdAt }) => `${Number.MAX_SAFE_INTEGER - Date.parse(createdAt)}${id}`);
    },

    get: async (id) => proposalView(await read(id), clock.now()),
    pending,
    start: (row, caller) => decide(row, "started", caller),

    async end(row, end, caller) {
      const outcome = end.state === "done" ? "success" : end.state === "failed" ? "refused" : "failure";
      const details = { status: end.status, ...(end.code !== undefined && { code: end.code }) };
      const ended = await tables.replace(Proposals, { ...row, ...end, writeId: writeId() });
      await audit.append({ ...eventOf("proposal.executed", row.rowKey, row, caller, details), outcome });
      return proposalView(ended, clock.now());
    },

    async reject(id, caller) {
      const row = await read(id);
      if (row.state === "rejected") return proposalView(row, clock.now());
      return proposalView(await decide(await pending(id), "rejected", caller), clock.now());
    },

    async cleanUp() {
      const oldest = clock.now().getTime() - LISTED_MS;
      for (const { rowKey, etag, expiresAt } of await readAll()) {
        if (Date.parse(expiresAt) < oldest) await tables.remove(Proposals, PROPOSALS, rowKey, etag);
      }
    },
  };
}

const decided = (state: ProposalView["state"]): Problem =>
  new Problem("conflict", `This proposal can't be decided any more: it is ${state}.`);

function eventOf(
  type: string,
  id: string,
  { method, path, proposedBy }: Pick<ProposalRecord, "method" | "path" | "proposedBy">,
  caller: Caller,
  details: Record<string, unknown> = {},
) {
  return {
    type,
    caller,
    target: { type: "proposal", id },
    details: { request: `${method} ${path}`, proposedBy, ...details },
  };
}

/** Returns the state of a proposal at a time: a pending proposal whose time has passed is expired. */
const stateOf = ({ state, expiresAt }: Pick<ProposalRow, "state" | "expiresAt">, now: Date) =>
  state === "pending" && Date.parse(expiresAt) <= now.getTime() ? ("expired" as const) : state;

/** Returns a proposal as the API shows it. */
function proposalView(row: ProposalRow, now: Date): ProposalView {
  const { rowKey: id, summary, method, path, query, body, dryRun, reason, proposedBy, createdAt, expiresAt } = row;
  const { decidedBy = null, decidedAt = null, status = null, code = null, detail = null } = row;
  return {
    id,
    state: stateOf(row, now),
    ...{ summary, method, path, query },
    ...(body !== undefined && { body: JSON.parse(body) as unknown }),
    dryRun: JSON.parse(dryRun) as unknown,
    ...{ reason, proposedBy, createdAt, expiresAt, decidedBy, decidedAt, status, code, detail },
  };
}
