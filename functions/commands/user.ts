/** Manages the users of a deployment, in every tier. See HELP. What it does is entered in the audit log as done by `system`. */
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import * as z from "zod";
import { commandLine, usedWrong } from "../../infra/build/command-line.ts";
import type { Access } from "../../shared/access/access.ts";
import { NewPassword, NewUsername, Username } from "../../shared/access/api.ts";
import { ConfigError, loadConfig } from "../../shared/platform/config/config.ts";
import { type Actor, type Caller, ROLES } from "../../shared/platform/http/endpoint.ts";
import type { Page, PageRequest } from "../../shared/platform/http/paging.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { isUnclear } from "../../shared/platform/storage/tables.ts";
import { validationMessage } from "../../shared/platform/validation-message.ts";

const HELP = `npm run user -- COMMAND [--username NAME] [options]

Manages the users of the service that \`npm start\` runs, or of the one whose settings the environment has.

  list                                  every user: name, role, state, last sign-in, e-mail address, source, locked until
  help                                  this
  create   --role ROLE --email ADDRESS  a new user; the role is user when none is given
  role     --role ROLE                  another role
  disable                               no sign-in any more
  enable                                sign-in again
  unlock                                forgets failed sign-ins
  password                              another password
  delete                                removes the user
  tokens                                every API token: id, user, name, role, expiry, last day of use
  end-tokens                            ends all API tokens of the user
  sessions                              the user's sessions of browsers: id, sign-in, end when idle, end, how, address
  end-sessions                          ends the user's sessions of browsers

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

/** Who lists what is another user's. */
const ADMINISTRATOR: Actor = { username: "system", role: "admin", credential: { kind: "entra" } };

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

  async tokens({ apiTokens }, { username }) {
    for await (const token of all((page) => apiTokens.list(ADMINISTRATOR, username, page))) {
      const { id, user, name, role, expiresAt, lastUsedOn } = token;
      console.log([id, user, name, role, expiresAt, lastUsedOn ?? "never"].join("\t"));
    }
  },

  async "end-tokens"({ apiTokens }, options, caller) {
    const { username } = checked(Named, options);
    await apiTokens.endAll(username, caller);
    console.log(`The API tokens of ${username} are ended.`);
  },

  async sessions({ users, sessions }, options) {
    const { username } = await users.get(checked(Named, options).username);
    for await (const session of all((page) => sessions.list(ADMINISTRATOR, username, page))) {
      const { id, createdAt, idleEndsAt, endsAt, by, address } = session;
      console.log([id, createdAt, idleEndsAt, endsAt, by, address ?? ""].join("\t"));
    }
  },

  async "end-sessions"({ users, sessions }, options, caller) {
    const { username } = await users.get(checked(Named, options).username);
    // All are read before the first ends, since that moves the pages.
    const ids: string[] = [];
    for await (const { id } of all((page) => sessions.list(ADMINISTRATOR, username, page))) ids.push(id);
    for (const id of ids) await sessions.end(ADMINISTRATOR, id, caller);
    console.log(`${ids.length} sessions of ${username} are ended.`);
  },
};

/** What the command needs of what was given; it ends, saying what is wrong, where that is not there. */
function checked<S extends z.ZodObject>(schema: S, options: Options): z.output<S> {
  if (options.username === undefined) usedWrong("--username is missing");
  const result = schema.safeParse(options, { error: validationMessage });
  if (result.success) return result.data;
  return usedWrong(result.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`).join("; "));
}

async function choosePassword({ generate }: Options): Promise<{ password: string; made: boolean }> {
  const given = generate ? "" : await readPassword();
  if (given === "") return { password: randomBytes(18).toString("base64url"), made: true };
  const problem = NewPassword.safeParse(given, { error: validationMessage }).error?.issues[0]?.message;
  if (problem !== undefined) usedWrong(`password ${problem}`);
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

async function main(): Promise<void> {
  const { positionals, values } = commandLine(HELP, { allowPositionals: true, options: OPTIONS });
  const [name = "help", ...more] = positionals;
  if (name === "help") return console.log(HELP);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command || more.length > 0) return usedWrong(`There is no command ${[name, ...more].join(" ")}`);
  const { createServices } = await import("../services.ts");
  const { access, randomness, clock } = createServices(loadConfig(process.env));
  await command(access, values, { actor: "system", requestId: randomness.ulid(clock.now()) });
}

try {
  await main();
} catch (error) {
  if (error instanceof Error && isUnclear(error)) {
    console.error(
      `The storage account does not answer (${error.message}). Look at AzureWebJobsStorage and at the network. If the command was to change something, that may have been done: see with list.`,
    );
  } else if (error instanceof Problem || error instanceof ConfigError) console.error(error.message);
  else throw error;
  process.exitCode = 1;
}
