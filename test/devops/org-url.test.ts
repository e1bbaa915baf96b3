import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createDevopsClient } from "../../shared/devops/client.ts";
import { organizationAddress } from "../../shared/devops/org-url.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { type FakeServer, startFakeServer } from "../azure/odd-server.ts";
import { expectFailure, fakeIdentity, recordingLog, SHORT_WAITS } from "../azure/services.ts";

// Tests of the organization's URL, and that access tokens are sent only to it.

const NO_ENDPOINT = { AZURE_DEVOPS_ENDPOINT: undefined };
const OWN_ENDPOINT = { AZURE_DEVOPS_ENDPOINT: "https://devops.acme.example:8443/tfs" };

describe("an organization's address", () => {
  test("is accepted as a URL of Azure DevOps in the new and the old form", () => {
    for (const [orgUrl, address] of [
      ["https://dev.azure.com/acme", "https://dev.azure.com/acme"],
      ["https://dev.azure.com/Acme-2/", "https://dev.azure.com/Acme-2"],
      ["https://acme.visualstudio.com", "https://dev.azure.com/acme"],
      ["https://acme.visualstudio.com/", "https://dev.azure.com/acme"],
    ] as const) {
      expect(organizationAddress(orgUrl, NO_ENDPOINT)).toBe(address);
      expect(organizationAddress(orgUrl, OWN_ENDPOINT)).toBe(
        address.replace("https://dev.azure.com", OWN_ENDPOINT.AZURE_DEVOPS_ENDPOINT),
      );
    }
  });

  test("is accepted at the configured endpoint", () => {
    const endpoint = OWN_ENDPOINT.AZURE_DEVOPS_ENDPOINT;
    expect(organizationAddress(endpoint, OWN_ENDPOINT)).toBe(endpoint);
    expect(organizationAddress(`${endpoint}/Collection/`, OWN_ENDPOINT)).toBe(`${endpoint}/Collection`);
    for (const suffix of ["x", ".evil.example/acme", "/a/b", "/..", "/%2e%2e", "/acme?x=1", "@evil.example/acme"]) {
      expect(organizationAddress(endpoint + suffix, OWN_ENDPOINT)).toBeUndefined();
    }
    expect(organizationAddress(endpoint, NO_ENDPOINT)).toBeUndefined();
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
    // Letters and full stops of other scripts that look like ASCII.
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
  ])("can't be %s", (orgUrl) => {
    expect(organizationAddress(orgUrl, NO_ENDPOINT)).toBeUndefined();
  });
});

describe("a token", () => {
  let server: FakeServer;
  let otherServer: FakeServer;
  beforeAll(async () => {
    [server, otherServer] = await Promise.all([startFakeServer(), startFakeServer()]);
  });
  afterAll(() => Promise.all([server?.stop(), otherServer?.stop()]));

  const createClient = () =>
    createDevopsClient({
      address: `https://devops.localhost:${server.port}/acme`,
      identity: fakeIdentity,
      log: recordingLog(),
      randomness: systemRandomness(),
      limits: SHORT_WAITS,
    });

  test.each([301, 302, 303, 307, 308])("is not sent along with a redirect (%i)", async (status) => {
    const otherUrl = `https://evil.localhost:${otherServer.port}/_apis/projects`;
    server.setResponse((_, response) => response.writeHead(status, { location: otherUrl }).end());
    otherServer.setResponse((_, response) => response.writeHead(200).end("{}"));
    expect(await expectFailure(createClient().user())).toMatchObject({ code: "unauthorized" });
    expect(server.requests).toHaveLength(1);
    expect(otherServer.requests).toEqual([]);
  });

  test("is requested for Azure DevOps, and the request asks for errors instead of a sign-in page", async () => {
    const headers: unknown[] = [];
    server.setResponse((request, response) => {
      headers.push([request.headers["x-tfs-fedauthredirect"], request.headers.accept]);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ authenticatedUser: { id: "5f1c1c62-26c7-4c4e-9d43-0a2f1b8a2f11" } }));
    });
    await createClient().user();
    expect(headers).toEqual([["Suppress", "application/json"]]);
    expect(server.requests[0]!.authorization).toBe("Bearer token for 499b84ac-1321-427f-aa17-267ca6975798/.default");
  });

  test("is sent only twice if each page of a list continues with the same page", async () => {
    const page = JSON.stringify({ value: [{ id: "5f1c1c62-26c7-4c4e-9d43-0a2f1b8a2f11", name: "a" }] });
    server.setResponse((_, response) => {
      response.writeHead(200, { "content-type": "application/json", "x-ms-continuationtoken": "again" }).end(page);
    });
    const readAllPages = async () => {
      for await (const _ of createClient().projects());
    };
    expect(await expectFailure(readAllPages())).toMatchObject({ code: "badResponse" });
    expect(server.requests).toHaveLength(2);
  });
});
