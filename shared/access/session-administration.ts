import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound } from "../platform/http/problem.ts";
import type { SessionView } from "./api.ts";
import { requestedUser } from "./api-tokens.ts";
import type { Sessions } from "./sessions.ts";
import { type SessionRecord, type UserRow, userKey } from "./user.ts";
import type { Users } from "./users.ts";

/** Lists and ends browser sessions, for the endpoints under /auth/sessions and the command line tool. */
export interface SessionAdministration {
  /**
   * Lists sessions, newest first: the actor's own, or another user's for an administrator.
   *
   * @throws {Problem} forbidden
   */
  list(actor: Actor, user: string | undefined, page: PageRequest): Promise<Page<SessionView>>;
  /** Ends a session: the actor's own, or any session for an administrator. @throws {Problem} notFound */
  end(actor: Actor, id: string, caller: Caller): Promise<void>;
}

export function createSessionAdministration(deps: {
  users: Users;
  sessions: Sessions;
  audit: Audit;
}): SessionAdministration {
  const { users, sessions, audit } = deps;
  return {
    async list(actor, name, page) {
      const user = await users.find(requestedUser(name, actor));
      const userSessions = user ? await sessions.ofUser(user) : [];
      /** Returns a key that sorts newer sessions first. */
      const newestFirst = ({ createdAt, id }: SessionRecord) =>
        `${Number.MAX_SAFE_INTEGER - Date.parse(createdAt)}${id}`;
      const sessionPage = pageOfAll(userSessions, page, newestFirst);
      return { ...sessionPage, items: sessionPage.items.map((session) => view(session, user!, actor)) };
    },

    async end(actor, id, caller) {
      const [user, sessionId] = [id.slice(0, id.lastIndexOf(".")), id.slice(id.lastIndexOf(".") + 1)];
      if (user !== userKey(actor.username) && actor.role !== "admin") throw notFound("This session");
      const event = { type: "session.ended", caller, target: { type: "session", id }, details: { user } };
      await audited(audit, event, async () => {
        const userRow = await users.find(user);
        if (!userRow || !(await sessions.end(userRow, sessionId))) throw notFound("This session");
      });
    },
  };
}

function view(session: SessionRecord, user: UserRow, { credential }: Actor): SessionView {
  const { id, createdAt, idleEndsAt, endsAt, by, address = null, userAgent = null } = session;
  return {
    id: `${user.rowKey}.${id}`,
    user: user.rowKey,
    current: credential.kind === "session" && credential.id === id,
    createdAt,
    idleEndsAt,
    endsAt,
    by,
    address,
    userAgent,
  };
}
