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
/** Of the odd server. */
let odd: MailSender;
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
  odd = createMailSender({ config, identity: plainIdentity })!;
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
  test("one recipient stands in To, and of several none sees another", async () => {
    const [one, several] = [mailTo("ada@acme.example"), mailTo("ada@acme.example", "grace@acme.example")];
    for (const mail of [one, several]) expect(["accepted", "succeeded"]).toContain((await sender.send(mail)).kind);
    const kept = cloud.control.mails();
    expect(kept).toMatchObject([
      { operationId: one.operationId, to: ["ada@acme.example"], bcc: [], subject: one.subject },
      { operationId: several.operationId, to: [], cc: [], bcc: several.to, html: several.html, plainText: "Three" },
    ]);
  });

  test("is asked for the outcome of a mail it has, and of one it has not", async () => {
    const mail = mailTo("ada@acme.example");
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "notFound" });
    await sender.send(mail);
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "succeeded" });
    expect(cloud.control.mails().filter(({ operationId }) => operationId === mail.operationId)).toHaveLength(1);
  });
});

describe("what else may answer", () => {
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
    const found: MailAnswer = await odd.send(mailTo("ada@acme.example"));
    expect(found).toMatchObject(expected);
    expect(server.requests).toHaveLength(1);
  });

  test("where nobody lets us ask for a mail's outcome, it is said who may", async () => {
    answer(403, {}, error);
    expect(await odd.outcome(randomUUID())).toMatchObject({ reason: expect.stringContaining("Service Owner") });
  });

  test("a mail that was taken counts as taken, whatever the look at it says", async () => {
    server.answer((request, response) => {
      const operation = `https://${request.headers.host}/emails/operations/1?api-version=1`;
      if (request.method === "POST")
        response
          .writeHead(202, { "content-type": "application/json", "operation-location": operation })
          .end('{"id":"1","status":"Running"}');
      else response.writeHead(503).end();
    });
    expect(await odd.send(mailTo("ada@acme.example"))).toEqual({ kind: "accepted" });
  });

  test("who answers a question with a page knows nothing of the mail's outcome", async () => {
    answer(200, {}, { page: "Sign in" });
    expect(await odd.outcome(randomUUID())).toMatchObject({ kind: "unknown" });
  });
});
