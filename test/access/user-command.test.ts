import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { deriveWithScrypt } from "../../shared/access/passwords.ts";
import { Deployment, HERE } from "./instances.ts";

let azurite: Azurite;

beforeAll(async () => {
  azurite = await startAzurite();
});
afterAll(() => azurite.stop());

const COMMAND = fileURLToPath(new URL("../../functions/commands/user.ts", import.meta.url));

/** Runs it with `typed` on its standard input. */
function run(args: string[], typed: string): Promise<{ code: number; out: string; err: string }> {
  const env = {
    PATH: process.env.PATH,
    AzureWebJobsStorage: azurite.connectionString(),
    JWT_SIGNING_KEYS: `k1:${randomBytes(32).toString("base64")}`,
  };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [COMMAND, ...args], { env }, (error, out, err) => {
      resolve({ code: error ? Number(error.code) : 0, out, err });
    });
    child.stdin!.end(typed);
  });
}

test("the user command makes users who can sign in, with a given password or one it prints", async () => {
  const given = await run(["create", "--username", "maria", "--role", "auditor"], "a typed long password\n");
  expect(given).toMatchObject({ code: 0, err: "" });
  expect(given.out).toContain("Made the user maria with the role auditor.");
  expect(given.out).not.toContain("a typed long password");
  const made = await run(["create", "--username", "bob", "--generate"], "");
  const password = /shown only now: (\S+)/.exec(made.out)![1]!;

  const deployment = new Deployment(azurite.connectionString());
  const { access } = deployment.start({ derive: deriveWithScrypt });
  expect(await access.signIn({ username: "maria", password: "a typed long password" }, HERE)).toBeDefined();
  expect(await access.signIn({ username: "bob", password }, HERE)).toBeDefined();
  expect(await deployment.entries("user.created")).toHaveLength(4);
});

test.each([
  ["a short password", ["create", "--username", "eve"], "short\n", "password must have at least 12 characters"],
  ["a bad username", ["create", "--username", "e/ve", "--generate"], "", "username must be"],
  ["an unknown role", ["create", "--username", "eve", "--role", "root", "--generate"], "", "role "],
  ["an unknown option", ["create", "--name", "eve"], "", "Usage: npm run user"],
  ["no username", ["create"], "", "Usage: npm run user"],
])("the user command refuses %s and says why", async (_what, args, typed, reason) => {
  const { code, out, err } = await run(args, typed);
  expect(code).toBe(1);
  expect(err).toContain(reason);
  expect(err).not.toContain("    at ");
  expect(out).toBe("");
});
