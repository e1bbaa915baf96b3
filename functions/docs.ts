import path from "node:path";
import * as z from "zod";
import { versionOf } from "../shared/platform/http/answer-version.ts";
import { AsyncApiDocument, OpenApiDocument } from "../shared/platform/http/api.ts";
import { acceptsGzip, contentCodingHeaders, gzipped } from "../shared/platform/http/compression.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { notFound } from "../shared/platform/http/problem.ts";
import { content, type Reply } from "../shared/platform/http/reply.ts";
import { createStaticFiles } from "../shared/platform/http/static-files.ts";
import { PRODUCT } from "../shared/platform/product.ts";
import { endpoint, exampleDay } from "./declare.ts";
import type { Services } from "./services.ts";
import { TAGS } from "./tags.ts";

// The pages of the API documentation (`/docs` and `/redoc`), their files, the OpenAPI document (`/openapi.json`), and the
// documents about webhooks.

const tag = "Documentation";
/** Version of the API (semantic versioning). 1.0.0 contains the endpoints of the specification. */
const VERSION = "1.0.0";
const page = (description: string) => ({ 200: { description, mediaType: "text/html" } });

/** Content security policy: the pages load only their own files. Swagger UI and Redoc need inline styles and data images. */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; child-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The build copies the files of the pages next to the bundle. */
const files = createStaticFiles(path.join(import.meta.dirname, "docs"));

/** Returns a page that scripts render. The addresses of files contain a hash, so that browsers can cache them. */
async function html(title: string, style: string, element: string, scripts: string[]): Promise<Reply<never>> {
  const address = async (file: string) => `/docs/files/${await files.address(file)}`;
  const sources = await Promise.all(scripts.map(address));
  const head = [
    `<meta charset="utf-8"><title>${title}</title>`,
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    `<link rel="icon" href="${await address("favicon-32x32.png")}">`,
    style === "" ? "<style>body{margin:0}</style>" : `<link rel="stylesheet" href="${await address(style)}">`,
  ].join("");
  const body = `<div id="${element}"></div>${sources.map((source) => `<script src="${source}"></script>`).join("")}`;
  return content(
    "text/html; charset=utf-8",
    `<!doctype html><html lang="en"><head>${head}</head><body>${body}</body></html>`,
    { "Content-Security-Policy": PAGE_POLICY },
  );
}

const docs = endpoint({
  name: "docs",
  method: "GET",
  route: "docs",
  summary: "Open the interactive documentation",
  tag,
  access: "open",
  tier: "core",
  responds: page("Swagger UI"),
  handle: () => html(PRODUCT, "swagger-ui.css", "swagger-ui", ["swagger-ui-bundle.js", "swagger-start.js"]),
});

const redoc = endpoint({
  name: "redoc",
  method: "GET",
  route: "redoc",
  summary: "Open the reference documentation",
  tag,
  access: "open",
  tier: "core",
  responds: page("Redoc"),
  handle: () => html(PRODUCT, "", "redoc", ["redoc.standalone.js", "redoc-start.js"]),
});

const asyncApi = endpoint({
  name: "asyncApi",
  method: "GET",
  route: "asyncapi.json",
  summary: "Get the AsyncAPI 3.0 document of the webhooks that alert rules and audit streams send",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: AsyncApiDocument },
  handle: async () => {
    const { asyncApiDocument } = await import("../shared/alerts/webhook-documents.ts");
    return content("application/json; charset=utf-8", JSON.stringify(asyncApiDocument(VERSION)));
  },
});

const webhookSchema = endpoint({
  name: "getWebhookSchema",
  method: "GET",
  route: "schemas/webhooks/{event_type}",
  summary: "Get the JSON Schema of a webhook event",
  description: "JSON Schema draft 7. Later versions of the service can add members to events.",
  tag,
  access: "open",
  tier: "core",
  params: z.object({
    event_type: z.string().max(64).meta({
      description:
        "The `type` of the event: `lifecycle.alert.` and the alertType of the rule, or the type of an event of audit streams.",
      example: "lifecycle.alert.expired",
    }),
  }),
  example: { params: { event_type: "lifecycle.alert.expired" } },
  responds: {
    200: { description: "The schema.", mediaType: "application/schema+json", example: '{"type":"object"}' },
  },
  handle: async ({ params }) => {
    const { eventSchema } = await import("../shared/alerts/webhook-documents.ts");
    const schema = eventSchema(params.event_type);
    if (!schema) throw notFound(`The event type ${params.event_type}`);
    return content("application/schema+json; charset=utf-8", JSON.stringify(schema));
  },
});

const documentationFile = endpoint({
  name: "docsFile",
  method: "GET",
  route: "docs/files/{file}",
  summary: "Get a file of the documentation pages",
  tag,
  access: "open",
  tier: "core",
  undocumented: true,
  // Each request takes two slots of the pace, which spaces requests out to 50 a second: the largest files have 500 KB.
  paced: 2,
  params: z.object({ file: z.string() }),
  query: z.strictObject({ v: z.string().max(64).optional() }),
  responds: { 200: { description: "The file.", mediaType: "*/*" } },
  handle: ({ params: { file }, query: { v }, headers }) => files.reply(file, v, headers),
});

/** Returns the OpenAPI document of the endpoints. The generator is loaded only here. */
export async function openApiText(endpoints: Endpoint<Services>[]): Promise<string> {
  const { openApiDocument } = await import("../shared/platform/http/openapi.ts");
  const { alertWebhooks } = await import("../shared/alerts/webhook-api.ts");
  const parts = { version: VERSION, tags: TAGS, webhooks: alertWebhooks() };
  return JSON.stringify(openApiDocument(endpoints as unknown as Endpoint<never>[], parts));
}

/**
 * Declares the documentation pages and the OpenAPI document. The document is generated once a day, on its first request,
 * because its examples contain dates in the future.
 */
export function documentation(allEndpoints: () => Promise<Endpoint<Services>[]>): { endpoints: Endpoint<Services>[] } {
  let generated: { day: string; document: ReturnType<typeof generate> } | undefined;
  async function generate() {
    const text = await openApiText(await allEndpoints());
    return { text, zipped: await gzipped(text), version: versionOf(undefined, text) };
  }
  const openApi = endpoint({
    name: "openApi",
    method: "GET",
    route: "openapi.json",
    summary: "Get the OpenAPI 3.1 document of this API",
    tag,
    access: "open",
    tier: "core",
    versioned: true,
    responds: {
      200: OpenApiDocument,
    },
    handle: async ({ headers }) => {
      const day = exampleDay(0);
      if (generated?.day !== day) generated = { day, document: generate() };
      const { text, zipped, version } = await generated.document;
      const type = "application/json; charset=utf-8";
      return acceptsGzip(headers)
        ? content(type, zipped, { ...contentCodingHeaders("gzip"), ETag: version })
        : content(type, text, { ETag: version });
    },
  });
  return { endpoints: [docs, documentationFile, openApi, redoc, asyncApi, webhookSchema] };
}
