import { isDeepStrictEqual } from "node:util";
import type { Administrators } from "../access/administrators.ts";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { LIST_PREFIX } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ProposalView } from "./api.ts";
import { isSameDryRun } from "./dry-run.ts";
import { PROPOSALS, type ProposalRecord, type ProposalRow, Proposals } from "./proposal.ts";

/** Time in which a proposal can be approved. */
const VALID_MS = DAY_MS;
/** Time for which a proposal is listed after it expires. */
const LISTED_MS = 7 * DAY_MS;
/** Maximum number of pending proposals of one user, and of all users. */
const MAX_PENDING = 20;
const MAX_ALL_PENDING = 100;
/** Maximum number of proposals of one user in 24 hours. Rejected ones count, so that a program can't fill the list. */
const MAX_A_DAY = 50;
/** Maximum number of stored proposals. It limits the reads for each proposal and each page of the list. */
const MAX_STORED = 1000;
/** Rows of one read. A row has up to about 100,000 characters. */
const PAGE_SIZE = 50;
/** Characters of the bodies and dry runs on a page of the list, after which the page ends. */
const MAX_PAGE_CHARACTERS = 4_000_000;

/** The parts of a proposal that its program decides. */
export type NewProposal = Pick<
  ProposalRecord,
  "endpoint" | "summary" | "method" | "path" | "params" | "query" | "body" | "dryRun" | "dryRunEtag" | "reason"
>;

/** What the list needs of each proposal to choose those of a page. */
interface Listed {
  id: string;
  state: ProposalView["state"];
  createdAt: string;
  characters: number;
}

/** The end of a change that was approved. */
export type ProposalEnd = Pick<ProposalRecord, "state" | "status" | "code" | "detail">;

/**
 * Changes that a program proposes and that a person approves. A proposal runs at most once: `start` writes that it was used before
 * the change runs. If the process crashes after that, the proposal stays `started`, and nothing runs it again.
 */
export interface ProposalService {
  /**
   * Stores a proposal. Returns the actor's pending proposal of the same request with the same dry run instead, if there is one.
   *
   * @throws {Problem} conflict if the user has too many proposals, or if there are too many of all users
   */
  create(proposal: NewProposal, actor: Actor, caller: Caller): Promise<ProposalView>;
  /** Lists proposals, newest first. A page of large proposals has fewer than requested. */
  list(state: ProposalView["state"] | undefined, page: PageRequest): Promise<Page<ProposalView>>;
  /** Returns a proposal. @throws {Problem} notFound */
  get(id: string): Promise<ProposalView>;
  /** Returns the row of a proposal that can be approved. @throws {Problem} notFound, conflict if it was decided or expired */
  pending(id: string): Promise<ProposalRow>;
  /** Uses a proposal up, before its change runs. @throws {Problem} conflict if another request decided it first */
  start(row: ProposalRow, caller: Caller): Promise<ProposalRow>;
  /** Stores how the change of a started proposal ended. */
  end(row: ProposalRow, end: ProposalEnd, caller: Caller): Promise<ProposalView>;
  /** Ends a pending proposal that can't be approved any more. @throws {Problem} conflict if another request decided it first */
  expire(row: ProposalRow, detail: string, caller: Caller): Promise<void>;
  /** Rejects a proposal. @throws {Problem} notFound, conflict */
  reject(id: string, caller: Caller): Promise<ProposalView>;
  /** Deletes old proposals. */
  cleanUp(): Promise<void>;
}

/** Creates the proposals of programs. */
export function createProposals(deps: {
  tables: Tables;
  administrators: Pick<Administrators, "idOf">;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
}): ProposalService {
  const { tables, administrators, audit, clock, randomness } = deps;
  /** Returns a new ID for each write, so that a write whose answer was lost recognizes itself. */
  const writeId = () => randomness.ulid(clock.now());

  /**
   * Yields all proposals, oldest first, without keeping them in memory. Their keys (ULIDs) sort before those of the partition's
   * lists of rows, with which the tables detect removed and older rows. A row that can't be read must not block other proposals.
   * The tables report it.
   */
  async function* readAll(only?: (id: string) => boolean): AsyncGenerator<ProposalRow, void> {
    const range = { partitionKey: PROPOSALS, before: LIST_PREFIX, pageSize: PAGE_SIZE, onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(Proposals, { ...range, ...(only && { only }) })) yield* rows;
  }

  /** @throws {Problem} conflict */
  function requireRoom(count: { stored: number; pending: number; ownPending: number; ownOfDay: number }): void {
    const { stored, pending, ownPending, ownOfDay } = count;
    if (ownPending >= MAX_PENDING)
      throw tooMany(`You have ${MAX_PENDING} proposals that wait. Wait until a person decides on them.`);
    if (ownOfDay >= MAX_A_DAY)
      throw tooMany(`You made ${MAX_A_DAY} proposals in the last 24 hours. Wait before the next one.`);
    if (pending >= MAX_ALL_PENDING)
      throw tooMany(`${MAX_ALL_PENDING} proposals of all users wait. Wait until a person decides on them.`);
    if (stored >= MAX_STORED)
      throw tooMany(`The service keeps at most ${MAX_STORED} proposals. Wait until old ones are deleted.`);
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
    async create(proposal, actor, caller) {
      const now = clock.now();
      const proposerId = await administrators.idOf(actor);
      const tokenId = actor.credential.kind === "apiToken" ? actor.credential.id : undefined;
      const count = { stored: 0, pending: 0, ownPending: 0, ownOfDay: 0 };
      for await (const row of readAll()) {
        const isPending = stateOf(row, now) === "pending";
        const isOwn = row.proposerId === proposerId;
        // The program may not have received the answer to its first call.
        if (isOwn && isPending && row.tokenId === tokenId && isSameProposal(row, proposal))
          return proposalView(row, now);
        count.stored++;
        if (isPending) count.pending++;
        if (isOwn && isPending) count.ownPending++;
        if (isOwn && Date.parse(row.createdAt) > now.getTime() - DAY_MS) count.ownOfDay++;
      }
      requireRoom(count);
      const id = randomness.ulid(now);
      const record: ProposalRecord = {
        ...proposal,
        state: "pending",
        proposedBy: caller.actor,
        proposerId,
        ...(tokenId !== undefined && { tokenId }),
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
      const wanted: Listed[] = [];
      for await (const row of readAll()) {
        const listed = listedOf(row, now);
        if (state === undefined || listed.state === state) wanted.push(listed);
      }
      // `pageOfAll` sorts by this key: the newest first.
      const keyOf = ({ id, createdAt }: Listed) => `${Number.MAX_SAFE_INTEGER - Date.parse(createdAt)}${id}`;
      const full = pageOfAll(wanted, page, keyOf);
      const { items, ...rest } = pageOfAll(wanted, { ...page, limit: fittingItems(full.items) }, keyOf);
      const ids = new Set(items.map(({ id }) => id));
      const views = new Map<string, ProposalView>();
      for await (const row of readAll((id) => ids.has(id))) views.set(row.rowKey, proposalView(row, now));
      return { ...rest, limit: page.limit, items: items.flatMap(({ id }) => views.get(id) ?? []) };
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

    async expire(row, detail, caller) {
      const end = { state: "expired", code: "conflict", detail, writeId: writeId() } as const;
      try {
        await audited(audit, eventOf("proposal.expired", row.rowKey, row, caller, { reason: detail }), () =>
          tables.replace(Proposals, { ...row, ...end }),
        );
      } catch (error) {
        if (isConflict(error)) throw decided((await read(row.rowKey)).state);
        throw error;
      }
    },

    async reject(id, caller) {
      const row = await read(id);
      if (row.state === "rejected") return proposalView(row, clock.now());
      return proposalView(await decide(await pending(id), "rejected", caller), clock.now());
    },

    async cleanUp() {
      const oldest = clock.now().getTime() - LISTED_MS;
      for await (const { rowKey, etag, expiresAt } of readAll()) {
        if (Date.parse(expiresAt) < oldest) await tables.remove(Proposals, PROPOSALS, rowKey, etag);
      }
    },
  };
}

const tooMany = (detail: string): Problem => new Problem("conflict", detail);

/** Returns whether a stored proposal has the same request and dry run. The reason and times in the dry run may differ. */
const isSameProposal = (row: ProposalRow, { endpoint, path, query, body, dryRun, dryRunEtag }: NewProposal): boolean =>
  row.endpoint === endpoint &&
  row.path === path &&
  isDeepStrictEqual(row.query, query) &&
  row.body === body &&
  isSameDryRun(row, { dryRun, dryRunEtag });

const listedOf = (row: ProposalRow, now: Date): Listed => ({
  id: row.rowKey,
  state: stateOf(row, now),
  createdAt: row.createdAt,
  characters: row.dryRun.length + (row.body?.length ?? 0),
});

/** Returns how many of the items fit on a page, at least one. */
function fittingItems(items: readonly Listed[]): number {
  let characters = 0;
  const tooLarge = items.findIndex((item) => {
    characters += item.characters;
    return characters > MAX_PAGE_CHARACTERS;
  });
  return Math.max(1, tooLarge === -1 ? items.length : tooLarge);
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
    summary,
    method,
    path,
    query,
    ...(body !== undefined && { body: JSON.parse(body) as unknown }),
    dryRun: JSON.parse(dryRun) as unknown,
    reason,
    proposedBy,
    createdAt,
    expiresAt,
    decidedBy,
    decidedAt,
    status,
    code,
    detail,
  };
}
