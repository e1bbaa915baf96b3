import * as z from "zod";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type SessionRecord, USERS_PARTITION, type UserRecord, type UserRow, uidOf } from "./user.ts";

/**
 * Sessions that earlier versions made have rows of their own. They are read, moved on and ended there; none is made any
 * more, and the last ends twelve hours after the upgrade.
 */
export const EarlierSession = entity(
  "Users",
  z.object({
    /** Of the user it belongs to, who may have been deleted and made anew. */
    uid: z.string(),
    createdAt: z.string(),
    idleEndsAt: z.string(),
    endsAt: z.string(),
    by: z.enum(["password", "sso"]),
    address: z.string().optional(),
    userAgent: z.string().optional(),
  }),
);
type EarlierRow = Row<Omit<SessionRecord, "id"> & { uid: string }>;

const SESSIONS = "|session|";
export const earlierSessionKey = (user: string, id: string): string => `${SESSIONS}${user}|${id}`;

export interface EarlierSessions {
  /** One of the user's, whether it holds or not, by one read. */
  find(user: UserRow, id: string): Promise<EarlierSession | undefined>;
  /** All of the user's, whether they hold or not. */
  ofUser(user: UserRow): Promise<SessionRecord[]>;
  /** False when there is none. */
  end(user: UserRow, id: string): Promise<boolean>;
  /** Removes those whose idle end is past. */
  cleanUp(now: number): Promise<void>;
}
interface EarlierSession {
  session: SessionRecord;
  /** Moves its idle end. One that another request moves or ends in this moment is left to it. */
  move(idleEndsAt: string): Promise<unknown>;
}

export function createEarlierSessions(tables: Tables): EarlierSessions {
  const idOf = ({ rowKey }: { rowKey: string }) => rowKey.slice(rowKey.lastIndexOf("|") + 1);
  const isTheirs = (row: EarlierRow, user: UserRecord) => row.uid === uidOf(user);

  return {
    async find(user, id) {
      const row = await tables.get(EarlierSession, USERS_PARTITION, earlierSessionKey(user.rowKey, id));
      if (!row || !isTheirs(row, user)) return undefined;
      const move = (idleEndsAt: string) => undefinedIfChanged(tables.replace(EarlierSession, { ...row, idleEndsAt }));
      return { session: { ...row, id }, move };
    },

    async ofUser(user) {
      const prefix = earlierSessionKey(user.rowKey, "");
      const found: SessionRecord[] = [];
      const range = { partitionKey: USERS_PARTITION, from: prefix, before: keyEnd(prefix) };
      for await (const rows of tables.pages(EarlierSession, range)) {
        found.push(...rows.filter((row) => isTheirs(row, user)).map((row) => ({ ...row, id: idOf(row) })));
      }
      return found;
    },

    end: (user, id) => tables.remove(EarlierSession, USERS_PARTITION, earlierSessionKey(user.rowKey, id)),

    async cleanUp(now) {
      const range = { partitionKey: USERS_PARTITION, from: SESSIONS, before: keyEnd(SESSIONS) };
      for await (const rows of tables.pages(EarlierSession, { ...range, select: ["idleEndsAt"] })) {
        for (const { rowKey, etag, idleEndsAt } of rows) {
          // One that was used in this moment keeps its row: the ETag no longer fits.
          if (Date.parse(idleEndsAt) <= now)
            await undefinedIfChanged(tables.remove(EarlierSession, USERS_PARTITION, rowKey, etag));
        }
      }
    },
  };
}
