import type { Actor } from "../platform/http/endpoint.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { AFTER_USERS, USERS_PARTITION, User, uidOf } from "./user.ts";
import type { Users } from "./users.ts";

/** The administrators who can approve the requests of each other. */
export interface Administrators {
  /** Returns the `uid` of an active administrator, or undefined for any other user. Costs one read. */
  uidOf(username: string): Promise<string | undefined>;
  /** Returns whether a user, by username or ID, is an administrator, active or not. */
  isAdministrator(id: string): Promise<boolean>;
  /**
   * Returns a value that changes if another person may be able to sign in as the user: with a new account of the same name, and
   * with another password or SSO identity. Undefined for an unknown username or ID.
   */
  accountOf(id: string): Promise<unknown>;
  /** Returns what identifies the actor for good: the `uid` of a user, or the name of an Entra principal. */
  idOf(actor: Actor): Promise<string>;
  /** Returns whether there are at least two active administrators. Reads the list of users. */
  hasAtLeastTwo(): Promise<boolean>;
}

export function createAdministrators({ tables, users }: { tables: Tables; users: Users }): Administrators {
  return {
    async uidOf(username) {
      const user = await users.find(username);
      return user?.role === "admin" && user.state === "active" ? uidOf(user) : undefined;
    },

    isAdministrator: async (id) => (await users.findById(id))?.role === "admin",

    async accountOf(id) {
      const user = await users.findById(id);
      return user && [uidOf(user), user.passwordHash, user.sso];
    },

    async idOf({ username, credential }) {
      const user = credential.kind === "entra" ? undefined : await users.find(username);
      return user ? uidOf(user) : username;
    },

    async hasAtLeastTwo() {
      const range = { partitionKey: USERS_PARTITION, before: AFTER_USERS, onCorrupt: "leaveOut" as const };
      let activeAdministrators = 0;
      for await (const rows of tables.pages(User, { ...range, select: ["role", "state"] })) {
        activeAdministrators += rows.filter(({ role, state }) => role === "admin" && state === "active").length;
        if (activeAdministrators >= 2) return true;
      }
      return false;
    },
  };
}
