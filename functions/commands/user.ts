/**
 * Manages the users of a deployment, in every tier: `npm run user -- help`.
 *
 * Takes the same environment as the service. What it does is entered in the audit log as done by `system`.
 */
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import * as z from "zod";
import type { Access } from "../../shared/access/access.ts";
import { NewPassword, NewUsername, Username } from "../../shared/access/api.ts";
import { ConfigError, loadConfig } from "../../shared/config/config.ts";
import { type Caller, ROLES } from "../../shared/http/endpoint.ts";
import type { Page, PageRequest } from "../../shared/http/paging.ts";
import { Problem } from "../../shared/http/problem.ts";
import { wordsOf } from "../../shared/invalid.ts";
import { createServices } from "../services.ts";

const HELP = `Usage: npm run user -- COMMAND --username NAME [options]

  list                                  every user: name, role, state, last sign-in, e-mail address, source, locked until
  create   --role ROLE --email ADDRESS  a new user; the role is user when none is given
  role     --role ROLE                  another role
  disable                               no sign-in any more
  enable                                sign-in again
  unlock                                forgets failed sign-ins
  password                              another password
  delete                                removes the user
  tokens                                every API token: id, user, name, role, expiry, last day of use
  end-tokens                            ends all API tokens of the user

Roles: ${ROLES.join(", ")}. A new role, a new password, disabling and deleting end the user's tokens and sessions at once;
all but the role end the API tokens, too. Whoever gets a password here must choose another one at the next sign-in.
The last active administrator with a password can't be demoted, disabled or deleted.
Users of single sign-on have no password here.
create and password ask for the password at a terminal, and otherwise read the first line of standard input;
with --generate, or when that is empty, one is made and printed, this once.`;

const OPTIONS = {
  username: { type: "string" },
  role: { type: "string" },
  email: { type: "string" },
  generate: { type: "boolean", default: false },
} as const;

interface Options {
  username?: string | undefined;
  role?: string | undefined;
  email?: string | undefined;
  generate: boolean;
}

const Named = z.object({ username: Username });
const WithRole = Named.extend({ role: z.enum(ROLES) });
const New = Named.extend({ username: NewUsername, role: z.enum(ROLES).default("user"), email: z.email().optional() });

type Command = (access: Access, options: Options, caller: Caller) => Promise<void>;

/** Reads a list to its end. */
async function* all<T>(list: (page: PageRequest) => Promise<Page<T>>): AsyncGenerator<T> {
  let cursor: string | undefined;
  do {
    const page = await list({ limit: 1000, offset: 0, cursor });
    yield* page.items;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}

const COMMANDS: Record<string, Command> = {
  async list({ users }) {
    for await (const user of all(users.list)) {
      const { username, role, state, lastSignInAt, email, source, lockedUntil } = user;
      console.log([username, role, state, lastSignInAt ?? "never", email ?? "", source, lockedUntil ?? ""].join("\t"));
    }
  },

  async create({ users }, options, caller) {
    const { username, role, email } = checked(New, options);
    const { password, made } = await choosePassword(options);
    const user = await users.create({ username, role, email, password }, caller);
    console.log(`Made the user ${user.username} with the role ${user.role}.`);
    if (made) console.log(`Password, shown only now: ${password}`);
  },

  async password({ users }, options, caller) {
    const { username } = checked(Named, options);
    await users.get(username);
    const { password, made } = await choosePassword(options);
    const user = await users.update(username, { password }, undefined, caller);
    console.log(`${user.username} has a new password; all tokens are ended.`);
    if (made) console.log(`Password, shown only now: ${password}`);
  },

  async role({ users }, options, caller) {
    const { username, role } = checked(WithRole, options);
    const user = await users.update(username, { role }, undefined, caller);
    console.log(`${user.username} has the role ${user.role}.`);
  },

  async disable({ users }, options, caller) {
    const user = await users.update(checked(Named, options).username, { state: "disabled" }, undefined, caller);
    console.log(`${user.username} is disabled; all tokens are ended.`);
  },

  async enable({ users }, options, caller) {
    const user = await users.update(checked(Named, options).username, { state: "active" }, undefined, caller);
    console.log(`${user.username} may sign in again.`);
  },

  async unlock({ users }, options, caller) {
    const user = await users.unlock(checked(Named, options).username, caller);
    console.log(`The failed sign-ins of ${user.username} are forgotten.`);
  },

  async delete({ users }, options, caller) {
    const { username } = checked(Named, options);
    await users.remove(username, undefined, caller);
    console.log(`${username} is deleted; all tokens are ended.`);
  },

  async tokens({ apiTokens }, { username }, caller) {
    const everybody = { username: caller.actor, role: "admin" } as const;
    for await (const token of all((page) => apiTokens.list(everybody, username, page))) {
      const { id, user, name, role, expiresAt, lastUsedOn } = token;
      console.log([id, user, name, role, expiresAt, lastUsedOn ?? "never"].join("\t"));
    }
  },

  async "end-tokens"({ apiTokens }, options, caller) {
    const { username } = checked(Named, options);
    await apiTokens.endAll(username, caller);
    console.log(`The API tokens of ${username} are ended.`);
  },
};

/** What the command needs of what was given. @throws UsageError saying what is wrong with it. */
function checked<S extends z.ZodObject>(schema: S, options: Options): z.output<S> {
  if (options.username === undefined) throw new UsageError(`--username is missing.\n\n${HELP}`);
  const result = schema.safeParse(options, { error: wordsOf });
  if (result.success) return result.data;
  throw new UsageError(result.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`).join("\n"));
}

async function choosePassword({ generate }: Options): Promise<{ password: string; made: boolean }> {
  const given = generate ? "" : await readPassword();
  if (given === "") return { password: randomBytes(18).toString("base64url"), made: true };
  const problem = NewPassword.safeParse(given, { error: wordsOf }).error?.issues[0]?.message;
  if (problem !== undefined) throw new UsageError(`password ${problem}`);
  return { password: given, made: false };
}

/** Without its line end; empty when nothing was typed. */
async function readPassword(): Promise<string> {
  if (!process.stdin.isTTY) return (await text(process.stdin)).split(/\r?\n/, 1)[0]!;
  process.stderr.write("Password (empty to have one made): ");
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  try {
    return await terminal.question("");
  } finally {
    terminal.close();
    process.stderr.write("\n");
  }
}

class UsageError extends Error {}

async function main(): Promise<void> {
  const { positionals, values } = parseArgs({ allowPositionals: true, options: OPTIONS });
  const [name = "help", ...more] = positionals;
  if (name === "help") return console.log(HELP);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command || more.length > 0) throw new UsageError(HELP);
  const { access, randomness, clock } = createServices(loadConfig(process.env));
  await command(access, values, { actor: "system", requestId: randomness.ulid(clock.now()) });
}

try {
  await main();
} catch (error) {
  const isArgument = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
  if (!(isArgument || error instanceof UsageError || error instanceof Problem || error instanceof ConfigError)) {
    throw error;
  }
  console.error(isArgument ? `${error.message}\n${HELP}` : error.message);
  process.exitCode = 1;
}
