import { readFile } from "node:fs/promises";
import path from "node:path";
import { gzipSync } from "node:zlib";
import * as z from "zod";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { notFound, Problem } from "../shared/http/problem.ts";
import { content, type Reply } from "../shared/http/reply.ts";
import { endpoint } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Documentation";
const page = (description: string) => ({ 200: { description, mediaTypes: ["text/html"] } });

/** What the pages may load: their own files, and for what they draw, inline styles and images. */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; child-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const html = (title: string, head: string, body: string): Reply =>
  content(
    "text/html; charset=utf-8",
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title}</title><meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="/docs/files/favicon-32x32.png">${head}</head><body>${body}</body></html>`,
    { "Content-Security-Policy": PAGE_POLICY },
  );

const TITLE = "Credential and Secret Lifecycle Service";

/** Swagger UI adds "Bearer " itself; people paste it too, as the specification writes the header. Both are taken. */
const SWAGGER_START = `window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    const header = request.headers.Authorization;
    if (header) request.headers.Authorization = header.replace(/^(Bearer\\s+)+/i, "Bearer ");
    return request;
  },
});
`;

const REDOC_START = `Redoc.init("/openapi.json", { hideDownloadButton: false }, document.getElementById("redoc"));
`;

const docs = endpoint({
  name: "docs",
  method: "GET",
  route: "docs",
  summary: "Interactive documentation",
  tag,
  access: "open",
  tier: "core",
  responds: page("Swagger UI"),
  handle: async () =>
    html(
      TITLE,
      '<link rel="stylesheet" href="/docs/files/swagger-ui.css">',
      '<div id="swagger-ui"></div><script src="/docs/files/swagger-ui-bundle.js"></script><script src="/docs/files/swagger-start.js"></script>',
    ),
});

const redoc = endpoint({
  name: "redoc",
  method: "GET",
  route: "redoc",
  summary: "Documentation to read",
  tag,
  access: "open",
  tier: "core",
  responds: page("Redoc"),
  handle: async () =>
    html(
      TITLE,
      "<style>body{margin:0}</style>",
      '<div id="redoc"></div><script src="/docs/files/redoc.standalone.js"></script><script src="/docs/files/redoc-start.js"></script>',
    ),
});

const TYPES: Record<string, string> = {
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".png": "image/png",
};
const BUNDLED = ["swagger-ui.css", "swagger-ui-bundle.js", "redoc.standalone.js", "favicon-32x32.png"];
const OURS: Record<string, string> = { "swagger-start.js": SWAGGER_START, "redoc-start.js": REDOC_START };

/** Redoc draws its maker's logo from the internet, which these pages never ask: an empty picture instead. */
const REDOC_LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const EMPTY_PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
function withoutLogo(file: Buffer): Buffer {
  return file.includes(REDOC_LOGO) ? Buffer.from(file.toString().replaceAll(REDOC_LOGO, EMPTY_PICTURE)) : file;
}

/** The pages' files lie beside the bundle. */
const documentationFile = endpoint({
  name: "docsFile",
  method: "GET",
  route: "docs/files/{file}",
  summary: "A file of the documentation pages",
  tag,
  access: "open",
  tier: "core",
  rateLimit: "none",
  undocumented: true,
  params: z.object({ file: z.string() }),
  responds: { 200: { description: "The file", mediaTypes: Object.values(TYPES) } },
  handle: async ({ params: { file }, headers }) => {
    if (!BUNDLED.includes(file) && !Object.hasOwn(OURS, file)) throw notFound("This file");
    const data = OURS[file] ?? withoutLogo(await readFile(path.join(import.meta.dirname, "docs", file)));
    const zipped = /\bgzip\b/.test(headers.get("accept-encoding") ?? "");
    return content(TYPES[path.extname(file)]!, zipped ? gzipSync(data) : data, {
      "Cache-Control": "public, max-age=86400",
      ...(zipped ? { "Content-Encoding": "gzip", Vary: "Accept-Encoding" } : {}),
    });
  },
});

/** The description of all endpoints is made when it is first asked for; nothing else needs its generator. */
export function documentation(all: () => Endpoint<Services>[]): Endpoint<Services>[] {
  let document: Promise<string> | undefined;
  const openApi = endpoint({
    name: "openApi",
    method: "GET",
    route: "openapi.json",
    summary: "This description, as OpenAPI 3.1",
    tag,
    access: "open",
    tier: "core",
    responds: { 200: z.looseObject({ openapi: z.string() }).meta({ id: "OpenApiDocument" }) },
    handle: async () => {
      document ??= import("../shared/http/openapi.ts").then(({ openApiDocument }) =>
        JSON.stringify(openApiDocument(all() as unknown as Endpoint<never>[], VERSION)),
      );
      return content("application/json; charset=utf-8", await document);
    },
  });
  return [docs, documentationFile, openApi, redoc];
}

/** The API's version, by semantic versioning; the specification's endpoints are its first. */
const VERSION = "1.0.0";

/**
 * Answers what no other function does: a path that is none, or a method the path does not take. The platform alone would
 * answer an empty 404 to both. Its name sorts last, since the platform asks functions in the order of their names.
 */
export function catchAll(all: () => Endpoint<Services>[]): Endpoint<Services> {
  return endpoint({
    name: "zzCatchAll",
    method: "GET",
    route: "{*path}",
    summary: "Every other path",
    tag,
    access: "open",
    tier: "core",
    undocumented: true,
    responds: {},
    handle: async ({ url }) => {
      // One slash at the end counts for nothing, as for the platform.
      const path = url.pathname.replace(/\/$/, "").slice(1);
      if (path === "") return { status: 302, headers: { Location: "/docs" } };
      const methods = all()
        .filter((one) => one.name !== "zzCatchAll" && routePattern(one.route).test(path))
        .map((one) => one.method);
      if (methods.length === 0) throw new Problem("unknownPath", "See /docs for the paths there are.");
      const allow = [...new Set(methods)].sort().join(", ");
      throw new Problem("methodNotAllowed", `This path takes ${allow}.`, { headers: { Allow: allow } });
    },
  });
}

const routePattern = (route: string): RegExp =>
  new RegExp(
    `^${route
      .split("/")
      .map((part) => (part.startsWith("{") ? "[^/]+" : part.replace(/[.]/g, "\\.")))
      .join("/")}$`,
    "i",
  );
