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
  type SessionRecord,
  signInHolds,
  USERS_PARTITION,
  User,
  type UserRecord,
  type UserRow,
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";

/** A session ends this long after its last request. */
const IDLE_MS = HOUR_MS;
/** And this long after the sign-in in any case. */
const LONGEST_MS = 12 * HOUR_MS;
/** Its end is moved no more often, so that not every request is a write. */
const MOVED_EVERY_MS = 5 * MINUTE_MS;
/** Bytes of a session's secret: twice what https://cheatsheetseries.owasp.org/cheatsheets/Session_Management_Cheat_Sheet.html asks for. */
const SECRET_BYTES = 32;
/** Sessions that one user may have, which bounds the user's row; with one more the one that was used the longest ago ends. */
export const MAX_SESSIONS = 50;

/** A session that is about to be made. */
export interface NewSession {
  cookie: Cookie;
  /** The user's sessions with this one. @param after - The user as the sign-in leaves it otherwise. */
  begun(after: UserRecord): { sessions: SessionRecord[] };
}

/**
 * Sessions of browsers: a random secret in a cookie, of which only the hash is stored. The cookie names the user, in whose
 * row the session stands, so that one read says whether it holds.
 */
export interface Sessions {
  /** A new secret at every sign-in. @param how - What the list of sessions shows. */
  begin(user: string, how: Pick<SessionRecord, "by" | "userAgent"> & { caller: Caller }): NewSession;
  /**
   * Whose session a cookie stands for now, by one read of the user's row; its idle end moves on at most every five minutes,
   * which is one write. Undefined for whatever is no session that holds. What is not in the user's row is looked for where
   * earlier versions kept sessions, which is one read more.
   */
  find(cookie: string): Promise<{ id: string; by: SessionRecord["by"]; since: Date; user: UserRow } | undefined>;
  /** Those of a user that hold now. */
  ofUser(user: UserRow): Promise<SessionRecord[]>;
  /** Ends it. False when there is none. */
  end(user: UserRow, id: string): Promise<boolean>;
  /** Removes those that have ended. */
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
  const earlier = createEarlierSessions(tables);
  const now = () => clock.now().getTime();

  /** A session of the user's row and how its idle end is moved. */
  function inRow(user: UserRow, id: string): Awaited<ReturnType<typeof earlier.find>> {
    const session = user.sessions?.find((one) => one.id === id);
    if (!session) return undefined;
    // With the ETag of the row that was read: what ends the session in this moment stays, and the next request moves it.
    const move = (idleEndsAt: string) => {
      const sessions = user.sessions!.map((one) => (one.id === id ? { ...one, idleEndsAt } : one));
      return undefinedIfChanged(tables.replace(User, { ...user, sessions }));
    };
    return { session, move };
  }

  return {
    begin(user, { by, userAgent, caller }) {
      const secret = Buffer.from(randomness.bytes(SECRET_BYTES)).toString("base64url");
      const maxAge = LONGEST_MS / SECOND_MS;
      return {
        cookie: sessionCookie(cookieName, `${Buffer.from(user).toString("base64url")}.${secret}`, maxAge),
        begun(after) {
          const at = Date.parse(after.lastSignInAt!);
          const others = (after.sessions ?? [])
            // Not itself: a sign-in whose answer was lost is written again over what it wrote.
            .filter((one) => one.id !== idOf(secret) && holds(one, after, at))
            .sort((one, other) => Date.parse(other.idleEndsAt) - Date.parse(one.idleEndsAt));
          const session = {
            id: idOf(secret),
            createdAt: after.lastSignInAt!,
            idleEndsAt: new Date(at + IDLE_MS).toISOString(),
            endsAt: new Date(at + LONGEST_MS).toISOString(),
            by,
            ...(caller.address !== undefined && { address: caller.address }),
            ...(userAgent !== undefined && { userAgent }),
          };
          return { sessions: [session, ...others.slice(0, MAX_SESSIONS - 1)] };
        },
      };
    },

    async find(cookie) {
      const [encoded = "", secret = "", ...more] = cookie.split(".");
      const name = userKey(Buffer.from(encoded, "base64url").toString());
      if (more.length > 0 || !SECRET.test(secret)) return undefined;
      const id = idOf(secret);
      const user = await users.find(name);
      if (!user) return undefined;
      const found = inRow(user, id) ?? (await earlier.find(user, id));
      const at = now();
      if (!found || !holds(found.session, user, at)) return undefined;
      const { idleEndsAt, endsAt, by, createdAt } = found.session;
      if (Date.parse(idleEndsAt) - at <= IDLE_MS - MOVED_EVERY_MS) {
        await found.move(new Date(Math.min(at + IDLE_MS, Date.parse(endsAt))).toISOString());
      }
      return { id, by, since: new Date(createdAt), user };
    },

    async ofUser(user) {
      const all = [...(user.sessions ?? []), ...(await earlier.ofUser(user))];
      return all.filter((session) => holds(session, user, now()));
    },

    async end(user, id) {
      if (!ID.test(id)) return false;
      const without = await users.change(user, (latest) => {
        if (!latest.sessions?.some((one) => one.id === id)) return undefined;
        return { ...latest, sessions: latest.sessions.filter((one) => one.id !== id) };
      });
      return without !== undefined || (await earlier.end(user, id));
    },

    async cleanUp() {
      const range = { partitionKey: USERS_PARTITION, before: AFTER_USERS, select: ["username", "sessions"] as const };
      for await (const rows of tables.pages(User, range)) {
        for (const { username, sessions } of rows) {
          if (!sessions?.some((one) => isOver(one, now()))) continue;
          const user = await users.find(username);
          const left = (latest: UserRow) => latest.sessions?.filter((one) => !isOver(one, now()));
          if (user) await users.change(user, (latest) => ({ ...latest, sessions: left(latest) }));
        }
      }
      await earlier.cleanUp(now());
    },
  };
}

/** 32 bytes in base64url, as a secret and as its hash. */
const SECRET = /^[\w-]{43}$/;
const ID = SECRET;

const idOf = (secret: string): string => createHash("sha256").update(secret).digest("base64url");

const isOver = ({ idleEndsAt, endsAt }: SessionRecord, now: number): boolean =>
  Math.min(Date.parse(idleEndsAt), Date.parse(endsAt)) <= now;

/** Whether a session of this user holds: it is not over, and nothing that ends the user's sign-ins came after it. */
const holds = (session: SessionRecord, user: UserRecord, now: number): boolean =>
  signInHolds(user, new Date(session.createdAt)) && !isOver(session, now);

/** @param maxAge - Seconds; 0 makes the browser forget it. */
export const sessionCookie = (name: string, value: string, maxAge: number): Cookie => ({
  name,
  value,
  path: "/",
  maxAge,
  httpOnly: true,
  secure: true,
  sameSite: "Lax",
});
