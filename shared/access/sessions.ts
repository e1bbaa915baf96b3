import { createHash } from "node:crypto";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { createEarlierSessions } from "./earlier-sessions.ts";
import {
  AFTER_USERS,
  isSignInValid,
  type SessionRecord,
  USERS_PARTITION,
  User,
  type UserRecord,
  type UserRow,
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";

/** Time without a request after which a session expires. */
const IDLE_TIMEOUT_MS = HOUR_MS;
/** Maximum lifetime of a session. */
const MAX_LIFETIME_MS = 12 * HOUR_MS;
/** Minimum time between two extensions of a session, so that not every request writes. */
const EXTENSION_INTERVAL_MS = 5 * MINUTE_MS;
/**
 * Number of random bytes of a session's secret, twice the minimum of
 * https://cheatsheetseries.owasp.org/cheatsheets/Session_Management_Cheat_Sheet.html.
 */
const SECRET_BYTES = 32;
/**
 * Maximum number of sessions of a user, which limits the size of the user's row. A further session replaces the least recently
 * used one.
 */
export const MAX_SESSIONS = 50;

/** A session that will be stored with the sign-in. */
export interface NewSession {
  id: string;
  cookie: Cookie;
  /** Returns the user's sessions with this session added. @param user - The user as the sign-in writes it. */
  sessionsWith(user: UserRecord): { sessions: SessionRecord[] };
}

/**
 * Browser sessions. A session is a random secret in a cookie; only its hash is stored, in the user's row. The cookie names the
 * user, so that one read verifies it. Sign-ins create sessions, and the service's authentication calls `find` for each request
 * with a cookie.
 */
export interface Sessions {
  /** Creates a session with a new secret. @param details - Stored with the session. */
  begin(
    user: string,
    details: Pick<SessionRecord, "by" | "provider" | "authenticatedAt" | "userAgent"> & { caller: Caller },
  ): NewSession;
  /**
   * Returns the session of a cookie, or undefined if it is not valid. Costs one read of the user's row, and at most every five
   * minutes one write that extends the session. A session that is not in the user's row costs another read, of the rows of
   * earlier versions.
   */
  find(
    cookie: string,
  ): Promise<(Pick<SessionRecord, "id" | "by" | "authenticatedAt"> & { since: Date; user: UserRow }) | undefined>;
  /** Lists the valid sessions of a user. */
  ofUser(user: UserRow): Promise<SessionRecord[]>;
  /** Ends a session. False if it does not exist. */
  end(user: UserRow, id: string): Promise<boolean>;
  /** Deletes expired sessions. */
  cleanUp(): Promise<void>;
}

export function createSessions(deps: {
  tables: Tables;
  users: Pick<Users, "find" | "change">;
  clock: Clock;
  randomness: Randomness;
  cookieName: string;
}): Sessions {
  const { tables, users, clock, randomness, cookieName } = deps;
  const earlierSessions = createEarlierSessions(tables);
  const nowMs = () => clock.now().getTime();

  /** Returns a session in the user's row, and the function that extends it. */
  function findInRow(user: UserRow, id: string): Awaited<ReturnType<typeof earlierSessions.find>> {
    const session = user.sessions?.find((candidate) => candidate.id === id);
    if (!session) return undefined;
    // Uses the ETag of the row that was read, so an extension can't restore a session that was just ended. After a conflict the
    // next request extends it.
    const extend = (idleEndsAt: string) => {
      const sessions = user.sessions!.map((stored) => (stored.id === id ? { ...stored, idleEndsAt } : stored));
      return undefinedIfChanged(tables.replace(User, { ...user, sessions }));
    };
    return { session, extend };
  }

  return {
    begin(user, { by, provider, authenticatedAt, userAgent, caller }) {
      const secret = Buffer.from(randomness.bytes(SECRET_BYTES)).toString("base64url");
      const maxAge = MAX_LIFETIME_MS / SECOND_MS;
      return {
        id: idOf(secret),
        cookie: sessionCookie(cookieName, `${Buffer.from(user).toString("base64url")}.${secret}`, maxAge),
        sessionsWith(after) {
          const startMs = Date.parse(after.lastSignInAt!);
          const otherSessions = (after.sessions ?? [])
            // Excludes this session itself, which is already stored if the response to the write was lost and the write is
            // repeated.
            .filter((stored) => stored.id !== idOf(secret) && isSessionValid(stored, after, startMs))
            .sort((first, second) => Date.parse(second.idleEndsAt) - Date.parse(first.idleEndsAt));
          const session = {
            id: idOf(secret),
            createdAt: after.lastSignInAt!,
            idleEndsAt: new Date(startMs + IDLE_TIMEOUT_MS).toISOString(),
            endsAt: new Date(startMs + MAX_LIFETIME_MS).toISOString(),
            by,
            ...(provider !== undefined && { provider }),
            ...(authenticatedAt !== undefined && { authenticatedAt }),
            ...(caller.address !== undefined && { address: caller.address }),
            ...(userAgent !== undefined && { userAgent }),
          };
          return { sessions: [session, ...otherSessions.slice(0, MAX_SESSIONS - 1)] };
        },
      };
    },

    async find(cookie) {
      const [encoded = "", secret = "", ...furtherParts] = cookie.split(".");
      const name = userKey(Buffer.from(encoded, "base64url").toString());
      if (furtherParts.length > 0 || !SECRET_OR_ID.test(secret)) return undefined;
      const id = idOf(secret);
      const user = await users.find(name);
      if (!user) return undefined;
      const session = findInRow(user, id) ?? (await earlierSessions.find(user, id));
      const requestMs = nowMs();
      if (!session || !isSessionValid(session.session, user, requestMs)) return undefined;
      const { idleEndsAt, endsAt, by, createdAt, authenticatedAt } = session.session;
      const nextIdleEndMs = Math.min(requestMs + IDLE_TIMEOUT_MS, Date.parse(endsAt));
      const isDue = Date.parse(idleEndsAt) - requestMs <= IDLE_TIMEOUT_MS - EXTENSION_INTERVAL_MS;
      // In the last hour of a session, the extension that reaches `endsAt` is the last one.
      if (isDue && nextIdleEndMs > Date.parse(idleEndsAt)) await session.extend(new Date(nextIdleEndMs).toISOString());
      return { id, by, authenticatedAt, since: new Date(createdAt), user };
    },

    async ofUser(user) {
      const userSessions = [...(user.sessions ?? []), ...(await earlierSessions.ofUser(user))];
      return userSessions.filter((session) => isSessionValid(session, user, nowMs()));
    },

    async end(user, id) {
      if (!SECRET_OR_ID.test(id)) return false;
      const changedUser = await users.change(user, (latest) => {
        if (!latest.sessions?.some((session) => session.id === id)) return undefined;
        return { ...latest, sessions: latest.sessions.filter((session) => session.id !== id) };
      });
      return changedUser !== undefined || (await earlierSessions.end(user, id));
    },

    async cleanUp() {
      const select = ["username", "sessions"] as const;
      const range = { partitionKey: USERS_PARTITION, before: AFTER_USERS, select, onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(User, range)) {
        for (const { username, sessions } of rows) {
          if (!sessions?.some((session) => isExpired(session, nowMs()))) continue;
          const user = await users.find(username);
          const unexpired = (latest: UserRow) => latest.sessions?.filter((session) => !isExpired(session, nowMs()));
          if (user) await users.change(user, (latest) => ({ ...latest, sessions: unexpired(latest) }));
        }
      }
      await earlierSessions.cleanUp(nowMs());
    },
  };
}

/** Matches 32 bytes in base64url: the secret of a session, or its hash, which is the session's ID. */
const SECRET_OR_ID = /^[\w-]{43}$/;

const idOf = (secret: string): string => createHash("sha256").update(secret).digest("base64url");

const isExpired = ({ idleEndsAt, endsAt }: SessionRecord, now: number): boolean =>
  Math.min(Date.parse(idleEndsAt), Date.parse(endsAt)) <= now;

/** Returns true if the session has not expired and the user's sign-ins were not revoked after it. */
const isSessionValid = (session: SessionRecord, user: UserRecord, now: number): boolean =>
  isSignInValid(user, new Date(session.createdAt)) && !isExpired(session, now);

/** Returns the session cookie. @param maxAge - Lifetime in seconds. 0 makes the browser delete the cookie. */
export const sessionCookie = (name: string, value: string, maxAge: number): Cookie => ({
  name,
  value,
  path: "/",
  maxAge,
  httpOnly: true,
  secure: true,
  sameSite: "Lax",
});
