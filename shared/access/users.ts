import type { Page, PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import { insert, type Operation, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { pageOfRows } from "./row-pages.ts";
import {
  AFTER_USERS,
  DIRECTORY_KEY,
  Directory,
  type DirectoryRow,
  Identity,
  identityRow,
  isAdministrator,
  USERNAME,
  USERS_PARTITION,
  User,
  type UserRecord,
  type UserRow,
  userId,
  userKey,
} from "./user.ts";
import { VIEWED_MEMBERS, type ViewedUser } from "./views.ts";

/**
 * The stored users. All modules of shared/access read and write users through it. Changes and deletions leave at least one
 * active administrator who can sign in with a password, even if two instances each remove one.
 */
export interface Users {
  /** Reads a user: one uncached point read, none if the name can't be a username. */
  find(username: string): Promise<UserRow | undefined>;
  /** Reads a user by username or by the result of `userId`. The latter costs two more reads. */
  findById(id: string): Promise<UserRow | undefined>;
  /**
   * Creates a user.
   *
   * @param also - Further operations in the users' partition, for the same transaction.
   * @throws {Problem} alreadyExists
   */
  create(user: UserRecord, also?: readonly Operation[]): Promise<UserRow>;
  /**
   * Replaces the user with the result of `next`, starting with the row that the caller has read, and calls `next` again after a
   * conflict. `next` may throw, or return undefined to change nothing.
   *
   * @param also - Further operations in the users' partition, for the same transaction.
   * @returns The changed user. Undefined if the user does not exist any more or `next` returned undefined.
   * @throws {Problem} conflict if no administrator would remain.
   */
  change(
    user: UserRow,
    next: (latest: UserRow) => UserRecord | undefined,
    also?: (after: UserRecord, before: UserRow) => readonly Operation[],
  ): Promise<UserRow | undefined>;
  /**
   * Deletes the user.
   *
   * @param check - May throw to reject, or return further operations for the same transaction.
   * @returns False if the user was already deleted.
   * @throws {Problem} conflict if no administrator would remain.
   */
  remove(user: UserRow, check: (latest: UserRow) => readonly Operation[]): Promise<boolean>;
  /** Lists users by name. */
  list(page: PageRequest): Promise<Page<Row<ViewedUser>>>;
}

/** Attempts to change a user while other writers change it. */
const ATTEMPTS = 20;

/**
 * Creates the functions that read and write users.
 *
 * @param hasExpiredPassword - Returns whether the user's password can't be used any more. Default: none has expired.
 */
export function createUsers(
  tables: Tables,
  hasExpiredPassword: (user: UserRow) => Promise<boolean> = async () => false,
): Users {
  async function find(username: string): Promise<UserRow | undefined> {
    if (!USERNAME.test(username)) return undefined;
    return await tables.get(User, USERS_PARTITION, userKey(username));
  }

  const readDirectory = () => tables.get(Directory, USERS_PARTITION, DIRECTORY_KEY);

  /** @throws {Problem} conflict unless another administrator can sign in with a password. Costs one read for each one. */
  async function requireAnotherAdministrator(user: UserRow, directory: DirectoryRow | undefined): Promise<void> {
    for (const key of directory?.administrators ?? []) {
      if (key === user.rowKey) continue;
      // An administrator whose row can't be read can't sign in, and must not block this change with an error.
      const other = await tables.get(User, USERS_PARTITION, key, { onCorrupt: () => {} });
      if (other && isAdministrator(other) && !(await hasExpiredPassword(other))) return;
    }
    throw new Problem(
      "conflict",
      "This is the last administrator with a password. Make another user an administrator first. Passwords that expired unused don't count.",
    );
  }

  async function writeUser(
    before: UserRow | undefined,
    after: UserRecord | undefined,
    also: readonly Operation[] = [],
  ): Promise<string> {
    const withDirectory = directoryCategory(before) !== directoryCategory(after);
    const directory = withDirectory ? await readDirectory() : undefined;
    if (isAdministrator(before) && !isAdministrator(after)) await requireAnotherAdministrator(before!, directory);
    const operations = [...userOperations(before, after, directory), ...also];
    const etags = await tables.transaction(User.table, USERS_PARTITION, operations);
    return etags.get(operations[0]!.rowKey)!;
  }

  return {
    find,

    async findById(id) {
      const byUsername = await find(id);
      const hash = /^sso-([0-9a-f]{64})$/.exec(id)?.[1];
      if (byUsername || hash === undefined) return byUsername;
      const identity = await tables.get(Identity, USERS_PARTITION, identityRow(hash));
      const user = identity && (await find(identity.user));
      return user && userId(user) === id ? user : undefined;
    },

    create: (user, also) =>
      repeatOnConflict(async () => {
        if (await find(user.username)) throw userExists(user.username);
        const etag = await writeUser(undefined, user, also);
        return { ...user, partitionKey: USERS_PARTITION, rowKey: userKey(user.username), etag };
      }, ATTEMPTS),

    async change(user, next, also) {
      return await repeatOnConflict(async (attempt) => {
        const before = attempt === 1 ? user : await find(user.username);
        if (!before) return undefined;
        const after = next(before);
        if (!after) return undefined;
        const { partitionKey, rowKey } = before;
        return { ...after, partitionKey, rowKey, etag: await writeUser(before, after, also?.(after, before)) };
      }, ATTEMPTS);
    },

    async remove(user, check) {
      return await repeatOnConflict(async () => {
        const latest = await find(user.username);
        if (!latest) return false;
        await writeUser(latest, undefined, check(latest));
        return true;
      }, ATTEMPTS);
    },

    async list(page) {
      const rowPage = await pageOfRows(tables, User, { before: AFTER_USERS, select: VIEWED_MEMBERS }, page);
      // The directory has the exact number of users, so no lower bound is returned.
      const { totalAtLeast: _, ...rest } = rowPage;
      const directory = await undefinedIfLeftOut(readDirectory());
      return { ...rest, total: directory?.total ?? rest.total ?? rest.items.length };
    },
  };
}

export const userExists = (username: string): Problem =>
  new Problem("alreadyExists", `The user ${username} exists already. Choose another username.`);

/**
 * Returns how a user counts in the directory, the row with the names of the administrators and the number of users. A
 * transaction includes the directory only if that changes.
 */
const directoryCategory = (user: UserRecord | undefined) =>
  user === undefined ? "none" : isAdministrator(user) ? "administrator" : "other";

/**
 * Returns the operations that change one user from `before` to `after`, to be written in one transaction. The first one is the
 * user's own.
 */
export function userOperations(
  before: UserRow | undefined,
  after: UserRecord | undefined,
  directory: DirectoryRow | undefined,
): Operation[] {
  const key = userKey((after ?? before)!.username);
  const operations: Operation[] = [
    after === undefined
      ? remove(User, key, before!.etag)
      : before === undefined
        ? insert(User, key, after)
        : replace(User, key, after, before.etag),
  ];
  if (directoryCategory(before) === directoryCategory(after)) return operations;
  const otherAdministrators = (directory?.administrators ?? []).filter((administrator) => administrator !== key);
  const newDirectory = {
    administrators: isAdministrator(after) ? [...otherAdministrators, key] : otherAdministrators,
    total: (directory?.total ?? 0) + (after ? 1 : 0) - (before ? 1 : 0),
  };
  operations.push(
    directory
      ? replace(Directory, DIRECTORY_KEY, newDirectory, directory.etag)
      : insert(Directory, DIRECTORY_KEY, newDirectory),
  );
  return operations;
}
