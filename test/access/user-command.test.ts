import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { deriveWithScrypt } from "../../shared/access/passwords.ts";
import { NO_SECOND_FACTOR } from "../../shared/access/second-factor-record.ts";
import { USERS_PARTITION, User } from "../../shared/access/user.ts";
import type { Audit } from "../../shared/audit/audit.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import type { Actor } from "../../shared/platform/http/endpoint.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { createSettings } from "../../shared/settings/settings.ts";
import { recordingLog } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";
import { authenticateToken, CALLER, Deployment, type Instance } from "./instances.ts";

// Tests of the command line tool that manages users (`npm run user`), which runs as a process of its own.

let azurite: TestStorage;
let deployment: Deployment;
let instance: Instance;

beforeAll(async () => {
  azurite = await openStorage(["test", "authenticated"]);
  deployment = new Deployment(azurite.connectionString());
  // No bootstrap administrator: the command creates all users.
  const noBootstrapAdmin = { BOOTSTRAP_ADMIN_USERNAME: undefined, BOOTSTRAP_ADMIN_PASSWORD: undefined };
  instance = deployment.start({ derive: deriveWithScrypt, config: noBootstrapAdmin });
});
afterAll(() => azurite.stop());

const SOURCE = fileURLToPath(new URL("../../functions/commands/user.ts", import.meta.url));

/** Runs the command with `typed` on its standard input. */
function run(
  args: string[],
  typed = "",
  change: NodeJS.ProcessEnv = {},
  command = COMMANDS.user,
): Promise<{ code: number; out: string; err: string }> {
  const env = {
    PATH: process.env.PATH,
    NODE_COMPILE_CACHE: COMPILE_CACHE,
    AzureWebJobsStorage: azurite.connectionString(),
    JWT_SIGNING_KEYS: `k1:${randomBytes(32).toString("base64")}`,
    ...change,
  };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [command, ...args], { env }, (error, out, err) => {
      resolve({ code: error ? Number(error.code) : 0, out, err });
    });
    child.stdin!.end(typed);
  });
}

const signIn = async (username: string, password: string) =>
  (await instance.access.signIn({ username, password }, CALLER)).access_token;
const isValid = async (token: string) => (await authenticateToken(instance, token)).kind === "valid";

describe("the user command", () => {
  test("creates users with a typed or a generated password, and lists them", async () => {
    const withTypedPassword = await run(
      ["create", "--username", "maria", "--role", "auditor"],
      "a typed long password\n",
    );
    expect(withTypedPassword).toMatchObject({ code: 0, err: "" });
    expect(withTypedPassword.out).toContain("Created the user maria with the role auditor.");
    expect(withTypedPassword.out).not.toContain("a typed long password");
    const withGeneratedPassword = await run([
      "create",
      "--username",
      "bob",
      "--generate",
      "--email",
      "bob@example.com",
    ]);
    const password = /shown only once: (\S+)/.exec(withGeneratedPassword.out)![1]!;
    expect(await signIn("maria", "a typed long password")).toBeDefined();
    expect(await signIn("bob", password)).toBeDefined();
    // The intent and the outcome of each of the two creations.
    expect(await deployment.auditEntries("user.created")).toHaveLength(4);
    // Runs the source file, as users do, not the bundle.
    const { out } = await run(["list"], "", {}, SOURCE);
    expect(out.split("\n")).toEqual([
      expect.stringMatching(/^bob\tuser\tactive\t\d{4}-\d\d-\d\dT\S+\tbob@example\.com\tlocal\t$/),
      expect.stringMatching(/^maria\tauditor\tactive\t\d{4}-\d\d-\d\dT\S+\t\tlocal\t$/),
      "",
    ]);
  });

  test("refuses to write without the keys of an authenticated audit log", async () => {
    const AzureWebJobsStorage = azurite.connectionString("authenticated");
    const AUDIT_SIGNING_KEYS = `k1:${randomBytes(32).toString("base64")}`;
    const create = ["create", "--generate", "--username"];
    expect(await run([...create, "maria"], "", { AzureWebJobsStorage, AUDIT_SIGNING_KEYS })).toMatchObject({ code: 0 });
    const refused = await run([...create, "bob"], "", { AzureWebJobsStorage });
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("AUDIT_SIGNING_KEYS: is missing") });
    const { out } = await run(["list"], "", { AzureWebJobsStorage });
    expect(out).toMatch(/^maria\t[^\n]*\n$/);
  });

  test("changes role, state and password, unlocks and deletes a user", async () => {
    await run(["create", "--username", "eve", "--role", "user"], "a typed long password\n");
    const signInAsEve = (password = "a typed long password") => signIn("eve", password);

    let token = await signInAsEve();
    expect((await run(["role", "--username", "eve", "--role", "operator"])).out).toContain(
      "Changed the role of eve to operator.",
    );
    expect(await isValid(token)).toBe(false);

    token = await signInAsEve();
    expect((await run(["disable", "--username", "eve"])).code).toBe(0);
    expect(await isValid(token)).toBe(false);
    await expect(signInAsEve()).rejects.toMatchObject({ code: "invalidCredentials" });
    expect((await run(["enable", "--username", "eve"])).code).toBe(0);
    expect(await isValid(token)).toBe(false);

    token = await signInAsEve();
    const reset = await run(["password", "--username", "eve", "--generate"]);
    const password = /shown only once: (\S+)/.exec(reset.out)![1]!;
    expect(await isValid(token)).toBe(false);
    await expect(signInAsEve()).rejects.toMatchObject({ code: "invalidCredentials" });

    token = await signInAsEve(password);
    const updateEntries = await deployment.auditEntries("user.updated");
    expect(updateEntries.every(({ actor }) => actor === "system")).toBe(true);
    expect(JSON.stringify(updateEntries)).not.toContain(password);
    expect((await run(["unlock", "--username", "eve"])).out).toContain("Unlocked eve.");
    expect(await isValid(token)).toBe(true);

    expect((await run(["delete", "--username", "eve"])).code).toBe(0);
    expect(await isValid(token)).toBe(false);
    expect((await run(["delete", "--username", "eve"])).err).toContain("does not exist");
  });

  test("resets a second factor, which ends tokens, with the name as an option or after the command", async () => {
    await run(["create", "--username", "ann", "--role", "user"], "a typed long password\n");
    const tables = createTables({ connectionString: azurite.connectionString() });
    const passkey = { id: "1", name: "", credentialId: "x", publicKey: "x", counter: 0, transports: [], rpId: "x" };
    for (const args of [["--username", "ann"], ["ann"]]) {
      const token = await signIn("ann", "a typed long password");
      await tables.modify(User, USERS_PARTITION, "ann", (user) => ({
        ...user!,
        secondFactor: { ...NO_SECOND_FACTOR, passkeys: [{ ...passkey, createdAt: user!.createdAt }] },
      }));
      await expect(signIn("ann", "a typed long password")).rejects.toMatchObject({ code: "secondFactorRequired" });
      expect((await run(["reset-second-factor", ...args])).out).toContain("Removed the second factor of ann.");
      expect(await isValid(token)).toBe(false);
    }
    expect((await run(["reset-second-factor", "ann"])).err).toContain("A second factor of this user does not exist.");
    expect((await run(["reset-second-factor", "ann", "--username", "eve"])).code).toBe(2);
  });

  test("lists API tokens, revokes those of a user, and sets a password that the user must change", async () => {
    await run(["create", "--username", "tim", "--role", "operator"], "a typed long password\n");
    const tim: Actor = {
      username: "tim",
      role: "operator",
      credential: { kind: "session", id: "", since: new Date() },
    };
    const tokenRequest = { name: "nightly", role: "operator", expiresInDays: 7 } as const;
    const { id, token } = await instance.access.apiTokens.create(tim, tokenRequest, CALLER);
    const listed = (await run(["tokens"])).out;
    expect(listed).toMatch(new RegExp(`^${id}\ttim\tnightly\toperator\t\\S+Z\tnever\n$`));
    expect((await run(["tokens", "--username", "maria"])).out).toBe("");
    expect(await isValid(token)).toBe(true);
    expect((await run(["end-tokens", "--username", "tim"])).out).toContain("Revoked the API tokens");
    expect(await isValid(token)).toBe(false);
    expect((await deployment.auditEntries("apiToken.allEnded"))[0]).toMatchObject({
      outcome: "success",
      actor: "system",
    });

    // A password that an administrator sets must be changed by the user.
    await run(["password", "--username", "tim"], "another long password\n");
    const authenticated = await authenticateToken(instance, await signIn("tim", "another long password"));
    expect(authenticated).toMatchObject({ actor: { username: "tim", mustChangePassword: true } });
  });

  test("does not delete the last administrator", async () => {
    await run(["create", "--username", "root", "--role", "admin", "--generate"]);
    const { code, err } = await run(["delete", "--username", "root"]);
    expect([code, err]).toEqual([1, expect.stringContaining("last administrator")]);
    const entries = await deployment.auditEntries("user.deleted");
    expect(entries[0]).toMatchObject({ outcome: "refused", actor: "system", details: { reason: "conflict" } });
  });

  test("prints a clear error if storage can't be reached", async () => {
    const { code, out, err } = await run(["list"], "", {
      NODE_OPTIONS: `--import=${new URL("../support/short-waits.mjs", import.meta.url).href}`,
      AzureWebJobsStorage: azurite.connectionString().replaceAll(/(127\.0\.0\.1):\d+/g, "$1:1"),
    });
    expect([code, out]).toEqual([1, ""]);
    expect(err).toMatch(/^The storage account does not respond \(.*ECONNREFUSED.*\)\. .*\n$/);
  });

  test("lists a user's sessions and ends them", async () => {
    await run(["create", "--username", "ada", "--role", "user"], "a typed long password\n");
    for (const browser of ["one", "two"]) {
      await instance.access.signInToSession({ username: "ada", password: "a typed long password" }, CALLER, browser);
    }
    const listed = (await run(["sessions", "--username", "ada"])).out.trimEnd().split("\n");
    expect(listed).toEqual(Array(2).fill(expect.stringMatching(/^ada\.\S+(\t\d{4}-\d\d-\d\dT\S+Z){3}\tpassword\t/)));
    expect((await run(["end-sessions", "--username", "ada"])).out).toBe("Ended 2 sessions of ada.\n");
    expect((await run(["sessions", "--username", "ada"])).out).toBe("");
    expect((await deployment.auditEntries("session.ended"))[0]).toMatchObject({ outcome: "success", actor: "system" });
    expect((await run(["sessions", "--username", "nobody"])).err).toContain("does not exist");
  });

  test("turns off the confirmations that the environment requires, and records it", async () => {
    const required = { REQUIRE_STEP_UP: "true", REQUIRE_APPROVAL: "true" };
    const { code, out } = await run(["turn-off-confirmations"], "", required);
    expect([code, out]).toEqual([0, expect.stringContaining("Turned off requireStepUp and requireApproval.")]);
    const tables = createTables({ connectionString: azurite.connectionString() });
    const settings = (environment: Record<string, string>) =>
      createSettings({
        tables,
        config: loadConfig({
          AzureWebJobsStorage: azurite.connectionString(),
          JWT_SIGNING_KEYS: `k1:${randomBytes(32).toString("base64")}`,
          ...environment,
        }),
        clock: deployment.clock,
        audit: {} as Audit,
        log: recordingLog(),
      });
    expect(await settings(required).values()).toMatchObject({ requireStepUp: false, requireApproval: false });
    expect((await deployment.auditEntries("settings.changed"))[0]).toMatchObject({
      actor: "system",
      outcome: "success",
      after: { requireStepUp: { value: false }, requireApproval: { value: false } },
    });
    expect((await run(["turn-off-confirmations"], "", required)).code).toBe(0);
    expect(await deployment.auditEntries("settings.changed")).toHaveLength(2);
  });

  // The exit code is 2 for a wrong use of the command, which it finds out itself, and 1 if the service rejects the request.
  test.each([
    ["a short password", ["create", "--username", "zoe"], "short\n", "password must have at least 12 characters", 2],
    ["a common password", ["create", "--username", "zoe"], "password1234\n", "easy to guess", 1],
    ["a bad username", ["create", "--username", "e/ve", "--generate"], "", "username must be", 2],
    ["a reserved username", ["create", "--username", "System", "--generate"], "", "is reserved", 2],
    ["a role that is not given", ["role", "--username", "maria"], "", "role ", 2],
    ["an unknown option", ["create", "--name", "eve"], "", "Unknown option '--name'. See --help.", 2],
    ["no username", ["create"], "", "--username is missing", 2],
    ["an unknown command", ["constructor", "--username", "maria"], "", "Unknown command: constructor. See --help.", 2],
  ])("rejects %s and prints why", async (_description, args, typed, reason, expectedCode) => {
    const { code, out, err } = await run(args, typed);
    expect(code).toBe(expectedCode);
    expect(err).toContain(reason);
    expect(err).not.toContain("    at ");
    expect(out).toBe("");
  });

  test("prints its help", async () => {
    for (const args of [[], ["help"]]) {
      const { code, out } = await run(args);
      expect([code, out]).toEqual([0, expect.stringContaining("npm run user -- COMMAND")]);
    }
  });
});
