import { randomUUID } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createMailSender, type MailAnswer, type MailSender } from "../../shared/platform/azure/mail.ts";
import { startTestCloud } from "./live-cloud.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { fakeIdentity } from "./services.ts";

/** Tests of sending mail with Azure Communication Services. */

let cloud: Cloud;
let sender: MailSender;
let server: FakeServer;
/** Sends to `server`, whose responses the tests set. */
let faultySender: MailSender;
beforeAll(async () => {
  server = await startFakeServer();
  const live = await startTestCloud({ company: "small" });
  cloud = live.cloud;
  sender = createMailSender({ config: live.config, identity: createIdentity(live.config) })!;
  const config = {
    COMMUNICATION_CONNECTION_STRING: undefined,
    COMMUNICATION_ENDPOINT: `https://acme.communication.localhost:${server.port}`,
    ALERT_SENDER_ADDRESS: "alerts@acme.example",
  };
  faultySender = createMailSender({ config, identity: fakeIdentity })!;
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

describe("with the simulated cloud", () => {
  test("one recipient is in To, and several recipients are in Bcc", async () => {
    const [mailToOne, mailToSeveral] = [mailTo("ada@acme.example"), mailTo("ada@acme.example", "grace@acme.example")];
    for (const mail of [mailToOne, mailToSeveral])
      expect(["accepted", "succeeded"]).toContain((await sender.send(mail)).kind);
    const sentMails = cloud.control.mails();
    expect(sentMails).toMatchObject([
      { operationId: mailToOne.operationId, to: ["ada@acme.example"], bcc: [], subject: mailToOne.subject },
      {
        operationId: mailToSeveral.operationId,
        to: [],
        cc: [],
        bcc: mailToSeveral.to,
        html: mailToSeveral.html,
        plainText: "Three",
      },
    ]);
  });

  test("the outcome of an unknown mail is notFound, and of a sent mail succeeded", async () => {
    const mail = mailTo("ada@acme.example");
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "notFound" });
    await sender.send(mail);
    expect(await sender.outcome(mail.operationId)).toEqual({ kind: "succeeded" });
    expect(cloud.control.mails().filter(({ operationId }) => operationId === mail.operationId)).toHaveLength(1);
  });
});

describe("with other responses", () => {
  const answer = (status: number, headers: Record<string, string> = {}, body: object = {}) =>
    server.setResponse((_, response: ServerResponse) =>
      response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body)),
    );
  const error = { error: { code: "Refused", message: "No." } };

  test.each<[string, number, Record<string, string>, object, object]>([
    ["a response without an operation", 200, {}, {}, { kind: "unknown" }],
    ["throttling with Retry-After", 429, { "retry-after": "7" }, error, { kind: "throttled", retryAfterSeconds: 7 }],
    ["throttling without Retry-After", 429, {}, error, { kind: "throttled", retryAfterSeconds: 60 }],
    ["a failed authentication", 401, {}, error, { kind: "unavailable" }],
    ["a missing role", 403, {}, error, { kind: "unavailable", reason: expect.stringContaining("Service Owner") }],
    ["a rejected mail", 400, {}, error, { kind: "refused", reason: expect.stringContaining("recipients") }],
    ["an unknown sender address", 404, {}, error, { kind: "refused", reason: expect.stringContaining("linked") }],
    ["a request timeout", 408, {}, error, { kind: "unknown" }],
    ["a server error", 500, {}, error, { kind: "unknown" }],
  ])("%s (%i) is reported as its kind of outcome", async (_, status, headers, body, expected) => {
    answer(status, headers, body);
    const outcome: MailAnswer = await faultySender.send(mailTo("ada@acme.example"));
    expect(outcome).toMatchObject(expected);
    expect(server.requests).toHaveLength(1);
  });

  test("a denied query of an outcome reports the missing role", async () => {
    answer(403, {}, error);
    expect(await faultySender.outcome(randomUUID())).toMatchObject({
      reason: expect.stringContaining("Service Owner"),
    });
  });

  test("a mail is accepted although the first query of its outcome fails", async () => {
    server.setResponse((request, response) => {
      const operation = `https://${request.headers.host}/emails/operations/1?api-version=1`;
      if (request.method === "POST")
        response
          .writeHead(202, { "content-type": "application/json", "operation-location": operation })
          .end('{"id":"1","status":"Running"}');
      else response.writeHead(503).end();
    });
    expect(await faultySender.send(mailTo("ada@acme.example"))).toEqual({ kind: "accepted" });
  });

  test("an undocumented response to a query is reported as an unknown outcome", async () => {
    answer(200, {}, { page: "Sign in" });
    expect(await faultySender.outcome(randomUUID())).toMatchObject({ kind: "unknown" });
  });
});
