import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { type Cloud, startCloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { loadConfig } from "../../shared/platform/config/config.ts";

// Tests of the script that a deployment runs to create the service's secrets in the service's key vault.

const SCRIPT = path.resolve(import.meta.dirname, "../../infra/azure/scripts/make-secrets.ts");
const SUBSCRIPTION = "11111111-2222-4333-8444-555555555555";
const RESOURCE_GROUP_ID = `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg-lifecycle`;
const SECRET_NAMES = ["audit-signing-keys", "bootstrap-admin-password", "jwt-signing-keys"];

let cloud: Cloud;
beforeAll(async () => {
  const app = { type: "Microsoft.Web/sites", name: "func-own", resourceGroup: "rg-lifecycle", kind: "functionapp" };
  cloud = await startCloud({ company: { subscriptions: [{ name: "Platform", id: SUBSCRIPTION, resources: [app] }] } });
});
afterAll(() => cloud.stop());
beforeEach(() => {
  cloud.control.clearFaults();
  // As in a deployment with private networking, the vault is reachable only through the resource manager.
  const vault = { name: "kv-own", resourceGroup: "rg-lifecycle", reach: "privateOnly" } as const;
  cloud.control.putVault(SUBSCRIPTION, { ...vault, publicNetworkAccess: "Disabled" });
  cloud.control.resetCounts();
});

function runScript(
  environment: Record<string, string> = {},
  password?: string,
): Promise<{ stdout: string; stderr: string }> {
  const env = {
    PATH: process.env.PATH,
    ...cloud.environment,
    AZURE_CLIENT_ID: cloud.app.clientId,
    AZURE_CLIENT_SECRET: cloud.app.clientSecret,
    SERVICE_KEY_VAULT_ID: `${RESOURCE_GROUP_ID}/providers/Microsoft.KeyVault/vaults/kv-own`,
    SERVICE_FUNCTION_APP_ID: `${RESOURCE_GROUP_ID}/providers/Microsoft.Web/sites/func-own`,
    ...environment,
  };
  const run = promisify(execFile)(process.execPath, [SCRIPT, ...(password ? ["--password-stdin"] : [])], { env });
  run.child.stdin?.end(password);
  return run;
}

const secretNames = () => cloud.control.items("kv-own", "secrets").map(({ name }) => name);
const secretValues = () => SECRET_NAMES.map((name) => cloud.control.secretValue("kv-own", name));

test("a first deployment creates each secret in the form that the service's configuration accepts, and prints none", {
  timeout: 150_000,
}, async () => {
  const { stdout, stderr } = await runScript();
  expect(secretNames().sort()).toEqual(SECRET_NAMES);
  const [audit, password, jwt] = secretValues() as [string, string, string];
  expect(new Set([audit, password, jwt]).size).toBe(3);
  for (const value of [audit, password, jwt]) expect(stdout + stderr).not.toContain(value.split(":").at(-1));
  const config = loadConfig({
    AzureWebJobsStorage: "UseDevelopmentStorage=true",
    JWT_SIGNING_KEYS: jwt,
    AUDIT_SIGNING_KEYS: audit,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    BOOTSTRAP_ADMIN_PASSWORD: password,
  });
  expect([config.JWT_SIGNING_KEYS[0]!.key.length, config.AUDIT_SIGNING_KEYS![0]!.key.length]).toEqual([32, 32]);
  expect(cloud.control.counts()).toMatchObject({ "arm.putSecret": 3, "arm.refreshReferences": 1 });
  // The vault's own address was not called, because it does not answer.
  expect(Object.keys(cloud.control.counts()).filter((name) => name.startsWith("keyvault."))).toEqual([]);
});

test("a repeated deployment creates the secrets that an interrupted one did not, and changes no existing secret", {
  timeout: 150_000,
}, async () => {
  cloud.control.putSecret("kv-own", { name: "jwt-signing-keys", value: "existing" });
  cloud.control.addFault({ match: { operation: "arm.putSecret" }, action: { kind: "deny" }, after: 1 });
  await expect(runScript()).rejects.toMatchObject({ code: 1 });
  expect(secretNames().sort()).toEqual(["audit-signing-keys", "jwt-signing-keys"]);
  const [audit] = secretValues();

  cloud.control.clearFaults();
  await runScript();
  const completedValues = secretValues();
  expect(completedValues).toMatchObject([audit, expect.any(String), "existing"]);

  const { stdout, stderr } = await runScript();
  expect(secretValues()).toEqual(completedValues);
  expect(stdout).toContain("Nothing was changed.");
  expect(stderr).toBe("");
  expect((await runScript({ ALERTS_NOTIFY_NOBODY: "true" })).stderr).toContain("WARNING: nobody is notified");
});

test("a password from standard input becomes the first administrator's, also in place of an existing one", {
  timeout: 150_000,
}, async () => {
  for (const password of ["a password of my own", "another password"]) {
    const { stdout, stderr } = await runScript({}, `${password}\n`);
    expect(cloud.control.secretValue("kv-own", "bootstrap-admin-password")).toBe(password);
    expect(stdout + stderr).not.toContain(password);
  }
  const before = secretValues();
  await expect(runScript({}, "short")).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("12 to 256") });
  expect(secretValues()).toEqual(before);
});

test("an invalid resource ID is rejected before any request", async () => {
  await expect(runScript({ SERVICE_KEY_VAULT_ID: "kv-own" })).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringContaining("SERVICE_KEY_VAULT_ID"),
  });
  expect(cloud.control.counts()).toEqual({ total: 0 });
});
