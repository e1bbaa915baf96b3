// The JSON Schemas and the AsyncAPI document of webhooks, compared with the events that a running service sends.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ALERT_TYPES } from "../../shared/alerts/rule.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { schemaProblems } from "./payload-schemas.ts";

// biome-ignore lint/suspicious/noExplicitAny: the tests know the shape of the documents.
type Any = any;

let service: Service;
let receiver: Server;
const received: { headers: Record<string, unknown>; event: Any }[] = [];
beforeAll(async () => {
  receiver = createServer((request, response) => {
    void json(request).then((event) => {
      received.push({ headers: request.headers, event });
      response.end();
    });
  });
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  service = await Service.start({
    env: { LICENSE_KEY: await licence(), ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true" },
  });
});
afterAll(async () => {
  receiver?.close();
  await service?.stop();
});

const schemaOf = async (eventType: string): Promise<Any> => {
  const response = await fetch(`${service.url}/schemas/webhooks/${eventType}`);
  expect(response.headers.get("content-type")).toContain("application/schema+json");
  return await response.json();
};

/** Returns what a reference within the document names. */
const resolve = (document: Any, reference: string): Any =>
  reference
    .slice(2)
    .split("/")
    .reduce((part, name) => part?.[name], document);

test("each event that the service sends matches the served schema of its type, and of no other type", async () => {
  const webhookUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  for (const alertType of ALERT_TYPES) {
    const rule = { name: `Rule ${alertType}`, alertType, deliveryMethod: "webhook", webhookUrl };
    const { status, text, body } = await service.admin("POST", "/alerts/rules", rule);
    expect([status, alertType], text).toEqual([201, alertType]);
    expect((await service.admin("POST", `/alerts/rules/${body.id}/test`)).body.delivered, alertType).toBe(true);
  }
  expect(received.map(({ event }) => event.type)).toEqual(ALERT_TYPES.map((type) => `lifecycle.alert.${type}`));
  const asyncApi: Any = await (await fetch(`${service.url}/asyncapi.json`)).json();
  for (const { event, headers } of received) {
    const schema = await schemaOf(event.type);
    expect(schemaProblems(schema, event), event.type).toEqual([]);
    expect(schemaProblems(schema, { ...event, type: "lifecycle.alert.other" })).not.toEqual([]);
    const { time: _, ...withoutTime } = event;
    expect(schemaProblems(schema, withoutTime)).not.toEqual([]);
    // Later versions can add members.
    expect(schemaProblems(schema, { ...event, data: { ...event.data, later: true } })).toEqual([]);
    expect(schemaProblems(asyncApi.components.schemas.headers, headers)).toEqual([]);
  }
});

test("the AsyncAPI document has each event once, and its references lead to what they name", async () => {
  const document: Any = await (await fetch(`${service.url}/asyncapi.json`)).json();
  expect([document.asyncapi, document.operations.sendAlert.action]).toEqual(["3.0.0", "send"]);
  const types = ALERT_TYPES.map((type) => `lifecycle.alert.${type}`);
  expect(Object.keys(document.components.messages)).toEqual([...types, "lifecycle.stream.batch"]);
  expect(Object.keys(document.channels.alerts.messages)).toEqual(types);
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(([, reference]) => reference!);
  expect(references.length).toBeGreaterThan(2 * types.length);
  expect(references.filter((reference) => resolve(document, reference) === undefined)).toEqual([]);
  for (const type of types) {
    const { payload, contentType } = document.components.messages[type];
    expect(contentType).toBe("application/cloudevents+json");
    const { $schema: _, $id: __, ...schema } = await schemaOf(type);
    expect(resolve(document, payload.$ref)).toEqual(schema);
  }
});

test("an unknown event has no schema", async () => {
  const { status, body } = await service.call("GET", "/schemas/webhooks/constructor");
  expect([status, body.code]).toEqual([404, "notFound"]);
});
