import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { badCredential, roleRequired } from "../platform/http/admission.ts";
import { type Actor, type Caller, mayCall, ROLES, type Role } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import { insert, RowChanged, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { ApiTokenView, CreatedApiToken, NewApiToken } from "./api.ts";
import { apiTokenText, readApiToken } from "./api-token-text.ts";
import { pageOfRows } from "./row-pages.ts";
import {
  type ApiTokenDetails,
  isSignInValid,
  USERS_PARTITION,
  type UserRecord,
  type UserRow,
  uidOf,
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";

/** Maximum number of tokens of a user. Expired tokens don't count. */
const MAX_TOKENS = 50;
/** Number of random bytes of a token. */
const SECRET_BYTES = 32;
/**
 * Time that an expired token stays in the list, so that users can see why a program stopped working. If its user creates
 * another token, it leaves the list earlier.
 */
const EXPIRED_SHOWN_MS = 30 * DAY_MS;
/** Maximum number of concurrent reads of users or tokens. */
const MAX_CONCURRENT_READS = 10;
/** Attempts to create a token while other requests create tokens of the same user. */
const ATTEMPTS = 20;

const apiToken = z.object({
  /** The row key of the user. A token is valid only if the user's row lists its id. */
  user: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  createdAt: z.string(),
  expiresAt: z.string(),
  /** Written by earlier versions only. Newer versions store it in `apiTokenDetails` of the user's row. */
  lastUsedOn: z.string().optional(),
});
type ApiTokenRow = Row<z.infer<typeof apiToken>>;

/**
 * Maps a token to its user: for the administrators' list, for alerts, and for tokens of earlier versions, which don't name
 * their user. Stored in the partition of the users, so that a token and its user's list are written in one transaction. Row
 * key: `|token|` and the id. Signed and listed, so that changed, removed and older rows are detected. `adopted`: unsigned rows
 * of earlier versions are accepted until they are signed.
 */
export const ApiToken = entity("Users", apiToken, { signed: "adopted", listed: true });
const TOKENS = "|token|";
const RANGE = { from: TOKENS, before: keyEnd(TOKENS) };
const MEMBERS = ["user", "name", "role", "createdAt", "expiresAt", "lastUsedOn"] as const;

const idOf = (token: string): string => createHash("sha256").update(token).digest("base64url");
const idOfRow = ({ rowKey }: { rowKey: string }): string => rowKey.slice(TOKENS.length);

/**
 * API tokens: long-lived tokens that users create for their programs. Only hashes of the tokens are stored. The service's
 * authentication calls `find` for each request with an API token; the endpoints under /auth/tokens call the other methods.
 */
export interface ApiTokens {
  /**
   * Returns the token's user and role, or undefined if the token is not valid. Costs one read of the user's row, and one write
   * on the first use of a day. A token of an earlier version costs one read more.
   */
  find(token: string): Promise<{ id: string; user: UserRow; role: Role } | undefined>;
  /**
   * Returns the `uid` of a token's owner and the role of the token, or undefined if the token was revoked, or its owner is disabled
   * or deleted. A token that expired counts as well.
   */
  ownerOf(username: string, id: string): Promise<{ uid: string; role: Role } | undefined>;
  /**
   * Creates a token for the actor. The result contains its text, which can't be read again.
   *
   * @throws {Problem} forbidden (a role that the caller can't grant), alreadyExists (the name), conflict (too many tokens),
   * unauthorized (the caller's sign-in was revoked in the meantime).
   */
  create(actor: Actor, wanted: z.output<typeof NewApiToken>, caller: Caller): Promise<CreatedApiToken>;
  /**
   * Lists tokens: those of the given user, by name. Without a user, an administrator gets those of all users in the order of
   * their IDs, and other actors get their own.
   *
   * @throws {Problem} forbidden
   */
  list(
    actor: Pick<Actor, "username" | "role">,
    user: string | undefined,
    page: PageRequest,
  ): Promise<Page<ApiTokenView>>;
  /** Revokes a token: the actor's own, or any token for an administrator. @throws {Problem} notFound */
  end(actor: Actor, id: string, caller: Caller): Promise<void>;
  /** Revokes all tokens of a user. @throws {Problem} notFound */
  endAll(user: string, caller: Caller): Promise<void>;
  /** Yields the valid tokens that expire at this time or before, for alerts. */
  expiring(latest: Date): AsyncGenerator<ExpiringToken>;
  /** Deletes the rows of revoked tokens, and of tokens that expired more than 30 days ago. */
  cleanUp(): Promise<void>;
}

/** An API token that expires soon, as alerts show it. */
interface ExpiringToken {
  id: string;
  /** Kind of the credential in messages: always `API token`. */
  what: string;
  name: string;
  owner: string;
  createdAt: string;
  expiresAt: string;
}

/**
 * Creates the functions that verify and manage API tokens.
 *
 * @param deps.maxIdleDays - Days since the last SSO sign-in after which the tokens of an SSO user are rejected.
 */
export function createApiTokens(deps: {
  tables: Tables;
  users: Users;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  maxIdleDays: number;
}): ApiTokens {
  const { tables, users, audit, clock, randomness } = deps;
  const nowMs = () => clock.now().getTime();
  const { isExpired, rowOf, isTokenValid, detailsOf, listTokensOf, isPastListing, withOwners } =
    createTokenReader(deps);

  const view = ({ id, name, role, createdAt, expiresAt, lastUsedOn }: ApiTokenDetails, user: string): ApiTokenView => ({
    id,
    user,
    name,
    role,
    createdAt,
    expiresAt,
    expired: isExpired({ expiresAt }),
    lastUsedOn: lastUsedOn ?? null,
  });

  /**
   * Records the day of the last use: a day, so that not every request writes. The day never goes back, even if the clocks of
   * instances differ.
   */
  async function recordUse(user: UserRow, details: ApiTokenDetails): Promise<void> {
    const today = clock.now().toISOString().slice(0, 10);
    const isRecorded = ({ lastUsedOn = "" }: ApiTokenDetails) => lastUsedOn >= today;
    if (isRecorded(details)) return;
    await users.change(user, (latest) => {
      const current = detailsInUser(latest, details.id) ?? details;
      if (!latest.apiTokens?.includes(details.id) || isRecorded(current)) return undefined;
      return { ...latest, ...withDetails(latest, latest.apiTokens, [{ ...current, lastUsedOn: today }]) };
    });
  }

  /** Adds a token to its user. @returns Undefined if another request changed the user after it was read. */
  async function addToUser(user: UserRow, details: ApiTokenDetails): Promise<UserRow | undefined> {
    const { id, ...value } = details;
    const unexpired = (await listTokensOf(user)).filter((token) => !isExpired(token));
    if (unexpired.some(({ name }) => name === details.name)) {
      throw new Problem(
        "alreadyExists",
        `There is a token called ${details.name} already. Revoke it first, or choose another name.`,
      );
    }
    if (unexpired.length >= MAX_TOKENS) {
      throw new Problem("conflict", `A user has at most ${MAX_TOKENS} API tokens. Revoke one that is not needed.`);
    }
    return await users.change(
      user,
      (latest) => {
        if (latest.etag !== user.etag) return undefined;
        return {
          ...latest,
          ...withDetails(latest, [...unexpired.map((token) => token.id), id], [...unexpired, details]),
        };
      },
      () => [insert(ApiToken, TOKENS + id, { user: user.rowKey, ...value })],
    );
  }

  return {
    async find(token) {
      const parsed = readApiToken(token);
      if (!parsed) return undefined;
      const id = idOf(token);
      const row = parsed.user === undefined ? await rowOf(id) : undefined;
      const name = parsed.user ?? row?.user;
      const user = name === undefined ? undefined : await users.find(name);
      if (!isTokenValid(user, id)) return undefined;
      const details = await detailsOf(user, id, row);
      if (!details || isExpired(details)) return undefined;
      await recordUse(user, details);
      return { id, user, role: lowerRole(details.role, user.role) };
    },

    async ownerOf(username, id) {
      const user = await users.find(username);
      if (!isTokenValid(user, id)) return undefined;
      const details = await detailsOf(user, id);
      return details && { uid: uidOf(user), role: lowerRole(details.role, user.role) };
    },

    async create(actor, { name, role, expiresInDays }, caller) {
      if (!mayCall(actor.role, role)) throw roleRequired(role, actor.role, "A token can't have more.");
      const token = apiTokenText(randomness.bytes(SECRET_BYTES), userKey(actor.username));
      const id = idOf(token);
      const createdAtMs = nowMs();
      const details = {
        id,
        name,
        role,
        createdAt: new Date(createdAtMs).toISOString(),
        expiresAt: new Date(createdAtMs + expiresInDays * DAY_MS).toISOString(),
      };
      const event = {
        type: "apiToken.created",
        caller,
        target: { type: "apiToken", id },
        details: { name, role, expiresAt: details.expiresAt },
      };
      const effect = () =>
        repeatOnConflict(async () => {
          const user = await users.find(actor.username);
          if (!user) throw notFound("This user");
          requireSignedIn(actor, user);
          const changedUser = await addToUser(user, details);
          if (!changedUser) throw new RowChanged(ApiToken.table, USERS_PARTITION, user.rowKey);
          return user.rowKey;
        }, ATTEMPTS);
      const user = await audited(audit, event, effect);
      return { ...view(details, user), token };
    },

    async list(actor, user, page) {
      if (user === undefined && actor.role === "admin") {
        const rowPage = await pageOfRows(tables, ApiToken, { ...RANGE, select: MEMBERS }, page);
        const items = (await withOwners(rowPage.items, (name) => undefinedIfLeftOut(users.find(name)))).map(
          ({ row, user: owner }) => view(detailsInUser(owner, idOfRow(row)) ?? detailsInRow(row), row.user),
        );
        return { ...rowPage, items };
      }
      const owner = await users.find(requestedUser(user, actor));
      const tokens = owner ? (await listTokensOf(owner)).map((details) => view(details, owner.rowKey)) : [];
      return pageOfAll(tokens, page, ({ name, id }) => `${name}\0${id}`);
    },

    async end(actor, id, caller) {
      const row = await rowOf(id);
      const owner = row && (await users.find(row.user));
      const isTheirs = owner?.username === actor.username || actor.role === "admin";
      if (!row || !isTheirs || !owner?.apiTokens?.includes(id)) throw notFound("This API token");
      const event = {
        type: "apiToken.ended",
        caller,
        target: { type: "apiToken", id },
        details: { name: row.name, user: row.user },
      };
      await audited(audit, event, async () => {
        const changedUser = await users.change(owner, (latest) => {
          if (!latest.apiTokens?.includes(id)) return undefined;
          // The list decides whether a token is valid. The token's own row stays until `cleanUp`.
          return { ...latest, apiTokens: latest.apiTokens.filter((tokenId) => tokenId !== id) };
        });
        if (!changedUser) throw notFound("This API token");
      });
    },

    async endAll(name, caller) {
      const user = await users.find(name);
      if (!user) throw notFound("This user");
      const event = { type: "apiToken.allEnded", caller, target: { type: "user", id: user.rowKey } };
      await audited(audit, event, () => users.change(user, (latest) => ({ ...latest, apiTokens: [] })));
    },

    async *expiring(latest) {
      const range = { partitionKey: USERS_PARTITION, ...RANGE, onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(ApiToken, range)) {
        const expiringRows = rows.filter((row) => !isExpired(row) && Date.parse(row.expiresAt) <= latest.getTime());
        for (const { row } of await withOwners(expiringRows)) {
          const { user: owner, name, createdAt, expiresAt } = row;
          yield { id: `apiToken:${idOfRow(row)}`, what: "API token", name, owner, createdAt, expiresAt };
        }
      }
    },

    async cleanUp() {
      const range = { partitionKey: USERS_PARTITION, ...RANGE, onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(ApiToken, range)) {
        // Throws for an owner who can't be read. Otherwise that owner's tokens would be deleted as revoked ones.
        const listedRows = new Set((await withOwners(rows)).map(({ row }) => row));
        for (const row of rows) {
          if (isPastListing(row) || !listedRows.has(row)) await tables.remove(ApiToken, USERS_PARTITION, row.rowKey);
        }
      }
    },
  };
}

/** Creates the functions that read tokens and tell whether they are valid. */
function createTokenReader({
  tables,
  users,
  clock,
  maxIdleDays,
}: {
  tables: Tables;
  users: Users;
  clock: Clock;
  maxIdleDays: number;
}) {
  const nowMs = () => clock.now().getTime();
  const isExpired = ({ expiresAt }: { expiresAt: string }) => Date.parse(expiresAt) <= nowMs();
  const rowOf = (id: string) => tables.get(ApiToken, USERS_PARTITION, TOKENS + id);

  /** Returns true if the owner is active, lists the token, and (for an SSO user) signed in recently enough. */
  function isTokenValid(user: UserRow | undefined, id: string): user is UserRow {
    if (user?.state !== "active" || !user.apiTokens?.includes(id)) return false;
    if (user.source !== "sso") return true;
    return nowMs() - Date.parse(user.lastSsoSignInAt ?? user.createdAt) <= maxIdleDays * DAY_MS;
  }

  /** Returns the details of a token. @param readRow - The token's own row, if the caller has already read it. */
  async function detailsOf(user: UserRow, id: string, readRow?: ApiTokenRow): Promise<ApiTokenDetails | undefined> {
    const details = detailsInUser(user, id);
    if (details) return details;
    const row = readRow ?? (await rowOf(id));
    return row && detailsInRow(row);
  }

  async function listTokensOf(user: UserRow): Promise<ApiTokenDetails[]> {
    const tokens = await pMap(user.apiTokens ?? [], (id) => detailsOf(user, id), { concurrency: MAX_CONCURRENT_READS });
    return tokens.filter((details) => details !== undefined).filter((details) => !isPastListing(details));
  }

  const isPastListing = ({ expiresAt }: { expiresAt: string }) => Date.parse(expiresAt) + EXPIRED_SHOWN_MS <= nowMs();

  /**
   * Returns the rows whose user still lists the token. The users must be read after the rows. One transaction writes a token's
   * row and its user's list, so a list that is read later contains each valid token of these rows.
   */
  async function withOwners<T extends { user: string; rowKey: string }>(
    rows: readonly T[],
    readOwner = users.find,
  ): Promise<{ row: T; user: UserRow }[]> {
    const names = [...new Set(rows.map(({ user }) => user))];
    const owners = await pMap(names, readOwner, { concurrency: MAX_CONCURRENT_READS });
    const byName = new Map(names.map((name, index) => [name, owners[index]]));
    return rows.flatMap((row) => {
      const user = byName.get(row.user);
      return user?.apiTokens?.includes(idOfRow(row)) ? [{ row, user }] : [];
    });
  }

  return { isExpired, rowOf, isTokenValid, detailsOf, listTokensOf, isPastListing, withOwners };
}

/** Returns the details of a token from its user's row. */
const detailsInUser = (user: UserRow, id: string): ApiTokenDetails | undefined =>
  user.apiTokenDetails?.find((details) => details.id === id);

/** Returns the details of a token from its own row, which may be older than those in the user's row. */
function detailsInRow(row: ApiTokenRow): ApiTokenDetails {
  const { name, role, createdAt, expiresAt, lastUsedOn } = row;
  return { id: idOfRow(row), name, role, createdAt, expiresAt, ...(lastUsedOn !== undefined && { lastUsedOn }) };
}

/** Returns the members of the user's row for a new list of tokens. @param newest - Details that replace the stored ones. */
function withDetails(
  user: UserRecord,
  apiTokens: string[],
  newest: ApiTokenDetails[],
): Pick<UserRecord, "apiTokens" | "apiTokenDetails"> {
  const detailsById = new Map([...(user.apiTokenDetails ?? []), ...newest].map((details) => [details.id, details]));
  return { apiTokens, apiTokenDetails: [...detailsById.values()].filter(({ id }) => apiTokens.includes(id)) };
}

/**
 * Throws unless the sign-in of the caller is still valid when the user is written. A token or second factor outlives the sign-in
 * that adds it, so without this check a user who is reset or disabled at this moment would keep it.
 *
 * @throws {Problem} unauthorized
 */
export function requireSignedIn({ credential }: Actor, user: UserRow): void {
  // Only sessions and tokens have `since`: an API token or a token of Entra can't add a token or a second factor.
  if (!("since" in credential && isSignInValid(user, credential.since)))
    throw badCredential(credential.kind === "session" ? "session" : "bearer");
}

/**
 * Returns the requested user, by default the actor.
 *
 * @throws {Problem} forbidden for another user, unless the actor is an administrator
 */
export function requestedUser(user: string | undefined, actor: Pick<Actor, "username" | "role">): string {
  if (user === undefined || user === actor.username.toLowerCase() || actor.role === "admin") {
    return user ?? actor.username;
  }
  throw roleRequired("admin", actor.role, "Omit the parameter user to list your own.");
}

/** Returns the lower of two roles. Auditor and operator have only `user` in common. */
function lowerRole(first: Role, second: Role): Role {
  if (mayCall(first, second)) return second;
  return mayCall(second, first) ? first : "user";
}
