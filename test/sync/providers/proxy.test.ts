import { generateKeyPairSync } from "node:crypto";
import type { ServerResponse } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../../shared/platform/runtime.ts";
import type { SyncTarget } from "../../../shared/sync/providers/provider.ts";
import { providerDependencies } from "../../../shared/sync/providers/provider-dependencies.ts";
import { providerOf } from "../../../shared/sync/providers/providers.ts";
import { type FakeServer, startFakeServer } from "../../azure/odd-server.ts";
import { failureOf, markOf } from "./simulated-provider.ts";

/**
 * A proxy or a sign-in page between the service and a provider responds with HTML. Its status must not be taken for the provider's,
 * for example 401 for wrong credentials.
 */

let server: FakeServer;
let serviceAccountKey: string;
beforeAll(async () => {
  server = await startFakeServer();
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  serviceAccountKey = JSON.stringify({
    type: "service_account",
    client_email: "sync@acme.example",
    private_key_id: "1",
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }),
  });
});
afterAll(() => server?.stop());

/** Opens a target of a provider at the fake server, and returns it with a valid name of a secret. */
function openTarget(id: string): [target: SyncTarget, name: string] {
  const address = `https://localhost:${server.port}`;
  const config = {
    AWS_ENDPOINT_URL: address,
    GITHUB_API_URL: address,
    GOOGLE_SECRET_MANAGER_ENDPOINT: address,
    PRIVATE_TARGET_HOSTS: [`localhost:${server.port}`],
  };
  const noVaults = async () => {
    throw new Error("There are no vaults here.");
  };
  const deps = { ...providerDependencies(config, systemClock), vaultSecrets: noVaults };
  const [service, settings, secrets, name] = {
    aws: [
      "parameterstore",
      { region: "eu-west-1" },
      { accessKeyId: "A".repeat(20), secretAccessKey: "s".repeat(40) },
      "/db",
    ],
    hashicorp: ["kv", { address }, { token: "token" }, "db"],
    google: ["secretmanager", { projectId: "acme-payments" }, { serviceAccountKey }, "db"],
    github: ["actions", {}, { token: "token" }, "acme/shop/DB"],
    kubernetes: ["secret", { address, namespace: "payments" }, { token: "token" }, "db"],
  }[id] as [string, object, object, string];
  return [providerOf(id)!.open({ service, region: undefined }, { ...settings }, { ...secrets }, deps), name];
}

/** Returns a handler that responds with an HTML page. */
const htmlPage = (status: number, headers: Record<string, string> = {}) => {
  return (_: unknown, response: ServerResponse) =>
    void response.writeHead(status, { "content-type": "text/html", ...headers }).end("<title>Sign in</title>");
};

test.each(
  ["aws", "hashicorp", "google", "github", "kubernetes"].flatMap((id) =>
    [401, 403, 404, 407].map((status): [string, number] => [id, status]),
  ),
)("%s: an HTML page with the status %i is a bad response", async (id, status) => {
  server.setResponse(htmlPage(status));
  const [target, name] = openTarget(id);
  expect(await failureOf(target.describe(name))).toMatchObject({ code: "badResponse", unclear: true });
  expect(await failureOf(target.put(name, "one", markOf("v1"), { exists: false }))).toMatchObject({
    code: "badResponse",
  });
});

test.each(["aws", "hashicorp", "google", "github", "kubernetes"])("%s: a redirect is not followed", async (id) => {
  let elsewhere = 0;
  server.setResponse((request, response) => {
    if (request.url?.startsWith("/elsewhere")) elsewhere++;
    htmlPage(302, { location: `https://localhost:${server.port}/elsewhere` })(request, response);
  });
  const [target, name] = openTarget(id);
  expect(await failureOf(target.describe(name))).toMatchObject({ code: "badResponse" });
  expect([elsewhere, server.requests.length > 0]).toEqual([0, true]);
});
