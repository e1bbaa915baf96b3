import path from "node:path";
import * as z from "zod";
import { OpenApiDocument } from "../shared/platform/http/api.ts";
import { acceptsGzip, contentCodingHeaders, gzipped } from "../shared/platform/http/compression.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { content, type Reply } from "../shared/platform/http/reply.ts";
import { createStaticFiles } from "../shared/platform/http/static-files.ts";
import { endpoint, exampleDay } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Documentation";
const page = (description: string) => ({ 200: { description, mediaType: "text/html" } });

/** What the pages may load: their own files, and for what they draw, inline styles and images. */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; child-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** The pages' files lie beside the bundle, where the build puts them. */
const files = createStaticFiles(path.join(import.meta.dirname, "docs"));

/** A page that draws itself with our files, named by their addresses that never change. */
async function html(title: string, style: string, element: string, scripts: string[]): Promise<Reply> {
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

const TITLE = "Credential and Secret Lifecycle Service";

const docs = endpoint({
  name: "docs",
  method: "GET",
  route: "docs",
  summary: "Interactive documentation",
  tag,
  access: "open",
  tier: "core",
  responds: page("Swagger UI"),
  handle: () => html(TITLE, "swagger-ui.css", "swagger-ui", ["swagger-ui-bundle.js", "swagger-start.js"]),
});

const redoc = endpoint({
  name: "redoc",
  method: "GET",
  route: "redoc",
  summary: "Reference documentation",
  tag,
  access: "open",
  tier: "core",
  responds: page("Redoc"),
  handle: () => html(TITLE, "", "redoc", ["redoc.standalone.js", "redoc-start.js"]),
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
  // The largest are half a megabyte: 50 a second.
  paced: 2,
  params: z.object({ file: z.string() }),
  query: z.strictObject({ v: z.string().max(64).optional() }),
  responds: { 200: { description: "The file.", mediaType: "*/*" } },
  handle: ({ params: { file }, query: { v }, headers }) => files.reply(file, v, headers),
});

/** The API's version, by semantic versioning; the specification's endpoints are its first. */
const VERSION = "1.0.0";

/** The description of these endpoints. Its generator is loaded here alone. */
export async function openApiText(endpoints: Endpoint<Services>[]): Promise<string> {
  const { openApiDocument } = await import("../shared/platform/http/openapi.ts");
  return JSON.stringify(openApiDocument(endpoints as unknown as Endpoint<never>[], VERSION));
}

/**
 * The description of all endpoints is made when it is first asked for on a day, since examples name days ahead; nothing else
 * needs its generator.
 */
export function documentation(all: () => Promise<Endpoint<Services>[]>): { endpoints: Endpoint<Services>[] } {
  let described: { day: string; document: ReturnType<typeof describe> } | undefined;
  async function describe() {
    const text = await openApiText(await all());
    return { text, zipped: await gzipped(text) };
  }
  const openApi = endpoint({
    name: "openApi",
    method: "GET",
    route: "openapi.json",
    summary: "Get this description as OpenAPI 3.1",
    tag,
    access: "open",
    tier: "core",
    responds: {
      200: OpenApiDocument,
    },
    handle: async ({ headers }) => {
      const day = exampleDay(0);
      if (described?.day !== day) described = { day, document: describe() };
      const { text, zipped } = await described.document;
      const type = "application/json; charset=utf-8";
      return acceptsGzip(headers) ? content(type, zipped, contentCodingHeaders("gzip")) : content(type, text);
    },
  });
  return { endpoints: [docs, documentationFile, openApi, redoc] };
}
