import * as z from "zod";
import { PRODUCT } from "../platform/product.ts";
import { streamEventOf, streamEvents } from "../siem/event-schemas.ts";
import { ALERT_TYPES, type AlertType, eventTypeOf } from "./rule.ts";
import { alertWebhooks, EventHeaders, eventOf } from "./webhook-api.ts";

/**
 * Documents for programs that receive webhooks: a JSON Schema of each event, and an AsyncAPI 3 document of all of them. JSON
 * Schema is of draft 7, which is the one that AsyncAPI 3 uses.
 */

type Json = Record<string, unknown>;

/** Name of the message that audit streams send: a batch of events. */
const STREAM_BATCH = "lifecycle.stream.batch";

/** The type of the rule by the type of the event, such as `lifecycle.alert.expired`. */
const typeOfEvent = new Map<string, AlertType>(ALERT_TYPES.map((type) => [eventTypeOf(type), type]));

/** As an input, an object can have further members: later versions add some, and receivers must ignore them. */
const schemaOf = (schema: z.ZodType): Json => z.toJSONSchema(schema, { target: "draft-7", io: "input" }) as Json;

/** Returns the JSON Schema of an event. Undefined for an unknown type. */
export function eventSchema(eventType: string): Json | undefined {
  const type = typeOfEvent.get(eventType);
  const schema = type ? eventOf(type) : streamEventOf(eventType);
  return schema && { ...schemaOf(schema), $id: `urn:credential-lifecycle:${eventType}`, title: eventType };
}

/**
 * Returns the AsyncAPI 3.0 document of all events (https://www.asyncapi.com/docs/reference/specification/v3.0.0).
 *
 * @param version - Version of the API.
 */
export function asyncApiDocument(version: string): Json {
  const webhooks = alertWebhooks();
  const references = (folder: string) => webhooks.map(({ name }) => [name, { $ref: `#/${folder}/${name}` }] as const);
  return {
    asyncapi: "3.0.0",
    info: {
      title: `${PRODUCT}: webhooks`,
      version,
      description:
        "Events that alert rules with the deliveryMethod `webhook` send, and batches of events that audit streams send: CloudEvents 1.0, signed as Standard Webhooks. An event can arrive twice, with the same webhook-id or, in batches, the same id. Ignore members that you don't know.",
    },
    defaultContentType: "application/cloudevents+json",
    channels: {
      alerts: {
        // The address is the webhookUrl of the rule.
        address: null,
        title: "Alerts",
        description: "The receiver that an alert rule names in `webhookUrl`.",
        messages: Object.fromEntries(references("components/messages")),
      },
      auditStreams: {
        // The address is the webhookUrl of the stream.
        address: null,
        title: "Audit streams",
        description: "The receiver that an audit stream names in `webhookUrl`.",
        messages: { [STREAM_BATCH]: { $ref: `#/components/messages/${STREAM_BATCH}` } },
      },
    },
    operations: {
      sendAlert: {
        action: "send",
        channel: { $ref: "#/channels/alerts" },
        title: "Send alerts",
        description:
          "Any status from 200 to 299 accepts the event. After 410 the service does not try again, after 429 it waits the seconds in `Retry-After`, and after all others it tries again later.",
        bindings: { http: { method: "POST", bindingVersion: "0.3.0" } },
        messages: references("channels/alerts/messages").map(([, reference]) => reference),
      },
      sendAuditEvents: {
        action: "send",
        channel: { $ref: "#/channels/auditStreams" },
        title: "Send events of audit streams",
        description:
          "Any status from 200 to 299 accepts the batch. After all others the service sends the same events again later, and nothing after them before.",
        bindings: { http: { method: "POST", bindingVersion: "0.3.0" } },
        messages: [{ $ref: `#/channels/auditStreams/messages/${STREAM_BATCH}` }],
      },
    },
    components: {
      messages: {
        ...Object.fromEntries(
          webhooks.map(({ name, summary, description, mediaType }) => [
            name,
            {
              name,
              title: summary,
              description,
              contentType: mediaType,
              headers: { $ref: "#/components/schemas/headers" },
              payload: { $ref: `#/components/schemas/${name}` },
            },
          ]),
        ),
        [STREAM_BATCH]: {
          name: STREAM_BATCH,
          title: "Events of an audit stream",
          description: "Audit entries, their digests, and violations that were opened or resolved, in order.",
          contentType: "application/cloudevents-batch+json",
          headers: { $ref: "#/components/schemas/headers" },
          payload: {
            type: "array",
            items: { oneOf: streamEvents().map(({ type }) => ({ $ref: `#/components/schemas/${type}` })) },
          },
        },
      },
      schemas: {
        headers: withoutDialect(schemaOf(EventHeaders)),
        ...Object.fromEntries(webhooks.map(({ name }) => [name, withoutDialect(eventSchema(name)!)])),
        ...Object.fromEntries(
          streamEvents().map(({ type, summary }) => [
            type,
            { ...withoutDialect(eventSchema(type)!), description: summary },
          ]),
        ),
      },
    },
  };
}

/** A schema inside of a document has neither a dialect nor an ID of its own, which would change what its references mean. */
function withoutDialect({ $schema: _, $id: __, ...schema }: Json): Json {
  return schema;
}
