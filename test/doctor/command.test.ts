import { execFile } from "node:child_process";
import path from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

// Tests of `npm run doctor`, and of the endpoint that it calls with --url, with the built service.

const COMMAND = path.resolve(import.meta.dirname, "../../functions/commands/doctor.ts");
const SUBSCRIPTION = "aaaaaaaa-1111-4111-8111-111111111111";
const READER = { username: "reader", password: "a-reader-of-the-inventory", role: "user" } as const;

let service: Service;
beforeAll(async () => {
  const items = [{ name: "one", expiresInDays: 5 }];
  const vault = { name: "kv-shop", secrets: items, keys: items, certificates: [{ name: "web" }] };
  service = await Service.start({
    company: { subscriptions: [{ name: "Shop", id: SUBSCRIPTION, vaults: [vault] }] },
    env: { LICENSE_KEY: await licence() },
  });
});
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.allowOnly(undefined));

function doctor(args: string[], env: Record<string, string>): Promise<{ code: number; out: string; err: string }> {
  return new Promise((resolve) => {
    const environment = { PATH: process.env.PATH, HOME: process.env.HOME, ...env };
    execFile(process.execPath, [COMMAND, ...args], { env: environment }, (error, out, err) => {
      resolve({ code: error ? Number(error.code) : 0, out, err });
    });
  });
}

test("the command checks the service that the environment configures", { timeout: 300_000 }, async () => {
  const { code, out, err } = await doctor(["--all"], service.environment);
  expect([err, code]).toEqual(["", 0]);
  expect(out).toMatch(/keyVault\.listSecrets +works +1 of 1 +Scans: secrets/);
  expect(out).toMatch(
    /Everything that is needed works: \d+ calls work, .*Checked 1 of 1 subscriptions and 1 of their 1 vaults/,
  );
});

test("the command ends with 1 and prints the command that grants a missing permission", {
  timeout: 300_000,
}, async () => {
  const { control } = service.cloud;
  const own = { scope: control.vaultId("kv-lifecycle-service")!, actions: [], dataActions: ["Microsoft.KeyVault/*"] };
  const lists = ["Microsoft.Resources/subscriptions/read", "Microsoft.KeyVault/vaults/read"];
  control.allowOnly([own, { scope: `/subscriptions/${SUBSCRIPTION}`, actions: lists, dataActions: [] }]);
  const { code, out } = await doctor([], service.environment);
  expect(code).toBe(1);
  expect(out).toMatch(/keyVault\.listSecrets +permission missing +0 of 1/);
  expect(out).toMatch(/az role assignment create .*21090545-7ca7-4776-b22c-e363652d74d2/);
  expect(out).toContain("docs/permissions.md#watched-subscriptions");
  expect(out).not.toMatch(/arm\.listVaults/);
  expect(out).toContain("Something that is needed is missing");
});

test("with --url, the command asks a deployed service with an administrator's token", {
  timeout: 300_000,
}, async () => {
  const token = await service.signIn(ADMIN);
  const json = await doctor(["--url", service.url, "--json"], { SERVICE_TOKEN: token });
  expect([json.err, json.code]).toEqual(["", 0]);
  const { status, body } = await service.call("POST", "/system/permissions/check", { token });
  expect(status).toBe(200);
  const namesOf = (check: { calls: { id: string; outcome: string }[] }) =>
    check.calls.map(({ id, outcome }) => `${id} ${outcome}`);
  expect(namesOf(JSON.parse(json.out))).toEqual(namesOf(body));

  await createUsers(service, [READER]);
  const denied = await doctor(["--url", service.url], { SERVICE_TOKEN: await service.signIn(READER) });
  expect([denied.code, denied.out]).toEqual([1, ""]);
  expect(denied.err).toMatch(/answered 403: /);
  const plain = await doctor(["--url", "http://service.example.com"], { SERVICE_TOKEN: token });
  expect([plain.code, plain.err]).toEqual([2, expect.stringContaining("must start with https")]);
  const withoutToken = await doctor(["--url", service.url], {});
  expect([withoutToken.code, withoutToken.err]).toEqual([2, "SERVICE_TOKEN is not set. See --help.\n"]);
});
