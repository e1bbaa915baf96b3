import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createMailSender, type MailAnswer, type MailSender } from "../../shared/platform/azure/mail.ts";
import { liveIn } from "./live-cloud.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { plainIdentity } from "./services.ts";

let cloud: Cloud;
let sender: MailSender;
let server: OddServer;
/** Port of the odd server. */
let faultySender: MailSender;
beforeAll(async () => {
  server = await startOddServer();
  const live = await liveIn({ company: "small" });
  cloud = live.cloud;
  sender = createMailSender({ config: live.config, identity: createIdentity(live.config) })!;
  const config = {
    COMMUNICATION_CONNECTION_STRING: undefined,
    COMMUNICATION_ENDPOINT: `https://acme.communication.localhost:${server.port}`,
    ALERT_SENDER_ADDRESS: "alerts@acme.example",
  };
  faultySender = createMailSender({ config, identity: plainIdentity })!;
});
afterAll(async () => {
  await cloud?.stop();
  await server?.stop();
});

const mailTo = (...to: string[]) => ({
  operationId: randomUUID(),
  to,
  subject: "Three secrets expire",
  html: "<p>Three</p>",
  text: "Three",
});

describe("the provider", () => {
  test("one recipient is in To, and several recipients don't see each other", async () => {
    const [one, several] = [mailTo("ada@acme.example"), mailTo("ada@acme.example", "grace@acme.example")];
    for (const mail of [one, several]) expect(["accepted", "succeeded"]).toContain((await sender.send(mail)).kind);
    const kept = cloud.control.mails();
    expect(kept).toMatchObject([
      { operationId: one.operationId, to: ["ada@acme.example"], bcc: [], subject: one.subject },
      { operationId: several.operationId, to: [], cc: [], bcc: several.to, html: several.html, plainText: "Three" },
    ]);
  });

  test("returns the outcome of a known mail, and notFound for an unknown mail", async () => {
    const mail = mailTo("ada@acme.example");
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "notFound" });
    await sender.send(mail);
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "succeeded" });
    expect(cloud.control.mails().filter(({ operationId }) => operationId === mail.operationId)).toHaveLength(1);
  });
});

describe("other answers", () => {
  const answer = (status: number, headers: Record<string, string> = {}, body: object = {}) =>
    server.answer((_, response: ServerResponse) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body)),
    );
  const error = { error: { code: "Refused", message: "No." } };

  test.each<[string, number, Record<string, string>, object, object]>([
    ["a page of a proxy", 200, {}, {}, { kind: "unknown" }],
    ["a limit with its time", 429, { "retry-after": "7" }, error, { kind: "throttled", retryAfterSeconds: 7 }],
    ["a limit without one", 429, {}, error, { kind: "throttled", retryAfterSeconds: 60 }],
    ["who does not know us", 401, {}, error, { kind: "unavailable" }],
    ["who does not let us", 403, {}, error, { kind: "unavailable", reason: expect.stringContaining("Service Owner") }],
    ["who does not take it", 400, {}, error, { kind: "refused", reason: expect.stringContaining("recipients") }],
    ["who has no such sender", 404, {}, error, { kind: "refused", reason: expect.stringContaining("linked") }],
    ["who waited too long", 408, {}, error, { kind: "unknown" }],
    ["who is broken", 500, {}, error, { kind: "unknown" }],
  ])("%s: %i", async (_, status, headers, body, expected) => {
    answer(status, headers, body);
    const found: MailAnswer = await faultySender.send(mailTo("ada@acme.example"));
    expect(found).toMatchObject(expected);
    expect(server.requests).toHaveLength(1);
  });

  test("a denied query of a mail's outcome names the role", async () => {
    answer(403, {}, error);
    expect(await faultySender.outcome(randomUUID())).toMatchObject({
      reason: expect.stringContaining("Service Owner"),
    });
  });

  test("an accepted mail stays accepted, whatever the first query of its outcome returns", async () => {
    server.answer((request, response) => {
      const operation = `https://${request.headers.host}/emails/operations/1?api-version=1`;
      if (request.method === "POST")
        response
          .writeHead(202, { "content-type": "application/json", "operation-location": operation })
          .end('{"id":"1","status":"Running"}');
      else response.writeHead(503).end();
    });
    expect(await faultySender.send(mailTo("ada@acme.example"))).toEqual({ kind: "accepted" });
  });

  test("an HTML page as the answer says nothing about the mail's outcome", async () => {
    answer(200, {}, { page: "Sign in" });
    expect(await faultySender.outcome(randomUUID())).toMatchObject({ kind: "unknown" });
  });
});
