import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { badCredential, roleNeeded } from "../http/admission.ts";
import { type Actor, type Caller, mayCall, ROLES, type Role } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { repeatOnConflict, unlessChanged } from "../storage/conflict.ts";
import { entity, type Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { insert, RowChanged, type Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import type { ApiTokenView, CreatedApiToken, NewApiToken } from "./api.ts";
import { apiTokenText, isApiTokenText } from "./api-token-text.ts";
import { pageOfRows } from "./row-pages.ts";
import { signInHolds, USERS_PARTITION, type UserRow } from "./user.ts";
import type { Users } from "./users.ts";

/** Tokens that one user may have; expired ones don't count. */
const MAX_TOKENS = 50;
const SECRET_BYTES = 32;
/** How long an expired one is still listed, so that people see why something stopped. */
const EXPIRED_SHOWN_MS = 30 * DAY_MS;
const READ_AT_ONCE = 10;
/** How often a creation is tried while other tokens of the user are made. */
const ATTEMPTS = 20;

const apiToken = z.object({
  /** The row key of the user it belongs to. Only the ids in that user's row hold. */
  user: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  createdAt: z.string(),
  expiresAt: z.string(),
  /** The day, in UTC. */
  lastUsedOn: z.string().optional(),
});
type ApiTokenRow = Row<z.infer<typeof apiToken>>;

/** Beside the users, so that one is made in one transaction with its user's list. Row key: `|token|` and the id. */
export const ApiToken = entity("Users", apiToken);
const TOKENS = "|token|";
const RANGE = { from: TOKENS, before: keyEnd(TOKENS) };
const MEMBERS = ["user", "name", "role", "createdAt", "expiresAt", "lastUsedOn"] as const;

/** The token's SHA-256, which tells nothing of its 32 random bytes. */
const idOf = (token: string): string => createHash("sha256").update(token).digest("base64url");
const idOfRow = ({ rowKey }: { rowKey: string }): string => rowKey.slice(TOKENS.length);

/** Long-lived tokens of users for their programs, of which only a hash is stored. */
export interface ApiTokens {
  /** Whose a token is now, by one read beside that of the user's row. Undefined for whatever does not hold. */
  find(token: string): Promise<{ id: string; user: UserRow; role: Role } | undefined>;
  /**
   * @throws {Problem} forbidden (a role the caller may not give), alreadyExists (the name), conflict (too many),
   * unauthorized (the caller's sign-in was ended meanwhile).
   */
  create(actor: Actor, wanted: z.output<typeof NewApiToken>, caller: Caller): Promise<CreatedApiToken>;
  /**
   * One user's tokens by name; without a user the actor's own, for an administrator everybody's in the order of their ids.
   *
   * @throws {Problem} forbidden
   */
  list(
    actor: Pick<Actor, "username" | "role">,
    user: string | undefined,
    page: PageRequest,
  ): Promise<Page<ApiTokenView>>;
  /** Ends one of the actor's, or any for an administrator. @throws {Problem} notFound */
  end(actor: Actor, id: string, caller: Caller): Promise<void>;
  /** Ends all of a user's. @throws {Problem} notFound */
  endAll(user: string, caller: Caller): Promise<void>;
  /** Those that hold now and expire by an instant; for the alerts. */
  expiring(by: Date): AsyncGenerator<ExpiringToken>;
  /** Removes the rows of those that ended. */
  cleanUp(): Promise<void>;
}

/** What the alerts tell of one that expires soon. */
interface ExpiringToken {
  id: string;
  what: string;
  name: string;
  owner: string;
  createdAt: string;
  expiresAt: string;
}

/** @param deps.maxIdleDays - After so many days without a sign-in by SSO an SSO user's tokens are refused. */
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

  /** Whether the owner's state lets a token hold. */
  function lets(user: UserRow | undefined, id: string): user is UserRow {
    if (user?.state !== "active" || !user.apiTokens?.includes(id)) return false;
    if (user.source !== "sso") return true;
    return now() - Date.parse(user.lastSsoSignInAt ?? user.createdAt) <= maxIdleDays * DAY_MS;
  }

  const view = (row: Omit<ApiTokenRow, "etag">): ApiTokenView => ({
    id: idOfRow(row),
    user: row.user,
    name: row.name,
    role: row.role,
    createdAt: row.createdAt,
    expiresAt: row.expiresAt,
    expired: isExpired(row),
    lastUsedOn: row.lastUsedOn ?? null,
  });

  async function ofUser(user: UserRow): Promise<ApiTokenRow[]> {
    const rows = await pMap(user.apiTokens ?? [], rowOf, { concurrency: READ_AT_ONCE });
    return rows.filter((row) => row !== undefined);
  }

  /** Of these rows those that stand in their user's list. The users are read after the rows, which come with the list. */
  async function standing<T extends { user: string; rowKey: string }>(rows: readonly T[]): Promise<T[]> {
    const names = [...new Set(rows.map(({ user }) => user))];
    const found = await pMap(names, users.find, { concurrency: READ_AT_ONCE });
    const lists = new Map(names.map((name, at) => [name, new Set(found[at]?.apiTokens)]));
    return rows.filter((row) => lists.get(row.user)!.has(idOfRow(row)));
  }

  /** Shown by the day, so that not every request is a write. One that another request writes in this moment is left to it. */
  async function used(row: ApiTokenRow): Promise<void> {
    const today = clock.now().toISOString().slice(0, 10);
    if (row.lastUsedOn !== today) await unlessChanged(tables.replace(ApiToken, { ...row, lastUsedOn: today }));
  }

  /** @returns Undefined when the user changed meanwhile. */
  async function add(user: UserRow, id: string, value: z.infer<typeof apiToken>): Promise<UserRow | undefined> {
    const valid = (await ofUser(user)).filter((row) => !isExpired(row));
    if (valid.some(({ name }) => name === value.name)) {
      throw new Problem(
        "alreadyExists",
        `There is a token called ${value.name} already. End it first, or choose another name.`,
      );
    }
    if (valid.length >= MAX_TOKENS) {
      throw new Problem("conflict", `A user has at most ${MAX_TOKENS} API tokens. End one that is not needed.`);
    }
    return await users.change(
      user,
      (latest) => (latest.etag === user.etag ? { ...latest, apiTokens: [...valid.map(idOfRow), id] } : undefined),
      () => [insert(ApiToken, TOKENS + id, value)],
    );
  }

  return {
    async find(token) {
      if (!isApiTokenText(token)) return undefined;
      const id = idOf(token);
      const row = await rowOf(id);
      if (!row || isExpired(row)) return undefined;
      const user = await users.find(row.user);
      if (!lets(user, id)) return undefined;
      await used(row);
      return { id, user, role: lowerRole(row.role, user.role) };
    },

    async create(actor, { name, role, expiresInDays }, caller) {
      if (!mayCall(actor.role, role)) throw roleNeeded(role, actor.role, "A token can't have more.");
      const token = apiTokenText(randomness.bytes(SECRET_BYTES));
      const id = idOf(token);
      const at = now();
      const value = {
        name,
        role,
        createdAt: new Date(at).toISOString(),
        expiresAt: new Date(at + expiresInDays * DAY_MS).toISOString(),
      };
      const event = {
        type: "apiToken.created",
        caller,
        target: { type: "apiToken", id },
        details: { name, role, expiresAt: value.expiresAt },
      };
      const effect = () =>
        repeatOnConflict(async () => {
          const user = await users.find(actor.username);
          if (!user) throw notFound("This user");
          requireSignedIn(actor, user);
          const added = await add(user, id, { user: user.rowKey, ...value });
          if (!added) throw new RowChanged(ApiToken.table, USERS_PARTITION, user.rowKey);
          return user.rowKey;
        }, ATTEMPTS);
      const user = await audited(audit, event, effect);
      return { ...view({ ...value, user, partitionKey: USERS_PARTITION, rowKey: TOKENS + id }), token };
    },

    async list(actor, user, page) {
      if (user === undefined && actor.role === "admin") {
        const found = await pageOfRows(tables, ApiToken, { ...RANGE, select: MEMBERS }, page);
        return { ...found, items: (await standing(found.items)).map(view) };
      }
      const owner = await users.find(ownOr(user, actor));
      const rows = owner ? await ofUser(owner) : [];
      return pageOfAll(rows.map(view), page, ({ name, id }) => `${name}\0${id}`);
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
        for (const row of await standing(soon)) {
          const { user: owner, name, createdAt, expiresAt } = row;
          yield { id: `apiToken:${idOfRow(row)}`, what: "API token", name, owner, createdAt, expiresAt };
        }
      }
    },

    async cleanUp() {
      for await (const rows of tables.pages(ApiToken, { partitionKey: USERS_PARTITION, ...RANGE })) {
        const kept = new Set(await standing(rows));
        for (const row of rows) {
          const isOld = Date.parse(row.expiresAt) + EXPIRED_SHOWN_MS <= now();
          if (isOld || !kept.has(row)) await tables.remove(ApiToken, USERS_PARTITION, row.rowKey);
        }
      }
    },
  };
}

/**
 * A token outlives the sign-in that makes it, so that one has to hold until the token is written: whoever was reset or
 * disabled in this moment would keep it.
 *
 * @throws {Problem} unauthorized
 */
function requireSignedIn({ credential }: Actor, user: UserRow): void {
  if (!("since" in credential && signInHolds(user, credential.since)))
    throw badCredential(credential.kind === "session" ? "session" : "bearer");
}

/** Whose are asked for. @throws {Problem} forbidden for somebody else's, unless by an administrator. */
export function ownOr(user: string | undefined, actor: Pick<Actor, "username" | "role">): string {
  if (user === undefined || user === actor.username.toLowerCase() || actor.role === "admin") {
    return user ?? actor.username;
  }
  throw roleNeeded("admin", actor.role, "Leave the parameter user out to see your own.");
}

/** The lower of two roles; auditor and operator have only `user` in common. */
function lowerRole(one: Role, other: Role): Role {
  if (mayCall(one, other)) return other;
  return mayCall(other, one) ? one : "user";
}
