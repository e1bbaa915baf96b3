/**
 * JSON schemas of the messages that the service sends, written from each receiver's documentation. Most reject members that the
 * documentation does not name.
 */
import { AdaptiveCard, SerializationContext, Versions } from "adaptivecards";
import { Ajv } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

/** Schema of a text that is not empty. */
const text = (maxLength: number) => ({ type: "string", minLength: 1, maxLength });
/** Schema of an object without other members than these. */
const strictObject = (properties: Record<string, unknown>, required = Object.keys(properties)) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});

/** https://developer.pagerduty.com/docs/send-alert-event */
const pagerDuty = {
  oneOf: [
    strictObject({
      routing_key: { type: "string", pattern: "^[A-Za-z0-9]{32}$" },
      event_action: { const: "trigger" },
      dedup_key: text(255),
      client: text(1024),
      links: { type: "array", items: strictObject({ href: { type: "string", format: "uri" }, text: text(1024) }) },
      payload: strictObject({
        summary: text(1024),
        source: text(1024),
        severity: { enum: ["critical", "error", "warning", "info"] },
        timestamp: { type: "string", format: "date-time" },
        group: text(1024),
        class: text(1024),
        custom_details: { type: "object" },
      }),
    }),
    strictObject({
      routing_key: { type: "string", pattern: "^[A-Za-z0-9]{32}$" },
      event_action: { const: "resolve" },
      dedup_key: text(255),
    }),
  ],
};

const level = { enum: ["1", "2", "3"] };
/**
 * https://www.servicenow.com/docs/bundle/zurich-api-reference/page/integrate/inbound-rest/concept/c_TableAPI.html, the fields
 * with their lengths as the table incident is delivered.
 */
const serviceNowIncident = strictObject({
  short_description: text(160),
  description: text(4000),
  urgency: level,
  impact: level,
  correlation_id: text(100),
  correlation_display: text(100),
});

/**
 * https://docs.slack.dev/reference/block-kit/blocks and
 * https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
 */
const markdown = strictObject({ type: { const: "mrkdwn" }, text: text(3000), verbatim: { const: true } });
const slack = strictObject({
  text: text(40_000),
  blocks: {
    type: "array",
    minItems: 1,
    maxItems: 50,
    items: {
      oneOf: [
        strictObject({
          type: { const: "header" },
          text: strictObject({ type: { const: "plain_text" }, text: text(150), emoji: { type: "boolean" } }),
        }),
        strictObject({ type: { const: "section" }, text: markdown }),
        strictObject({ type: { const: "context" }, elements: { type: "array", maxItems: 10, items: markdown } }),
      ],
    },
  },
});

/** https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/cloudevents.json */
const cloudEvent = {
  type: "object",
  properties: {
    id: text(1024),
    source: { type: "string", minLength: 1, format: "uri-reference" },
    specversion: { const: "1.0" },
    type: text(1024),
    datacontenttype: text(1024),
    subject: text(1024),
    time: { type: "string", format: "date-time" },
    data: { type: "object" },
  },
  required: ["id", "source", "specversion", "type"],
  propertyNames: { pattern: "^[a-z0-9]{1,20}$" },
};

/** https://learn.microsoft.com/rest/api/communication/email/email/send */
const addresses = {
  type: "array",
  items: strictObject({ address: { type: "string", format: "email" }, displayName: text(256) }, ["address"]),
};
const email = strictObject(
  {
    senderAddress: { type: "string", format: "email" },
    content: strictObject({ subject: text(998), plainText: text(90_000), html: text(90_000) }, ["subject"]),
    recipients: strictObject({ to: addresses, cc: addresses, bcc: addresses }, []),
    replyTo: addresses,
    headers: { type: "object", additionalProperties: { type: "string" } },
    attachments: { type: "array", maxItems: 0 },
    userEngagementTrackingDisabled: { type: "boolean" },
  },
  ["senderAddress", "content", "recipients"],
);

/** https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using */
const teams = strictObject({
  type: { const: "message" },
  attachments: {
    type: "array",
    minItems: 1,
    maxItems: 1,
    items: strictObject({
      contentType: { const: "application/vnd.microsoft.card.adaptive" },
      contentUrl: { type: "null" },
      content: { type: "object" },
    }),
  },
});

const ajv = new Ajv2020({ allErrors: true });
(addFormats as unknown as (to: Ajv2020) => void)(ajv);
const SCHEMAS = { pagerDuty, serviceNowIncident, slack, cloudEvent, email, teams };
const compiled = Object.fromEntries(Object.entries(SCHEMAS).map(([name, schema]) => [name, ajv.compile(schema)]));

const draft7 = new Ajv({ allErrors: true, strict: false });
(addFormats as unknown as (to: Ajv) => void)(draft7);

/** Returns the errors of a payload by a JSON Schema of draft 7, as text. */
export function schemaProblems(schema: object, payload: unknown): string[] {
  const { $id } = schema as { $id?: string };
  const validate = ($id === undefined ? undefined : draft7.getSchema($id)) ?? draft7.compile(schema);
  return validate(payload)
    ? []
    : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** Returns the schema errors of a payload as text. */
export function payloadProblems(name: keyof typeof SCHEMAS, payload: unknown): string[] {
  const validate = compiled[name]!;
  return validate(payload)
    ? []
    : (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** Returns the errors that Microsoft's renderer reports for a card: https://adaptivecards.io/explorer/AdaptiveCard.html */
export function cardProblems(card: object): string[] {
  const context = new SerializationContext(Versions.v1_4);
  const parsed = new AdaptiveCard();
  parsed.parse(card, context);
  const parsing = Array.from({ length: context.eventCount }, (_, index) => context.getEventAt(index).message);
  return [...parsing, ...parsed.validateProperties().validationEvents.map(({ message }) => message)];
}
