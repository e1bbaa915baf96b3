import { runHost } from "functions-host/test/run-host.ts";
import { expect, test } from "vitest";
import { TEST_APP } from "../support/test-app.ts";

/*
 * Tests of a start with invalid environment variables: the process ends, and its output names each invalid variable without its
 * value. Each invalid value contains the word "planted", directly or as base64 ("cGxhbnRlZ"), so that a leak is found.
 */

const validEnvironment = {
  // No server listens on this port. The configuration is checked before any request.
  AzureWebJobsStorage:
    "DefaultEndpointsProtocol=http;AccountName=test;AccountKey=cGxhbnRlZC1hY2NvdW50LWtleQ==;TableEndpoint=http://127.0.0.1:9/test;QueueEndpoint=http://127.0.0.1:9/test",
  JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaWduaW5nLWtleS1vZi0zMi1ieXRlcy0uLi4uLi4u",
};

/** Starts the app, expects the start to fail, and returns its output. */
async function failedStartOutput(env: Record<string, string>): Promise<string> {
  const failure = await runHost({ app: TEST_APP, env }).then(
    async (host) => {
      await host.stop("SIGKILL");
      return new Error("It started.");
    },
    (error: Error) => error,
  );
  expect(failure.message).toContain("The host ended with 1");
  return failure.message;
}

test("the start fails on invalid values, and names each variable without showing its value", async () => {
  const invalidEnvironment: Record<string, string> = {
    AZURE_CLOUD: "planted-cloud",
    AZURE_TENANT_ID: "planted-tenant",
    AZURE_SUBSCRIPTION_IDS: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43,planted-subscription",
    AZURE_RESOURCE_MANAGER_ENDPOINT: "http://planted-manager",
    JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaG9ydA==",
    // 41 bytes: valid for a token's key, but an Ed25519 key has exactly 32.
    AUDIT_SIGNING_KEYS: "test:cGxhbnRlZC1rZXktd2hpY2gtaXMtbG9uZ2VyLXRoYW4tMzItYnl0ZXM=",
    BOOTSTRAP_ADMIN_USERNAME: "planted name",
    BOOTSTRAP_ADMIN_PASSWORD: "planted-pw",
    RATE_LIMIT_PER_MINUTE: "-44444444",
    TRUSTED_PROXY_HOPS: "77777777",
    FULL_SCAN_SCHEDULE: "planted-daily",
    DISCOVERY_MAX_WORKERS: "many-planted",
    LOG_LEVEL: "planted-level",
    ENABLE_NOTIFICATIONS: "planted-yes",
    LICENSE_KEY: "@Microsoft.KeyVault(SecretUri=https://planted.vault.azure.net/secrets/licence)",
  };
  const output = await failedStartOutput({ ...validEnvironment, ...invalidEnvironment });
  for (const [name, value] of Object.entries(invalidEnvironment)) {
    expect(output).toContain(`${name}:`);
    expect(output).not.toContain(value);
  }
  expect(output).toContain("AUDIT_SIGNING_KEYS: must be a list of kid:base64 with exactly 32 bytes in each key");
  expect(output).not.toContain("planted");
  expect(output).not.toContain("cGxhbnRlZ");
});

test("the start names missing variables", async () => {
  const output = await failedStartOutput({});
  for (const name of ["AzureWebJobsStorage", "JWT_SIGNING_KEYS"]) expect(output).toContain(`${name}: is missing`);
});

test("the start names variables that are missing or invalid in combination with another", async () => {
  const output = await failedStartOutput({
    ...validEnvironment,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    AZURE_CLIENT_SECRET: "planted-client-secret",
    CRITICAL_EXPIRY_DAYS: "30",
  });
  for (const name of ["BOOTSTRAP_ADMIN_PASSWORD", "AZURE_CLIENT_SECRET", "CRITICAL_EXPIRY_DAYS"])
    expect(output).toContain(`${name}:`);
  expect(output).not.toContain("planted");
});

// Infrastructure templates write an empty value for a parameter that is not set.
test("an empty value counts as not set", async () => {
  const emptyValues = {
    AZURE_CLOUD: "",
    AZURE_TENANT_ID: "",
    BOOTSTRAP_ADMIN_USERNAME: "",
    LICENSE_KEY: "",
    LOG_LEVEL: "",
  };
  const host = await runHost({ app: TEST_APP, env: { ...validEnvironment, ...emptyValues } });
  expect((await fetch(`${host.url}/health`)).status).toBe(200);
  await host.stop("SIGKILL");
});
