/**
 * Makes a user: `npm run user -- create --username NAME [--role user|auditor|admin] [--email ADDRESS] [--generate]`.
 *
 * Takes the same environment as the service. The password is asked for at a terminal and otherwise read from the first
 * line of standard input; with `--generate`, or when that is empty, one is made and printed, this once.
 */
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import * as z from "zod";
import { NewPassword, Username } from "../../shared/access/user.ts";
import { ConfigError, loadConfig } from "../../shared/config/config.ts";
import { ROLES } from "../../shared/http/endpoint.ts";
import { Problem } from "../../shared/http/problem.ts";
import { createServices } from "../services.ts";

const USAGE =
  "Usage: npm run user -- create --username NAME [--role user|auditor|admin] [--email ADDRESS] [--generate]";

const Wanted = z.object({
  username: Username,
  role: z.enum(ROLES).default("user"),
  email: z.email().optional(),
  password: NewPassword,
});

async function create(): Promise<void> {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      username: { type: "string" },
      role: { type: "string" },
      email: { type: "string" },
      generate: { type: "boolean", default: false },
    },
  });
  if (positionals.length !== 1 || positionals[0] !== "create" || values.username === undefined) {
    throw new UsageError(USAGE);
  }
  const config = loadConfig(process.env);
  const given = values.generate ? "" : await readPassword();
  const password = given === "" ? randomBytes(18).toString("base64url") : given;
  const { username, role, email } = values;
  const wanted = Wanted.safeParse({ username, role, email, password });
  if (!wanted.success) {
    throw new UsageError(wanted.error.issues.map((issue) => `${issue.path.join(".")} ${issue.message}`).join("\n"));
  }
  const { access, randomness, clock } = createServices(config);
  const caller = { actor: "system", requestId: randomness.ulid(clock.now()) };
  const user = await access.users.create(wanted.data, caller);
  console.log(`Made the user ${user.username} with the role ${user.role}.`);
  if (given === "") console.log(`Password, shown only now: ${password}`);
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

try {
  await create();
} catch (error) {
  const isArgument = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
  if (!(isArgument || error instanceof UsageError || error instanceof Problem || error instanceof ConfigError)) {
    throw error;
  }
  console.error(isArgument ? `${error.message}\n${USAGE}` : error.message);
  process.exitCode = 1;
}
