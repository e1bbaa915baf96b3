import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { SdkClient } from "./sdk-client.ts";

// Tests Azure Communication Services (e-mail) and App Configuration in the simulated cloud with Azure's SDK clients.

let data: string;
let cloud: Cloud;
let sdk: SdkClient;
beforeAll(async () => {
  data = await mkdtemp(join(tmpdir(), "cloud-test-"));
  cloud = await startCloud({ data, company: "small" });
  sdk = await SdkClient.start(cloud);
});
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.clearMails();
});
afterAll(async () => {
  await sdk?.stop();
  await cloud?.stop();
  await rm(data, { recursive: true });
});

describe("e-mail", () => {
  test("is stored as one JSON, one text and one HTML file", async () => {
    expect(await sdk.call("sendMail", ["ann@acme.example", "bob@acme.example"])).toMatchObject({ status: "Succeeded" });
    expect(cloud.control.mails()).toMatchObject([
      { to: ["ann@acme.example", "bob@acme.example"], subject: "Two secrets expire", plainText: "Soon." },
    ]);
    const files = readdirSync(join(data, "mails"));
    expect(files.map((file) => file.split(".").at(-1)).sort()).toEqual(["html", "json", "txt"]);
    expect(readFileSync(join(data, "mails", files.find((file) => file.endsWith(".html"))!), "utf8")).toBe(
      "<p>Soon.</p>",
    );
  });

  test("is shown on a page for people, where names of others are text", async () => {
    const view = `${cloud.controlUrl}/mails/view`;
    expect(await (await fetch(view)).text()).toContain("No mails yet.");
    await sdk.call("sendMail", ["ann@acme.example"]);
    const answer = await fetch(view);
    expect(answer.headers.get("content-type")).toContain("text/html");
    expect(answer.headers.get("content-security-policy")).toContain("default-src 'none'");
    const page = await answer.text();
    for (const text of ["ann@acme.example", "Two secrets expire", 'src="/control/mails/view/1/content"'])
      expect(page).toContain(text);
    expect(await (await fetch(`${view}/1/content`)).text()).toContain("<p>Soon.</p>");
    expect((await fetch(`${view}/2/content`)).status).toBe(404);
  });

  test("is sent again if the client repeats an operation ID", async () => {
    const id = "4f2d6a7c-3f5a-4a56-9c57-6f1f4d6f7a11";
    await sdk.call("sendMail", ["ann@acme.example"], id);
    await sdk.call("sendMail", ["ann@acme.example"], id);
    expect(cloud.control.mails().map(({ operationId }) => operationId)).toEqual([id, id]);
  });

  test("to more than 50 recipients is rejected", async () => {
    const recipients = Array.from({ length: 51 }, (_, index) => `p${index}@acme.example`);
    expect(await sdk.failure("sendMail", recipients)).toMatchObject({ statusCode: 400 });
    expect(cloud.control.mails()).toEqual([]);
  });

  test("to a suppressed domain is accepted, and then its operation fails", async () => {
    const failure = await sdk.failure("sendMail", ["x@suppressed.example"]);
    expect(failure.message).toContain("EmailDroppedAllRecipientsSuppressed");
    expect(cloud.control.mails()).toMatchObject([{ status: "Failed" }]);
  });

  test("over the rate limit is rejected with Retry-After, and sent by the retry", async () => {
    cloud.control.resetCounts();
    cloud.control.addFault({
      match: { operation: "mail.send" },
      action: { kind: "throttle", retryAfterSeconds: 0 },
      times: 1,
    });
    await sdk.call("sendMail", ["ann@acme.example"]);
    expect(cloud.control.requests({ operation: "mail.send" }).map(({ status }) => status)).toEqual([429, 202]);
  });

  test("with a wrong key is rejected", async () => {
    const { host } = new URL(/endpoint=([^;]+)/.exec(cloud.environment.COMMUNICATION_CONNECTION_STRING!)![1]!);
    const connectionString = `endpoint=https://${host}/;accesskey=${Buffer.alloc(64).toString("base64")}`;
    expect(await sdk.failure("sendMailWith", connectionString)).toMatchObject({ statusCode: 401, code: "Denied" });
    expect(cloud.control.mails()).toEqual([]);
  });
});

describe("App Configuration", () => {
  test("stores, lists and deletes key-values, and changes them only if the ETag matches", async () => {
    const stored = await sdk.call("setSetting", "app:level", "INFO");
    expect(await sdk.call("getSetting", "app:level")).toMatchObject({ value: "INFO", etag: stored.etag });
    expect(await sdk.call("getSetting", "app:level", stored.etag)).toMatchObject({ statusCode: 304 });
    await sdk.call("changeSetting", "app:level", "DEBUG", stored.etag!);
    expect(await sdk.failure("changeSetting", "app:level", "ERROR", stored.etag!)).toMatchObject({ statusCode: 412 });

    for (let index = 0; index < 120; index++) cloud.control.setConfiguration(`many:${index}`, String(index));
    expect(await sdk.call("listSettings", "many:*")).toHaveLength(120);
    expect(await sdk.call("listSettings", "app:*")).toEqual([["app:level", "DEBUG"]]);
    expect(await sdk.call("deleteSetting", "app:level")).toBe(200);
    expect(await sdk.call("deleteSetting", "app:level")).toBe(204);
    expect(await sdk.failure("getSetting", "app:level")).toMatchObject({ statusCode: 404 });
  });
});
