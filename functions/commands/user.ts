/**
 * A command that manages the users of a deployment, also without a PRO license. See HELP. It writes to the deployment's
 * storage, and the audit log records changes with the actor `system`.
 */
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import * as z from "zod";
import { commandLine, exitWithUsageError } from "../../infra/build/command-line.ts";
import type { Access } from "../../shared/access/access.ts";
import { NewPassword, NewUsername, Username } from "../../shared/access/api.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { ConfigError, loadConfig } from "../../shared/platform/config/config.ts";
import { type Actor, type Caller, ROLES } from "../../shared/platform/http/endpoint.ts";
import type { Page, PageRequest } from "../../shared/platform/http/paging.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { requireKnownFormat, StoreIsNewer } from "../../shared/platform/storage/store-format.ts";
import { isUnclear, SigningKeysMissing, StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { validationMessage } from "../../shared/platform/validation-message.ts";
import type { Settings } from "../../shared/settings/settings.ts";

const HELP = `npm run user -- COMMAND [--username NAME] [options]

Manages the users of the service that \`npm start\` runs, or of the deployment that the environment variables configure.

  list                                  lists users: name, role, state, last sign-in, e-mail address, source, locked until
  help                                  prints this help
  create   --role ROLE --email ADDRESS  creates a user; the default role is user
  role     --role ROLE                  changes the role
  disable                               blocks sign-in
  enable                                allows sign-in again
  unlock                                clears failed sign-ins
  password                              sets a new password
  reset-second-factor                   removes all second factors and recovery codes, and ends tokens and sessions
  turn-off-confirmations                turns off requireStepUp and requireApproval, if nobody can confirm
  delete                                deletes the user
  tokens                                lists API tokens: id, user, name, role, expiry, last day of use
  end-tokens                            revokes all API tokens of the user
  sessions                              lists browser sessions: id, sign-in, idle end, end, method, address
  end-sessions                          ends all browser sessions of the user

The name of the user can also follow the command: unlock NAME.
Roles: ${ROLES.join(", ")}.
Changing the role or password, disabling and deleting end the user's tokens and sessions at once. All but a change of the
role also revoke the API tokens. A user with a password from this command must change it at the next sign-in.
You can't demote, disable or delete the last active administrator with a password. Users of single sign-on have no password.
create and password prompt for the password on a terminal, and otherwise read the first line of standard input.
With --generate, or if the input is empty, they generate a password and print it once.`;

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

/** Options of the commands. */
const UserOptions = z.object({ username: Username });
const RoleOptions = UserOptions.extend({ role: z.enum(ROLES) });
const NewUserOptions = UserOptions.extend({
  username: NewUsername,
  role: z.enum(ROLES).default("user"),
  email: z.email().optional(),
});

type Command = (access: Access, options: Options, caller: Caller, settings: Settings) => Promise<void>;

/**
 * The actor that reads and ends tokens and sessions of other users, which only an administrator can do. The only kind
 * of credential without an ID of a token or session is `entra`.
 */
const ADMINISTRATOR: Actor = { username: "system", role: "admin", credential: { kind: "entra" } };

/** Yields the items of all pages of a list. */
async function* allItems<T>(list: (page: PageRequest) => Promise<Page<T>>): AsyncGenerator<T> {
  let cursor: string | undefined;
  do {
    const page = await list({ limit: 1000, offset: 0, cursor });
    yield* page.items;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}

const COMMANDS: Record<string, Command> = {
  async list({ users }) {
    for await (const user of allItems(users.list)) {
      const { username, role, state, lastSignInAt, email, source, lockedUntil } = user;
      console.log([username, role, state, lastSignInAt ?? "never", email ?? "", source, lockedUntil ?? ""].join("\t"));
    }
  },

  async create({ users }, options, caller) {
    const { username, role, email } = validated(NewUserOptions, options);
    const { password, generated } = await choosePassword(options);
    const user = await users.create({ username, role, email, password }, caller);
    console.log(`Created the user ${user.username} with the role ${user.role}.`);
    if (generated) console.log(`Password, shown only once: ${password}`);
  },

  async password({ users }, options, caller) {
    const { username } = validated(UserOptions, options);
    await users.get(username);
    const { password, generated } = await choosePassword(options);
    const user = await users.update(username, { password }, undefined, caller);
    console.log(`Changed the password of ${user.username}. All tokens and sessions ended.`);
    if (generated) console.log(`Password, shown only once: ${password}`);
  },

  async "reset-second-factor"({ secondFactor }, options, caller) {
    const { username } = validated(UserOptions, options);
    await secondFactor.reset(username, caller);
    console.log(`Removed the second factor of ${username}. All tokens and sessions ended.`);
  },

  async "turn-off-confirmations"(_access, _options, caller, settings) {
    await settings.update("features", { requireStepUp: false, requireApproval: false }, caller);
    console.log("Turned off requireStepUp and requireApproval. Running instances apply it at their next request.");
  },

  async role({ users }, options, caller) {
    const { username, role } = validated(RoleOptions, options);
    const user = await users.update(username, { role }, undefined, caller);
    console.log(`Changed the role of ${user.username} to ${user.role}.`);
  },

  async disable({ users }, options, caller) {
    const user = await users.update(validated(UserOptions, options).username, { state: "disabled" }, undefined, caller);
    console.log(`Disabled ${user.username}. All tokens and sessions ended.`);
  },

  async enable({ users }, options, caller) {
    const user = await users.update(validated(UserOptions, options).username, { state: "active" }, undefined, caller);
    console.log(`Enabled ${user.username}.`);
  },

  async unlock({ users }, options, caller) {
    const user = await users.unlock(validated(UserOptions, options).username, caller);
    console.log(`Unlocked ${user.username}.`);
  },

  async delete({ users }, options, caller) {
    const { username } = validated(UserOptions, options);
    await users.remove(username, undefined, caller);
    console.log(`Deleted ${username}. All tokens and sessions ended.`);
  },

  async tokens({ apiTokens }, { username }) {
    for await (const token of allItems((page) => apiTokens.list(ADMINISTRATOR, username, page))) {
      const { id, user, name, role, expiresAt, lastUsedOn } = token;
      console.log([id, user, name, role, expiresAt, lastUsedOn ?? "never"].join("\t"));
    }
  },

  async "end-tokens"({ apiTokens }, options, caller) {
    const { username } = validated(UserOptions, options);
    await apiTokens.endAll(username, caller);
    console.log(`Revoked the API tokens of ${username}.`);
  },

  async sessions({ users, sessions }, options) {
    const { username } = await users.get(validated(UserOptions, options).username);
    for await (const session of allItems((page) => sessions.list(ADMINISTRATOR, username, page))) {
      const { id, createdAt, idleEndsAt, endsAt, by, address } = session;
      console.log([id, createdAt, idleEndsAt, endsAt, by, address ?? ""].join("\t"));
    }
  },

  async "end-sessions"({ users, sessions }, options, caller) {
    const { username } = await users.get(validated(UserOptions, options).username);
    // Reads all pages first, because ending a session shifts the items of later pages.
    const ids: string[] = [];
    for await (const { id } of allItems((page) => sessions.list(ADMINISTRATOR, username, page))) ids.push(id);
    for (const id of ids) await sessions.end(ADMINISTRATOR, id, caller);
    console.log(`Ended ${ids.length} sessions of ${username}.`);
  },
};

/** The commands that write nothing. */
const READING = ["list", "tokens", "sessions"];

/** Returns the validated options of a command. Prints the problem and ends the process if an option is missing or invalid. */
function validated<S extends z.ZodObject>(schema: S, options: Options): z.output<S> {
  if (options.username === undefined) exitWithUsageError("--username is missing");
  const result = schema.safeParse(options, { error: validationMessage });
  if (result.success) return result.data;
  return exitWithUsageError(result.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`).join("; "));
}

/** Returns the entered password, or a generated one with `--generate` or an empty input. */
async function choosePassword({ generate }: Options): Promise<{ password: string; generated: boolean }> {
  const entered = generate ? "" : await readPassword();
  if (entered === "") return { password: randomBytes(18).toString("base64url"), generated: true };
  const problem = NewPassword.safeParse(entered, { error: validationMessage }).error?.issues[0]?.message;
  if (problem !== undefined) exitWithUsageError(`password ${problem}`);
  return { password: entered, generated: false };
}

/** Returns the first line of the input without its line end, or an empty text. */
async function readPassword(): Promise<string> {
  if (!process.stdin.isTTY) return (await text(process.stdin)).split(/\r?\n/, 1)[0]!;
  process.stderr.write("Password (leave empty to generate one): ");
  const discard = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: discard, terminal: true });
  try {
    return await terminal.question("");
  } finally {
    terminal.close();
    process.stderr.write("\n");
  }
}

async function main(): Promise<void> {
  const { positionals, values } = commandLine(HELP, { allowPositionals: true, options: OPTIONS });
  const [name = "help", username, ...extraArguments] = positionals;
  if (name === "help") return console.log(HELP);
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command || extraArguments.length > 0 || (username !== undefined && values.username !== undefined))
    return exitWithUsageError(`Unknown command: ${positionals.join(" ")}`);
  const { createServices } = await import("../services.ts");
  const { access, audit, settings, randomness, clock, tables } = createServices(loadConfig(process.env));
  await requireKnownFormat(tables);
  if (!READING.includes(name)) await audit.requireKeys();
  await command(
    access,
    { ...values, username: values.username ?? username },
    { actor: "system", requestId: randomness.ulid(clock.now()) },
    settings,
  );
}

try {
  await main();
} catch (error) {
  if (error instanceof Error && isUnclear(error)) {
    console.error(
      `The storage account does not respond (${error.message}). Check AzureWebJobsStorage and the network. The change may have been saved: check with list.`,
    );
  } else if (
    error instanceof Problem ||
    error instanceof ConfigError ||
    error instanceof SigningKeysMissing ||
    error instanceof StoreIsNewer
  )
    console.error(error.message);
  else if (error instanceof CloudFailure) console.error(`${error.message} ${error.remedy}`);
  else if (error instanceof StorageCorrupt)
    console.error(`${error.message} Stop the app, and run: npm run store -- sign`);
  else throw error;
  process.exitCode = 1;
}
