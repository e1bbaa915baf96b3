import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createDevopsClient } from "../../shared/devops/client.ts";
import { organizationAddress } from "../../shared/devops/org-url.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { type OddServer, startOddServer } from "../azure/odd-server.ts";
import { failureOf, IMPATIENT, plainIdentity, recordingLog } from "../azure/services.ts";

const NONE = { AZURE_DEVOPS_ENDPOINT: undefined };
const OWN = { AZURE_DEVOPS_ENDPOINT: "https://devops.acme.example:8443/tfs" };

describe("an organization's address", () => {
  test("is a URL of Azure DevOps, in either form", () => {
    for (const [orgUrl, address] of [
      ["https://dev.azure.com/acme", "https://dev.azure.com/acme"],
      ["https://dev.azure.com/Acme-2/", "https://dev.azure.com/Acme-2"],
      ["https://acme.visualstudio.com", "https://dev.azure.com/acme"],
      ["https://acme.visualstudio.com/", "https://dev.azure.com/acme"],
    ] as const) {
      expect(organizationAddress(orgUrl, NONE)).toBe(address);
      expect(organizationAddress(orgUrl, OWN)).toBe(
        address.replace("https://dev.azure.com", OWN.AZURE_DEVOPS_ENDPOINT),
      );
    }
  });

  test("may be at the configured endpoint", () => {
    const own = OWN.AZURE_DEVOPS_ENDPOINT;
    expect(organizationAddress(own, OWN)).toBe(own);
    expect(organizationAddress(`${own}/Collection/`, OWN)).toBe(`${own}/Collection`);
    for (const rest of ["x", ".evil.example/acme", "/a/b", "/..", "/%2e%2e", "/acme?x=1", "@evil.example/acme"]) {
      expect(organizationAddress(own + rest, OWN)).toBeUndefined();
    }
    expect(organizationAddress(own, NONE)).toBeUndefined();
  });

  test.each([
    "http://dev.azure.com/acme",
    "https://dev.azure.com",
    "https://dev.azure.com/",
    "https://dev.azure.com:443/acme",
    "https://dev.azure.com:8443/acme",
    "https://dev.azure.com./acme",
    "https://DEV.AZURE.COM/acme",
    "https://user@dev.azure.com/acme",
    "https://user:word@dev.azure.com/acme",
    "https://dev.azure.com@evil.example/acme",
    "https://dev.azure.com.evil.example/acme",
    "https://evil.example/dev.azure.com/acme",
    "https://evil.example#dev.azure.com/acme",
    "https://dev.azure.com/acme/project",
    "https://dev.azure.com/acme/../mallory",
    "https://dev.azure.com/%61cme",
    "https://dev.azure.com/acme?x=1",
    "https://dev.azure.com/acme#x",
    "https://dev.azure.com//acme",
    "https://dev.azure.com\\acme",
    "https:\\\\dev.azure.com/acme",
    "https://dev.azure.com/acme\n",
    " https://dev.azure.com/acme",
    "https://dev.azure.com/-acme",
    "https://dev.azure.com/acme_x",
    // Letters and full stops that look like others.
    "https://dev.azure.com/\u0430cme",
    "https://dev\u3002azure.com/acme",
    "https://dev.azure.com/\uff41cme",
    "https://\u017fome.visualstudio.com",
    "https://a.b.visualstudio.com",
    "https://visualstudio.com/acme",
    "https://acme.visualstudio.com/DefaultCollection",
    "https://acme.visualstudio.com:443",
    "https://acme.visualstudio.com.",
    "https://acme.visualstudio.com.evil.example",
    `https://dev.azure.com/${"a".repeat(51)}`,
    "file:///dev.azure.com/acme",
    "",
  ])("is not %s", (orgUrl) => {
    expect(organizationAddress(orgUrl, NONE)).toBeUndefined();
  });
});

describe("a token", () => {
  let server: OddServer;
  let elsewhere: OddServer;
  beforeAll(async () => {
    [server, elsewhere] = await Promise.all([startOddServer(), startOddServer()]);
  });
  afterAll(() => Promise.all([server?.stop(), elsewhere?.stop()]));

  const client = () =>
    createDevopsClient({
      address: `https://devops.localhost:${server.port}/acme`,
      identity: plainIdentity,
      log: recordingLog(),
      randomness: systemRandomness(),
      limits: IMPATIENT,
    });

  test.each([301, 302, 303, 307, 308])("is not sent along with a redirect (%i)", async (status) => {
    const there = `https://evil.localhost:${elsewhere.port}/_apis/projects`;
    server.answer((_, response) => response.writeHead(status, { location: there }).end());
    elsewhere.answer((_, response) => response.writeHead(200).end("{}"));
    expect(await failureOf(client().user())).toMatchObject({ code: "unauthorized" });
    expect(server.requests).toHaveLength(1);
    expect(elsewhere.requests).toEqual([]);
  });

  test("is requested for DevOps alone, and every request asks for no sign-in page", async () => {
    const headers: unknown[] = [];
    server.answer((request, response) => {
      headers.push([request.headers["x-tfs-fedauthredirect"], request.headers.accept]);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ authenticatedUser: { id: "5f1c1c62-26c7-4c4e-9d43-0a2f1b8a2f11" } }));
    });
    await client().user();
    expect(headers).toEqual([["Suppress", "application/json"]]);
    expect(server.requests[0]!.authorization).toBe("Bearer token for 499b84ac-1321-427f-aa17-267ca6975798/.default");
  });

  test("is not used for endless pages", async () => {
    const page = JSON.stringify({ value: [{ id: "5f1c1c62-26c7-4c4e-9d43-0a2f1b8a2f11", name: "a" }] });
    server.answer((_, response) => {
      response.writeHead(200, { "content-type": "application/json", "x-ms-continuationtoken": "again" }).end(page);
    });
    const walk = async () => {
      for await (const _ of client().projects());
    };
    expect(await failureOf(walk())).toMatchObject({ code: "badResponse" });
    expect(server.requests).toHaveLength(2);
  });
});
