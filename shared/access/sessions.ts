import { createHash } from "node:crypto";
import * as z from "zod";
import type { Caller } from "../http/endpoint.ts";
import type { Cookie } from "../http/reply.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { unlessChanged } from "../storage/conflict.ts";
import { entity, type Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { insert, type Operation, RowChanged, type Tables } from "../storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../time.ts";
import { isUsername } from "./api.ts";
import { signInHolds, USERS_PARTITION, type UserRecord, type UserRow, uidOf, userKey } from "./user.ts";
import type { Users } from "./users.ts";

/** A session ends this long after its last request. */
const IDLE_MS = HOUR_MS;
/** And this long after the sign-in in any case. */
const LONGEST_MS = 12 * HOUR_MS;
/** Its end is moved no more often, so that not every request is a write. */
const MOVED_EVERY_MS = 5 * MINUTE_MS;
/** Bytes of a session's secret: twice what https://cheatsheetseries.owasp.org/cheatsheets/Session_Management_Cheat_Sheet.html asks for. */
const SECRET_BYTES = 32;

const session = z.object({
  /** Of the user it belongs to, who may have been deleted and made anew. */
  uid: z.string(),
  /** The sign-in's instant: what ends the user's tokens ends it too. */
  createdAt: z.string(),
  idleEndsAt: z.string(),
  endsAt: z.string(),
  by: z.enum(["password", "sso"]),
  address: z.string().optional(),
  /** What the browser says it is. */
  userAgent: z.string().optional(),
});
export type SessionRecord = z.infer<typeof session>;
export type SessionRow = Row<SessionRecord>;

/** Beside the users, so that a sign-in is one transaction. Row key: see `sessionKey`; the id is the secret's SHA-256. */
export const Session = entity("Users", session);
export const SESSIONS = "|session|";
export const sessionKey = (user: string, id: string): string => `${SESSIONS}${user}|${id}`;
export const idOfSession = ({ rowKey }: { rowKey: string }): string => rowKey.slice(rowKey.lastIndexOf("|") + 1);

/** A session that is about to be made. */
export interface NewSession {
  cookie: Cookie;
  /** To be written with the sign-in of the user. */
  operation(after: UserRecord): Operation;
}

/** Sessions of browsers: a random secret in a cookie, of which only the hash is stored. */
export interface Sessions {
  /** A new secret at every sign-in. @param how - What the list of sessions shows. */
  begin(user: string, how: Pick<SessionRecord, "by" | "userAgent"> & { caller: Caller }): NewSession;
  /**
   * Whose session a cookie stands for now, by one read of its row beside that of the user's; its idle end moves on at most
   * every five minutes. Undefined for whatever is no session that holds.
   */
  find(cookie: string): Promise<{ id: string; by: SessionRecord["by"]; since: Date; user: UserRow } | undefined>;
  /** Those of a user that hold now. */
  ofUser(user: UserRow): Promise<SessionRow[]>;
  /** Ends it. False when there is none. */
  end(user: string, id: string): Promise<boolean>;
  /** Removes those that have ended. */
  cleanUp(): Promise<void>;
}

export function createSessions(deps: {
  tables: Tables;
  users: Pick<Users, "find">;
  clock: Clock;
  randomness: Randomness;
  cookieName: string;
}): Sessions {
  const { tables, users, clock, randomness, cookieName } = deps;

  /** Moves the idle end on. A session that another request moves or ends in this moment is left to it. */
  async function used(row: SessionRow, now: number): Promise<void> {
    if (Date.parse(row.idleEndsAt) - now > IDLE_MS - MOVED_EVERY_MS) return;
    const idleEndsAt = new Date(Math.min(now + IDLE_MS, Date.parse(row.endsAt))).toISOString();
    await unlessChanged(tables.replace(Session, { ...row, idleEndsAt }));
  }

  return {
    begin(user, { by, userAgent, caller }) {
      const secret = Buffer.from(randomness.bytes(SECRET_BYTES)).toString("base64url");
      const maxAge = LONGEST_MS / SECOND_MS;
      return {
        cookie: sessionCookie(cookieName, `${Buffer.from(user).toString("base64url")}.${secret}`, maxAge),
        operation(after) {
          const at = Date.parse(after.lastSignInAt!);
          return insert(Session, sessionKey(user, idOf(secret)), {
            uid: uidOf(after),
            createdAt: after.lastSignInAt!,
            idleEndsAt: new Date(at + IDLE_MS).toISOString(),
            endsAt: new Date(at + LONGEST_MS).toISOString(),
            by,
            ...(caller.address !== undefined && { address: caller.address }),
            ...(userAgent !== undefined && { userAgent }),
          });
        },
      };
    },

    async find(cookie) {
      const [encoded = "", secret = "", ...more] = cookie.split(".");
      const name = userKey(Buffer.from(encoded, "base64url").toString());
      if (more.length > 0 || !SECRET.test(secret) || !isUsername(name)) return undefined;
      const id = idOf(secret);
      const [row, user] = await Promise.all([
        tables.get(Session, USERS_PARTITION, sessionKey(name, id)),
        users.find(name),
      ]);
      const now = clock.now().getTime();
      if (!row || !user || !holds(row, user, now)) return undefined;
      await used(row, now);
      return { id, by: row.by, since: new Date(row.createdAt), user };
    },

    async ofUser(user) {
      const prefix = sessionKey(user.rowKey, "");
      const held: SessionRow[] = [];
      const range = { partitionKey: USERS_PARTITION, from: prefix, before: keyEnd(prefix) };
      for await (const rows of tables.pages(Session, range)) {
        held.push(...rows.filter((row) => holds(row, user, clock.now().getTime())));
      }
      return held;
    },

    async end(user, id) {
      if (!ID.test(id) || !isUsername(user)) return false;
      return await tables.remove(Session, USERS_PARTITION, sessionKey(user, id));
    },

    async cleanUp() {
      const now = clock.now().getTime();
      const range = { partitionKey: USERS_PARTITION, from: SESSIONS, before: keyEnd(SESSIONS) };
      for await (const rows of tables.pages(Session, { ...range, select: ["idleEndsAt"] })) {
        for (const row of rows.filter(({ idleEndsAt }) => Date.parse(idleEndsAt) <= now)) {
          // One that was used in this moment keeps its row: the ETag no longer fits.
          await tables.remove(Session, USERS_PARTITION, row.rowKey, row.etag).catch((error: unknown) => {
            if (!(error instanceof RowChanged)) throw error;
          });
        }
      }
    },
  };
}

/** 32 bytes in base64url, as a secret and as its hash. */
const SECRET = /^[\w-]{43}$/;
const ID = SECRET;

const idOf = (secret: string): string => createHash("sha256").update(secret).digest("base64url");

/** Whether a session of this user holds: it is not over, and nothing that ends the user's sign-ins came after it. */
export function holds(row: SessionRecord, user: UserRecord, now: number): boolean {
  return (
    row.uid === uidOf(user) &&
    signInHolds(user, new Date(row.createdAt)) &&
    Date.parse(row.idleEndsAt) > now &&
    Date.parse(row.endsAt) > now
  );
}

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
