import * as z from "zod";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type SessionRecord, USERS_PARTITION, type UserRecord, type UserRow, uidOf } from "./user.ts";

/**
 * A session row of an earlier version. Newer versions store sessions in the user's row, so these rows are only read, extended
 * and deleted. The last row expires 12 hours after the upgrade to a newer version.
 */
export const EarlierSession = entity(
  "Users",
  z.object({
    /** The `uid` of the user, who may have been deleted and created again since. */
    uid: z.string(),
    createdAt: z.string(),
    idleEndsAt: z.string(),
    endsAt: z.string(),
    by: z.enum(["password", "sso"]),
    address: z.string().optional(),
    userAgent: z.string().optional(),
  }),
  { signed: "adopted", listed: true },
);
type EarlierRow = Row<Omit<SessionRecord, "id"> & { uid: string }>;

const SESSIONS = "|session|";
export const earlierSessionKey = (user: string, id: string): string => `${SESSIONS}${user}|${id}`;

/** Sessions of earlier versions, in rows of their own. */
export interface EarlierSessions {
  /** Reads a session of the user, valid or not. Costs one read. */
  find(user: UserRow, id: string): Promise<ExtendableSession | undefined>;
  /** Lists the user's sessions of earlier versions, valid or not. */
  ofUser(user: UserRow): Promise<SessionRecord[]>;
  /** Deletes a session. False if it does not exist. */
  end(user: UserRow, id: string): Promise<boolean>;
  /** Deletes sessions whose idle timeout is over. */
  cleanUp(nowMs: number): Promise<void>;
}
/** A session of an earlier version, and the function that extends it. */
interface ExtendableSession {
  session: SessionRecord;
  /** Sets a new idle expiry. Does nothing if another request has extended or deleted the session. */
  extend(idleEndsAt: string): Promise<unknown>;
}

export function createEarlierSessions(tables: Tables): EarlierSessions {
  const idOf = ({ rowKey }: { rowKey: string }) => rowKey.slice(rowKey.lastIndexOf("|") + 1);
  const belongsTo = (row: EarlierRow, user: UserRecord) => row.uid === uidOf(user);

  return {
    async find(user, id) {
      const row = await tables.get(EarlierSession, USERS_PARTITION, earlierSessionKey(user.rowKey, id));
      if (!row || !belongsTo(row, user)) return undefined;
      const extend = (idleEndsAt: string) => undefinedIfChanged(tables.replace(EarlierSession, { ...row, idleEndsAt }));
      return { session: { ...row, id }, extend };
    },

    async ofUser(user) {
      const prefix = earlierSessionKey(user.rowKey, "");
      const sessions: SessionRecord[] = [];
      const range = { partitionKey: USERS_PARTITION, from: prefix, before: keyEnd(prefix) };
      for await (const rows of tables.pages(EarlierSession, range)) {
        sessions.push(...rows.filter((row) => belongsTo(row, user)).map((row) => ({ ...row, id: idOf(row) })));
      }
      return sessions;
    },

    end: (user, id) => tables.remove(EarlierSession, USERS_PARTITION, earlierSessionKey(user.rowKey, id)),

    async cleanUp(nowMs) {
      const range = { partitionKey: USERS_PARTITION, from: SESSIONS, before: keyEnd(SESSIONS) };
      for await (const rows of tables.pages(EarlierSession, {
        ...range,
        select: ["idleEndsAt"],
        onCorrupt: "leaveOut",
      })) {
        for (const { rowKey, etag, idleEndsAt } of rows) {
          // A session that was just used has another ETag, and its row stays.
          if (Date.parse(idleEndsAt) <= nowMs)
            await undefinedIfChanged(tables.remove(EarlierSession, USERS_PARTITION, rowKey, etag));
        }
      }
    },
  };
}
