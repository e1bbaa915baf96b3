import { runHost } from "functions-host/test/run-host.ts";
import { expect, test } from "vitest";
import { TEST_APP } from "../support/test-app.ts";

const good = {
  // Nothing listens on this port. The configuration is checked before any request.
  AzureWebJobsStorage:
    "DefaultEndpointsProtocol=http;AccountName=test;AccountKey=cGxhbnRlZC1hY2NvdW50LWtleQ==;TableEndpoint=http://127.0.0.1:9/test;QueueEndpoint=http://127.0.0.1:9/test",
  JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaWduaW5nLWtleS1vZi0zMi1ieXRlcy0uLi4uLi4u",
};

/** Output of an app that did not start. */
async function complaint(env: Record<string, string>): Promise<string> {
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

test("invalid values stop the start: each is named and none is shown", async () => {
  const bad: Record<string, string> = {
    AZURE_CLOUD: "planted-cloud",
    AZURE_TENANT_ID: "planted-tenant",
    AZURE_SUBSCRIPTION_IDS: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43,planted-subscription",
    AZURE_RESOURCE_MANAGER_ENDPOINT: "http://planted-manager",
    JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaG9ydA==",
    // 41 bytes: enough for a token's key, too long for an Ed25519 key.
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
  const said = await complaint({ ...good, ...bad });
  for (const [name, value] of Object.entries(bad)) {
    expect(said).toContain(`${name}:`);
    expect(said).not.toContain(value);
  }
  expect(said).toContain("AUDIT_SIGNING_KEYS: must be a list of kid:base64 with exactly 32 bytes in each key");
  expect(said).not.toContain("planted");
  expect(said).not.toContain("cGxhbnRlZ");
});

test("missing settings, and settings that conflict with another, are named too", async () => {
  const nothing = await complaint({});
  for (const name of ["AzureWebJobsStorage", "JWT_SIGNING_KEYS"]) expect(nothing).toContain(`${name}: is missing`);
  const said = await complaint({
    ...good,
    BOOTSTRAP_ADMIN_USERNAME: "admin",
    AZURE_CLIENT_SECRET: "planted-client-secret",
    CRITICAL_EXPIRY_DAYS: "30",
  });
  for (const name of ["BOOTSTRAP_ADMIN_PASSWORD", "AZURE_CLIENT_SECRET", "CRITICAL_EXPIRY_DAYS"])
    expect(said).toContain(`${name}:`);
  expect(said).not.toContain("planted");
});

test("empty values count as not set, as templates write them", async () => {
  const empty = { AZURE_CLOUD: "", AZURE_TENANT_ID: "", BOOTSTRAP_ADMIN_USERNAME: "", LICENSE_KEY: "", LOG_LEVEL: "" };
  const host = await runHost({ app: TEST_APP, env: { ...good, ...empty } });
  expect((await fetch(`${host.url}/health`)).status).toBe(200);
  await host.stop("SIGKILL");
});
