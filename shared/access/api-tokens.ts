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
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";

/** Maximum number of tokens of a user. Expired tokens don't count. */
const MAX_TOKENS = 50;
const SECRET_BYTES = 32;
/** How long an expired token stays in the list, so that users can see why a program stopped working. */
const EXPIRED_SHOWN_MS = 30 * DAY_MS;
const READ_AT_ONCE = 10;
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
 * key: `|token|` and the id.
 */
export const ApiToken = entity("Users", apiToken);
const TOKENS = "|token|";
const RANGE = { from: TOKENS, before: keyEnd(TOKENS) };
const MEMBERS = ["user", "name", "role", "createdAt", "expiresAt", "lastUsedOn"] as const;

const idOf = (token: string): string => createHash("sha256").update(token).digest("base64url");
const idOfRow = ({ rowKey }: { rowKey: string }): string => rowKey.slice(TOKENS.length);

/** Long-lived tokens that users create for their programs. Only hashes of the tokens are stored. */
export interface ApiTokens {
  /**
   * Returns the token's user and role, or undefined if the token is not valid. Costs one read of the user's row, and one write
   * on the first use of a day. A token of an earlier version costs one read more.
   */
  find(token: string): Promise<{ id: string; user: UserRow; role: Role } | undefined>;
  /**
   * @throws {Problem} forbidden (a role that the caller can't grant), alreadyExists (the name), conflict (too many tokens),
   * unauthorized (the caller's sign-in was revoked meanwhile).
   */
  create(actor: Actor, wanted: z.output<typeof NewApiToken>, caller: Caller): Promise<CreatedApiToken>;
  /**
   * Lists tokens: of the given user by name; without a user the actor's own, or for an administrator those of all users in the
   * order of their ids.
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
  /** Yields the valid tokens that expire by an instant, for alerts. */
  expiring(by: Date): AsyncGenerator<ExpiringToken>;
  /** Deletes the rows of revoked tokens, and of tokens that expired more than 30 days ago. */
  cleanUp(): Promise<void>;
}

/** An API token that expires soon, as alerts show it. */
interface ExpiringToken {
  id: string;
  what: string;
  name: string;
  owner: string;
  createdAt: string;
  expiresAt: string;
}

/** @param deps.maxIdleDays - Days since the last SSO sign-in after which the tokens of an SSO user are rejected. */
export function createApiTokens(deps: {
  tables: Tables;
  users: Users;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  maxIdleDays: number;
}): ApiTokens {
  const { tables, users, audit, clock, randomness, maxIdleDays } = deps;
  const now = () => clock.now().getTime();
  const isExpired = ({ expiresAt }: { expiresAt: string }) => Date.parse(expiresAt) <= now();
  const rowOf = (id: string) => tables.get(ApiToken, USERS_PARTITION, TOKENS + id);

  /** Returns true if the owner is active, lists the token, and (for an SSO user) signed in recently enough. */
  function isTokenValid(user: UserRow | undefined, id: string): user is UserRow {
    if (user?.state !== "active" || !user.apiTokens?.includes(id)) return false;
    if (user.source !== "sso") return true;
    return now() - Date.parse(user.lastSsoSignInAt ?? user.createdAt) <= maxIdleDays * DAY_MS;
  }

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

  /** @param row - The token's own row, if the caller already read it. */
  async function detailsOf(user: UserRow, id: string, known?: ApiTokenRow): Promise<ApiTokenDetails | undefined> {
    const details = inUser(user, id);
    if (details) return details;
    const row = known ?? (await rowOf(id));
    return row && inRow(row);
  }

  async function ofUser(user: UserRow): Promise<ApiTokenDetails[]> {
    const found = await pMap(user.apiTokens ?? [], (id) => detailsOf(user, id), { concurrency: READ_AT_ONCE });
    return found.filter((one) => one !== undefined).filter((one) => !isPastListing(one));
  }

  const isPastListing = ({ expiresAt }: { expiresAt: string }) => Date.parse(expiresAt) + EXPIRED_SHOWN_MS <= now();

  /**
   * Returns the rows whose user still lists the token. Reads the users after the rows: a token and its user's list are written
   * together.
   */
  async function withOwners<T extends { user: string; rowKey: string }>(
    rows: readonly T[],
  ): Promise<{ row: T; user: UserRow }[]> {
    const names = [...new Set(rows.map(({ user }) => user))];
    const found = await pMap(names, users.find, { concurrency: READ_AT_ONCE });
    const byName = new Map(names.map((name, at) => [name, found[at]]));
    return rows.flatMap((row) => {
      const user = byName.get(row.user);
      return user?.apiTokens?.includes(idOfRow(row)) ? [{ row, user }] : [];
    });
  }

  /**
   * Records the day of the last use: a day, so that not every request writes. The day never goes back, even if the clocks of
   * instances differ.
   */
  async function recordUse(user: UserRow, details: ApiTokenDetails): Promise<void> {
    const today = clock.now().toISOString().slice(0, 10);
    const isShown = ({ lastUsedOn = "" }: ApiTokenDetails) => lastUsedOn >= today;
    if (isShown(details)) return;
    await users.change(user, (latest) => {
      const current = inUser(latest, details.id) ?? details;
      if (!latest.apiTokens?.includes(details.id) || isShown(current)) return undefined;
      return { ...latest, ...withDetails(latest, latest.apiTokens, [{ ...current, lastUsedOn: today }]) };
    });
  }

  /** Adds a token to its user. @returns Undefined if the user was changed meanwhile. */
  async function add(user: UserRow, details: ApiTokenDetails): Promise<UserRow | undefined> {
    const { id, ...value } = details;
    const valid = (await ofUser(user)).filter((one) => !isExpired(one));
    if (valid.some(({ name }) => name === details.name)) {
      throw new Problem(
        "alreadyExists",
        `There is a token called ${details.name} already. Revoke it first, or choose another name.`,
      );
    }
    if (valid.length >= MAX_TOKENS) {
      throw new Problem("conflict", `A user has at most ${MAX_TOKENS} API tokens. Revoke one that is not needed.`);
    }
    return await users.change(
      user,
      (latest) => {
        if (latest.etag !== user.etag) return undefined;
        return { ...latest, ...withDetails(latest, [...valid.map((one) => one.id), id], [...valid, details]) };
      },
      () => [insert(ApiToken, TOKENS + id, { user: user.rowKey, ...value })],
    );
  }

  return {
    async find(token) {
      const read = readApiToken(token);
      if (!read) return undefined;
      const id = idOf(token);
      const row = read.user === undefined ? await rowOf(id) : undefined;
      const name = read.user ?? row?.user;
      const user = name === undefined ? undefined : await users.find(name);
      if (!isTokenValid(user, id)) return undefined;
      const details = await detailsOf(user, id, row);
      if (!details || isExpired(details)) return undefined;
      await recordUse(user, details);
      return { id, user, role: lowerRole(details.role, user.role) };
    },

    async create(actor, { name, role, expiresInDays }, caller) {
      if (!mayCall(actor.role, role)) throw roleRequired(role, actor.role, "A token can't have more.");
      const token = apiTokenText(randomness.bytes(SECRET_BYTES), userKey(actor.username));
      const id = idOf(token);
      const at = now();
      const details = {
        id,
        name,
        role,
        createdAt: new Date(at).toISOString(),
        expiresAt: new Date(at + expiresInDays * DAY_MS).toISOString(),
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
          const added = await add(user, details);
          if (!added) throw new RowChanged(ApiToken.table, USERS_PARTITION, user.rowKey);
          return user.rowKey;
        }, ATTEMPTS);
      const user = await audited(audit, event, effect);
      return { ...view(details, user), token };
    },

    async list(actor, user, page) {
      if (user === undefined && actor.role === "admin") {
        const found = await pageOfRows(tables, ApiToken, { ...RANGE, select: MEMBERS }, page);
        const items = (await withOwners(found.items)).map(({ row, user: owner }) =>
          view(inUser(owner, idOfRow(row)) ?? inRow(row), row.user),
        );
        return { ...found, items };
      }
      const owner = await users.find(requestedUser(user, actor));
      const tokens = owner ? (await ofUser(owner)).map((one) => view(one, owner.rowKey)) : [];
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
        const without = await users.change(owner, (latest) => {
          if (!latest.apiTokens?.includes(id)) return undefined;
          return { ...latest, apiTokens: latest.apiTokens.filter((one) => one !== id) };
        });
        if (!without) throw notFound("This API token");
      });
    },

    async endAll(name, caller) {
      const user = await users.find(name);
      if (!user) throw notFound("This user");
      const event = { type: "apiToken.allEnded", caller, target: { type: "user", id: user.rowKey } };
      await audited(audit, event, () => users.change(user, (latest) => ({ ...latest, apiTokens: [] })));
    },

    async *expiring(by) {
      for await (const rows of tables.pages(ApiToken, { partitionKey: USERS_PARTITION, ...RANGE })) {
        const soon = rows.filter((row) => !isExpired(row) && Date.parse(row.expiresAt) <= by.getTime());
        for (const { row } of await withOwners(soon)) {
          const { user: owner, name, createdAt, expiresAt } = row;
          yield { id: `apiToken:${idOfRow(row)}`, what: "API token", name, owner, createdAt, expiresAt };
        }
      }
    },

    async cleanUp() {
      for await (const rows of tables.pages(ApiToken, { partitionKey: USERS_PARTITION, ...RANGE })) {
        const kept = new Set((await withOwners(rows)).map(({ row }) => row));
        for (const row of rows) {
          if (isPastListing(row) || !kept.has(row)) await tables.remove(ApiToken, USERS_PARTITION, row.rowKey);
        }
      }
    },
  };
}

const inUser = (user: UserRow, id: string): ApiTokenDetails | undefined =>
  user.apiTokenDetails?.find((one) => one.id === id);

/** Details of a token from its own row, which may be older than those in the user's row. */
function inRow(row: ApiTokenRow): ApiTokenDetails {
  const { name, role, createdAt, expiresAt, lastUsedOn } = row;
  return { id: idOfRow(row), name, role, createdAt, expiresAt, ...(lastUsedOn !== undefined && { lastUsedOn }) };
}

/** Returns the members of the user's row for a new list of tokens. @param newest - Details that replace the stored ones. */
function withDetails(
  user: UserRecord,
  apiTokens: string[],
  newest: ApiTokenDetails[],
): Pick<UserRecord, "apiTokens" | "apiTokenDetails"> {
  const known = new Map([...(user.apiTokenDetails ?? []), ...newest].map((one) => [one.id, one]));
  return { apiTokens, apiTokenDetails: [...known.values()].filter(({ id }) => apiTokens.includes(id)) };
}

/**
 * Throws unless the sign-in of the caller is still valid when the token is written. A token outlives the sign-in that creates
 * it, so without this check a user who is reset or disabled at this moment would keep a valid token.
 *
 * @throws {Problem} unauthorized
 */
function requireSignedIn({ credential }: Actor, user: UserRow): void {
  if (!("since" in credential && isSignInValid(user, credential.since)))
    throw badCredential(credential.kind === "session" ? "session" : "bearer");
}

/**
 * Returns the requested user, default the actor. @throws {Problem} forbidden for another user, unless the actor is an
 * administrator.
 */
export function requestedUser(user: string | undefined, actor: Pick<Actor, "username" | "role">): string {
  if (user === undefined || user === actor.username.toLowerCase() || actor.role === "admin") {
    return user ?? actor.username;
  }
  throw roleRequired("admin", actor.role, "Leave the parameter user out to see your own.");
}

/** Returns the lower of two roles. Auditor and operator have only `user` in common. */
function lowerRole(one: Role, other: Role): Role {
  if (mayCall(one, other)) return other;
  return mayCall(other, one) ? one : "user";
}
