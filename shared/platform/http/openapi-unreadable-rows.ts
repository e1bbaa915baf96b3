import { type Document, operationsOf, resolveReference, type Schema } from "./openapi-document.ts";

const UNREADABLE_ROWS: Schema = {
  type: "object",
  description:
    "Stored rows that could not be read and are therefore missing in `items`: another program changed them, or their signature is not valid. The audit log names each of the first 100 rows once (`storage.rowUnreadable`), and says once an hour that there are more. Absent if there are none.",
  properties: {
    count: { type: "integer", minimum: 0, description: "Number of rows that are missing.", example: 1 },
    items: {
      type: "array",
      description: "The first 100 of these rows.",
      items: {
        type: "object",
        properties: {
          state: { type: "string", const: "unreadable", description: "Always `unreadable`." },
          table: { type: "string", description: "Table of the row.", example: "Sync" },
          id: {
            type: "string",
            description:
              "ID of the resource that the row stores, where the list knows it. An administrator can delete the resource with it.",
            example: "01JD8Z6V3W9KQ2M5T7X1C4B0NR",
          },
          reason: {
            type: "string",
            description: "Why the row can't be read. Names members, never values.",
            example: "the signature does not match the content",
          },
        },
        required: ["state", "table", "reason"],
        additionalProperties: false,
      },
    },
  },
  required: ["count", "items"],
  additionalProperties: false,
};

/** Adds the optional member `unreadableRows` to every list, that is to each response body with an array `items`. */
export function addUnreadableRows(document: Document): void {
  document.components.schemas.UnreadableRows = UNREADABLE_ROWS;
  for (const { responses } of operationsOf(document))
    for (const { content } of Object.values(responses)) {
      const body = content?.["application/json"]?.schema;
      const properties = body && resolveReference(document, body).properties;
      if (properties?.items?.type === "array")
        properties.unreadableRows = { $ref: "#/components/schemas/UnreadableRows" };
    }
}
